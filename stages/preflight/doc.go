// Package preflight is the stage kind that checks, before anything is spent,
// what its settings list and, without being told, every path and program that
// the experiment itself names. It looks at everything before it refuses.
package preflight
