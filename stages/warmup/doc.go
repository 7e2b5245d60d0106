// Package warmup is the stage kind that sends requests to each model of a
// service, one at a time, until a stated rule holds. What the first request cost
// is recorded apart: it is not steady state. Replicas of a model cannot be
// addressed one by one; the service chooses which answers.
package warmup
