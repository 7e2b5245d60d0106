// Package foundry holds the kinds that make and take validated runs: graphs asks a
// service in one mode of CUDA graphs, validate judges the modes against each other
// and assembles the folder that --source-run takes, adopt takes such a folder of
// another tool into the store.
package foundry
