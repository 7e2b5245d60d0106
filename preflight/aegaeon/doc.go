// Package aegaeon checks a configuration of Aegaeon before it is started with: every
// key and value of its YAML, what belongs together, budgets of memory against models
// and host, and the latency profiles that it will look for.
//
// The engine reads YAML 1.1; what a reader of YAML 1.2 takes for text may be a boolean
// to it, so values are judged as they are written. Everything here is arithmetic over
// facts handed in, but for the folders of profiles, which are read.
package aegaeon
