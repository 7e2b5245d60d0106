// Package loadgen offers requests to an OpenAI-compatible service and leaves one
// record for each. The load is open loop: every request is sent at its absolute
// time whatever the service does, from a body that was built before. Nothing is
// ever retried, no redirect followed, no failure dropped: a request that is in
// the schedule has a record with one outcome of the closed list. It computes no
// metric.
package loadgen
