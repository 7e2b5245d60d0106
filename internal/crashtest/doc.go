// Package crashtest kills assay while it works and looks at what is left: the
// store must open, hold whole runs only, no process of a service may be alive,
// and --resume must finish the run. It is made of tests only.
package crashtest
