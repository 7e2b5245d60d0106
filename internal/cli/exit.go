package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"assay/archive"
	"assay/experiments"
	"assay/pipeline"
	"assay/schemas"
)

// The exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitRefused     = 3
	ExitUnverified  = 4
	ExitTainted     = 5
	ExitClaim       = 6
	ExitInfra       = 7
	ExitInterrupted = 130
)

// exitCodes is the one table: --help prints it and a test pins it.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{ExitOK, "ok"},
	{ExitFailed, "the experiment failed, or a comparison was refused"},
	{ExitUsage, "usage, or an invalid file"},
	{ExitRefused, "preflight refused (a bad or missing source run too)"},
	{ExitUnverified, "verification invalid or unknown"},
	{ExitTainted, "tainted: an input changed while it was used"},
	{ExitClaim, "a gating claim or comparison outside its tolerance, or without a value"},
	{ExitInfra, "infrastructure: network, registry, disk"},
	{ExitInterrupted, "interrupted"},
}

// precedence decides between several causes, strongest first.
var precedence = []int{ExitInterrupted, ExitInfra, ExitRefused, ExitTainted, ExitFailed, ExitClaim}

// ErrInterrupted is the cause of the context that the first signal ends.
var ErrInterrupted = errors.New("interrupted")

// usageError is a command line that cannot be carried out as written.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// codeError gives an error an exit code of its own.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codeError{code, err}
}

// statusError ends a command with a code whose reason is already printed.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func exitWith(code int) error {
	if code == ExitOK {
		return nil
	}
	return &statusError{code}
}

// exitCode maps an error to its exit code.
func exitCode(err error) int {
	var (
		status  *statusError
		coded   *codeError
		usage   *usageError
		invalid *experiments.InvalidError
		cycle   *pipeline.CycleError
		resume  *pipeline.ResumeError
		refused *pipeline.RefusedError
		tainted *pipeline.TaintedError
		corrupt *archive.CorruptError
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &status):
		return status.code
	case errors.Is(err, ErrInterrupted), errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage), errors.As(err, &invalid), errors.As(err, &cycle), errors.As(err, &resume):
		return ExitUsage
	case errors.As(err, &refused):
		return ExitRefused
	case errors.As(err, &tainted):
		return ExitTainted
	case errors.As(err, &corrupt):
		return ExitUnverified
	}
	return ExitInfra
}

// outcomeCode is the exit code of a run that came to an end.
func outcomeCode(out pipeline.Outcome) int {
	causes := map[int]bool{
		ExitInterrupted: out.Aborted || out.Status == schemas.RunAborted,
		ExitRefused:     out.Refused != nil,
		ExitTainted:     out.Status == schemas.RunTainted,
		ExitFailed:      out.Status == schemas.RunFailed && out.Refused == nil,
		ExitClaim:       !claimsHold(out.Report.Claims) || !comparisonsHold(out.Report.Results),
	}
	return strongest(causes)
}

func strongest(causes map[int]bool) int {
	for _, code := range precedence {
		if causes[code] {
			return code
		}
	}
	return ExitOK
}

// claimsHold says whether every gating claim holds; one without a value does not.
func claimsHold(claims []schemas.ClaimResult) bool {
	for _, c := range claims {
		if c.Gate && !c.Holds {
			return false
		}
	}
	return true
}

// comparisonsHold says whether no gating comparison is outside of its tolerance. One
// that was refused has failed its stage.
func comparisonsHold(results []schemas.StageResult) bool {
	for _, r := range results {
		if c := r.Result.Comparison; c != nil && c.Gate && c.Within != nil && !*c.Within {
			return false
		}
	}
	return true
}

func exitTable() string {
	var b strings.Builder
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "   %-4d %s\n", e.code, e.meaning)
	}
	order := make([]string, len(precedence))
	for i, c := range precedence {
		order[i] = fmt.Sprint(c)
	}
	fmt.Fprintf(&b, "   several causes: %s\n", strings.Join(order, " > "))
	return b.String()
}
