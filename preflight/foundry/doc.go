// Package foundry checks archives of CUDA graphs before a GPU is asked to load them:
// that what is there is whole and agrees with itself (internal/foundry says so), and that
// it is what a configuration registers. Aegaeon's own folders are not published: assay's
// are known by their catalogs, those of integrations into serving engines by rank_N, and
// of any other form is said what can be told, and unknown of the rest.
package foundry
