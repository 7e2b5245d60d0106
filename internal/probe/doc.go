// Package probe sends one request, or some at random times, to a service that is up,
// and keeps what came: for people who want to see an answer and its times. It
// measures with the same client as a run does, but its results are not runs: a folder
// each, with a summary and the request records.
package probe
