// Package compare is the stage kind that compares results of the stages it needs,
// pair by pair: by a parameter of the matrix, or stage with stage. Pairs that are not
// alike fail the stage, with the reason; a difference outside of its tolerance does
// not, but ends the run with the exit code of a claim that does not hold. It is pure.
package compare
