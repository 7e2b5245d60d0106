// Package stages lists the stage kinds. The list is a value: nothing registers
// itself.
package stages
