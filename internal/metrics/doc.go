// Package metrics is the only place that knows a formula. Its functions map
// request records, and samples taken from them, to numbers; nothing here reads a
// file or prints. Sums run over sorted samples with a compensation term, so a
// result does not depend on the order of the records, and nothing is rounded.
// Definitions keep their meaning within one Version.
package metrics

// Version of the definitions; it is raised when one of them changes. In version 1 the
// TPOT and the gaps of tokens that all have one time were 0; since 2 they are unknown.
const Version = 2
