// Package foundry writes archives of recorded decode steps in the public file format of
// Foundry: graphs as JSON and as .cugraph, their manifest, and the packed binaries whose
// kernels they launch. What is recorded is made up. They are read, to be loaded, by
// internal/foundry.
//
// Where the public sources say nothing of a layout (the bytes of a node, the form of
// the string table, the numbers of the sections), what is written here is this
// package's own. The folder of a model and its catalog are assay's own too.
package foundry
