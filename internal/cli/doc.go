// Package cli is the command line of assay: one file a command, one table of
// exit codes, one way to print. It wires the other packages together and decides
// nothing about experiments.
//
// Results go to stdout, progress and messages to stderr. With --format json a
// command prints exactly one JSON document on stdout, an error included
// ({"error": {"message": ..., "exit_code": ...}}), so that output always parses.
package cli
