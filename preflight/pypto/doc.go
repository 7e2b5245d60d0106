// Package pypto checks what PyPTO Serving is started with: options against each other,
// against the family of the model and against the devices, and the state of its cache
// of compiled programs. Weights that were packed before are the checkpoint's matter.
//
// Options differ between versions of the program; one that is not known here is
// unknown, unless the program's own help text lists it.
package pypto
