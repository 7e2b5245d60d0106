// Package gguf reads the header of a GGUF checkpoint and checks what can be told
// without the weights: that the file is of this format and of a version in use,
// that the header is whole, and that every tensor lies inside the file and apart
// from the others. Files are hostile until checked: every count and length has a
// limit, and nothing is allocated because a file says so.
package gguf
