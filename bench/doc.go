// Package bench holds the benchmarks of whole paths: each prints a figure of
// ours and its ratio to a physical limit measured in the same run, so that a
// number from another machine means something. It has no code of its own.
package bench
