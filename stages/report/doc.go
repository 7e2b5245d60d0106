// Package report is the stage kind that folds the results of measure stages into
// a summary over trials and a table for people. It is pure.
package report
