// Package checkpoint checks a folder of weights as Hugging Face lays it out, or a
// safetensors file alone, without reading the weights: that the files an engine
// opens are there and whole, that every header is in order and describes its file
// to the last byte, and that index, shards and configuration tell the same story.
//
// A folder of a model cache is links to elsewhere, and is read as such. Files are
// hostile until checked: headers are read in bounds that are known before, the
// parser of headers knows the one form that there is, and nothing is allocated
// because a file says so.
package checkpoint
