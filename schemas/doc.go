// Package schemas holds the nouns of assay: the versioned documents an
// experiment turns into, the digests and keys that name them, and the embedded
// JSON Schemas (draft 2020-12) they are validated against. It does no I/O and
// imports nothing else of this module.
//
// Go types are the source of the JSON Schemas of produced documents; a test
// regenerates them and fails when the committed files differ. The experiment
// file and the machine file are described by Field values instead, because
// their loader needs the same description to name positions and near misses.
package schemas
