// Package workload reads and writes traces of arrivals and makes the prompts
// that go with them. Everything random comes from a seed, through sub-seeds that
// are derived by hash for one purpose each, so that adding a purpose never moves
// the others. It sends nothing and measures nothing.
package workload
