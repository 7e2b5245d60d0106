// Package workload is the stage kind that writes a seeded workload of the
// published synth form. It is pure: equal settings and seed give equal bytes.
package workload
