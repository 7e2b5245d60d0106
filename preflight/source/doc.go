// Package source checks the folder of a validated run: a report.json that tells that
// CUDA graphs of several models were saved, loaded and proven, the configuration that
// loads them, and the archives themselves. Nothing in the report is believed that the
// files beside it can contradict.
//
// Check reads a folder through an fs.FS that does not leave it (os.Root.FS). Reports of
// assay are held to its own schema; those of other tools are read tolerantly, as no
// public form of them exists, but what is required must be there and must be right.
// Compare holds a report against what it is to be used for.
package source
