package pipeline

import (
	"fmt"
	"strings"

	"assay/schemas"
)

// CycleError prints a cycle of stages.
type CycleError struct{ Stages []string }

func (e *CycleError) Error() string {
	return "stages need each other in a cycle: " + strings.Join(e.Stages, " -> ")
}

// StageError says which node failed and why.
type StageError struct {
	Node string
	Kind string
	Err  error
}

func (e *StageError) Error() string { return fmt.Sprintf("stage %s (%s): %v", e.Node, e.Kind, e.Err) }
func (e *StageError) Unwrap() error { return e.Err }

// RefusedError means that preflight refused the run. A kind that checks returns it.
type RefusedError struct{ Findings []schemas.Finding }

func (e *RefusedError) Error() string {
	n := 0
	first := ""
	for _, f := range e.Findings {
		if f.Severity == schemas.SeverityError || f.Severity == schemas.SeverityUnknown {
			if n == 0 {
				first = ": " + f.Subject + ": " + f.Message
			}
			n++
		}
	}
	return fmt.Sprintf("preflight refused with %d finding(s)%s", n, first)
}

// InfraError means that the store, the disk or the network failed, not the
// experiment; the run stays open and can be resumed.
type InfraError struct {
	Op  string
	Err error
}

func (e *InfraError) Error() string { return fmt.Sprintf("%s: %v", e.Op, e.Err) }
func (e *InfraError) Unwrap() error { return e.Err }

// TaintedError names the inputs that changed while a stage ran.
type TaintedError struct{ Inputs []string }

func (e *TaintedError) Error() string {
	return "input changed while the stage ran: " + strings.Join(e.Inputs, ", ") + "; the result cannot be trusted: run again with the input left alone"
}

// ResumeError says why an interrupted run cannot go on.
type ResumeError struct{ Reason string }

func (e *ResumeError) Error() string { return "resume: " + e.Reason }
