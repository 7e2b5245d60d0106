// Package pipeline plans an experiment as a keyed DAG and executes it against a
// store. Planning is pure; execution follows one protocol for every stage: hash
// inputs, run in a private folder, wait for the whole process tree, check the
// inputs again, hash outputs while storing them, write the record. It knows no
// OCI, no TOML and no stage kind: kinds are passed in as values, and the store is
// the few methods declared in store.go.
package pipeline
