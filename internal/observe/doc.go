// Package observe looks at a service and its host while a load runs, and writes
// what it sees to files: Prometheus metrics, Aegaeon's runtime snapshot and
// events, power and use of GPUs, and the processes that serve.
//
// It must not disturb what is measured. Every source has a connection and a
// thread of its own, so that its processor time is known; bodies, lines, series
// and files are bounded; a look that takes too long is left out, and one that
// fails is tried less and less often. Nothing is synced to the disk before the
// load has ended. What a service answers is hostile until it was parsed.
//
// Times in the files are nanoseconds on the run's clock, whose zero comes only
// with Begin: looks before the first request have negative ones.
package observe
