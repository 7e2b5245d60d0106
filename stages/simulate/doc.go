// Package simulate is the stage kind that runs a workload through the model of a
// serving system (internal/serving) on the virtual clock. It is pure: equal
// settings, workload and profiles give equal bytes. Its result has the form of a
// measured one, is folded by the same code, and says that it is simulated.
package simulate
