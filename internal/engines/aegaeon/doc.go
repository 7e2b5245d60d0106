// Package aegaeon reads the files of Aegaeon, the serving system, as far as a client
// of it needs them.
package aegaeon
