// Package foundry reads archives of recorded CUDA graphs in the public file format of
// Foundry: graphs as JSON and as .cugraph, their manifest, the packed binaries whose
// kernels they launch, and what is noted beside them. Describe reads a whole folder of
// archives and says what is wrong with it that no GPU is needed to see.
//
// Files are hostile until checked: each has a limit, nothing is allocated because a file
// says so, and numbers keep all their 64 bits. Where the public sources say nothing of a
// layout (the bytes of a node, the form of the string table, the numbers of the sections,
// the folder of a model), nothing is read or demanded. The catalog of a model is assay's
// own.
package foundry
