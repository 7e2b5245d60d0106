package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/archive"
	"assay/experiments"
	"assay/pipeline"
	"assay/schemas"
)

// TestExitTable pins the table: scripts rely on it.
func TestExitTable(t *testing.T) {
	const want = `   0    ok
   1    the experiment failed, or a comparison was refused
   2    usage, or an invalid file
   3    preflight refused (a bad or missing source run too)
   4    verification invalid or unknown
   5    tainted: an input changed while it was used
   6    a gating claim or comparison outside its tolerance, or without a value
   7    infrastructure: network, registry, disk
   130  interrupted
   several causes: 130 > 7 > 3 > 5 > 1 > 6
`
	if diff := cmp.Diff(want, exitTable()); diff != "" {
		t.Error(diff)
	}
}

// TestGatingComparison: one outside of its tolerance ends a run that passed with 6,
// unless it only reports.
func TestGatingComparison(t *testing.T) {
	no := false
	for gate, want := range map[bool]int{true: ExitClaim, false: ExitOK} {
		out := pipeline.Outcome{Status: schemas.RunPassed, Report: schemas.Report{Results: []schemas.StageResult{{}, {Result: schemas.Result{Comparison: &schemas.Comparison{Comparable: true, Gate: gate, Within: &no}}}}}}
		if got := outcomeCode(out); got != want {
			t.Errorf("gate %v: exit code %d, want %d", gate, got, want)
		}
	}
}

func TestExitCodeOfErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{exitWith(0), 0},
		{exitWith(6), 6},
		{usagef("x"), 2},
		{&experiments.InvalidError{}, 2},
		{&pipeline.CycleError{}, 2},
		{&pipeline.ResumeError{}, 2},
		{&pipeline.RefusedError{}, 3},
		{&archive.CorruptError{Err: errors.New("x")}, 4},
		{withCode(4, fs.ErrNotExist), 4},
		{&pipeline.TaintedError{}, 5},
		{&pipeline.InfraError{Err: errors.New("x")}, 7},
		{errors.New("anything else"), 7},
		{ErrInterrupted, 130},
		{context.Canceled, 130},
		{withCode(2, context.Canceled), 130},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%T %v: exit code %d, want %d", c.err, c.err, got, c.want)
		}
		if c.err == nil {
			continue
		}
		if got := exitCode(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("%T wrapped: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestExitCodeOfOutcomes(t *testing.T) {
	failing := schemas.Report{Claims: []schemas.ClaimResult{{Claim: schemas.Claim{Gate: true}}}}
	reported := schemas.Report{Claims: []schemas.ClaimResult{{Claim: schemas.Claim{Gate: false}}}}
	refused := &pipeline.RefusedError{}
	for name, c := range map[string]struct {
		out  pipeline.Outcome
		want int
	}{
		"passed":                 {pipeline.Outcome{Status: schemas.RunPassed}, 0},
		"claim":                  {pipeline.Outcome{Status: schemas.RunPassed, Report: failing}, 6},
		"claim that only tells":  {pipeline.Outcome{Status: schemas.RunPassed, Report: reported}, 0},
		"failed over claim":      {pipeline.Outcome{Status: schemas.RunFailed, Report: failing}, 1},
		"tainted over claim":     {pipeline.Outcome{Status: schemas.RunTainted, Report: failing}, 5},
		"refused over failed":    {pipeline.Outcome{Status: schemas.RunFailed, Refused: refused}, 3},
		"refused over tainted":   {pipeline.Outcome{Status: schemas.RunTainted, Refused: refused}, 3},
		"aborted over all":       {pipeline.Outcome{Status: schemas.RunTainted, Refused: refused, Aborted: true, Report: failing}, 130},
		"aborted by status only": {pipeline.Outcome{Status: schemas.RunAborted}, 130},
	} {
		if got := outcomeCode(c.out); got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
}

func TestPrecedence(t *testing.T) {
	for i, strong := range precedence {
		for _, weak := range precedence[i:] {
			if got := strongest(map[int]bool{strong: true, weak: true}); got != strong {
				t.Errorf("%d and %d give %d", strong, weak, got)
			}
		}
	}
}
