// Package report writes and reads the log of request records and folds records
// into a result. A fold is pure: the same records, in any order, give the same
// result, so every number can be recomputed from an archive. It knows no formula
// (package metrics does) and prints nothing.
package report
