// Package loadgen offers requests to an OpenAI-compatible service and leaves one
// record for each. In open loop every request is sent at its absolute time whatever
// the service does, from a body that was built before, unless a cap is asked for,
// whose queueing is then recorded; in closed loop it is sent when another ends.
// Nothing is ever retried, no redirect followed, no failure dropped: a request that
// is in the schedule has a record with one outcome of the closed list. It computes
// no metric.
package loadgen
