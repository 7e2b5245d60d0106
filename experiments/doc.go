// Package experiments holds the shipped experiment files and the loader that
// turns an experiment file into a validated schemas.Experiment. Loading is
// strict: every fault is reported with file, line, column and the nearest valid
// name, and nothing but the file, the machine file and the shipped workloads is
// touched. It knows no store, no plan and no stage beyond schemas.Kinds.
package experiments
