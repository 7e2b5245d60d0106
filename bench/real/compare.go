package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"assay/internal/report"
	"assay/schemas"
)

// stage is one stage's requests in the order of their answers, with what the
// service says of each.
type stage struct {
	name  string
	recs  []schemas.RequestRecord
	told  []account
	alone bool // no request was sent before the one before had ended
}

func readStages(dir string, names []string) ([]stage, error) {
	var out []stage
	for _, name := range names {
		files, err := filepath.Glob(filepath.Join(dir, "trials", "*", name, "outputs", "requests", "requests.jsonl.zst"))
		if err != nil || len(files) != 1 {
			return nil, fmt.Errorf("stage %s has %d request logs, want one: one trial can be compared", name, len(files))
		}
		rd, err := report.OpenRecords(files[0])
		if err != nil {
			return nil, err
		}
		s := stage{name: name, alone: true}
		for rec, err := range rd.All() {
			if err != nil {
				rd.Close()
				return nil, fmt.Errorf("stage %s: %w", name, err)
			}
			s.recs = append(s.recs, rec)
		}
		rd.Close()
		for _, r := range s.recs {
			if r.Outcome != schemas.OutcomeOK {
				return nil, fmt.Errorf("stage %s: request %s ended with %s: only whole runs can be compared", name, r.ID, r.Outcome)
			}
		}
		slices.SortFunc(s.recs, func(a, b schemas.RequestRecord) int { return int(*a.LastTokenNs - *b.LastTokenNs) })
		for i := 1; i < len(s.recs); i++ {
			s.alone = s.alone && *s.recs[i].DispatchedNs >= s.recs[i-1].EndNs
		}
		out = append(out, s)
	}
	return out, nil
}

// sharedTokens is more than prompts that are not alike have in common, at their
// beginning, with what was in the cache.
const sharedTokens = 8

// match gives each request its account.
func match(stages []stage, told []account) error {
	n := 0
	for i := range stages {
		n += len(stages[i].recs)
	}
	if n != len(told) {
		return fmt.Errorf("the stages have %d requests, the log %d accounts: name every stage that used the service, in order", n, len(told))
	}
	for i := range stages {
		s := &stages[i]
		s.told, told = told[:len(s.recs)], told[len(s.recs):]
		for j, a := range s.told {
			r := &s.recs[j]
			if r.InputTokensSource != "tokenizer" {
				continue
			}
			if want := *r.InputTokens; a.promptTokens > want || a.promptTokens < want-sharedTokens {
				return fmt.Errorf("stage %s, request %s: the prompt has %d tokens, the log says %d: the order differs", s.name, r.ID, want, a.promptTokens)
			}
		}
	}
	return nil
}

// row compares one quantity over a stage: sums in milliseconds, per unit.
type row struct {
	what         string
	ours, theirs float64
	gate         bool
}

func (r row) differs() float64 { return r.ours/r.theirs - 1 }

func ms(from, to *int64) float64 { return float64(*to-*from) / 1e6 }

// rows are the comparisons of a stage, as means per request or token.
func (s *stage) rows() []row {
	var first, span, whole, prompt, eval, later, total float64
	var chunks, tokens, runs int
	for i := range s.recs {
		r, a := &s.recs[i], s.told[i]
		first += ms(r.DispatchedNs, r.FirstTokenNs)
		span += ms(r.FirstTokenNs, r.LastTokenNs)
		whole += ms(r.DispatchedNs, r.LastTokenNs)
		prompt, eval, total, later = prompt+a.promptMs, eval+a.evalMs, total+a.totalMs, later+a.totalMs-a.promptMs
		chunks, tokens, runs = chunks+len(r.Chunks), tokens+a.evalRuns+1, runs+a.evalRuns
	}
	n, per := float64(len(s.recs)), float64(max(runs, 1))
	out := []row{
		{"events, and tokens of the log", float64(chunks), float64(tokens), true},
		{"TPOT, and (total - prompt eval) per run, ms", span / per, later / per, true},
		{"TPOT, and eval time per run (no sampling), ms", span / per, eval / per, false},
	}
	if s.alone { // else requests wait inside the service
		out = append(out, row{"E2E, and total time, ms", whole / n, total / n, true}, row{"TTFT, and prompt eval time (no sampling), ms", first / n, prompt / n, false})
	}
	return out
}

// judge prints the table and returns an error where a gating row differs by more.
func judge(w io.Writer, stages []stage, within float64) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "stage\trequests\twhat is compared\tmeasured\tby the service\tdiffers")
	var failed error
	for i := range stages {
		s := &stages[i]
		for _, r := range s.rows() {
			note := ""
			if d := r.differs(); r.gate && (d > within || d < -within) {
				note = " (too much)"
				failed = errors.Join(failed, fmt.Errorf("stage %s: %s differ by %.1f %%, more than %.1f %%", s.name, r.what, 100*d, 100*within))
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%.2f\t%.2f\t%+.1f %%%s\n", s.name, len(s.recs), r.what, r.ours, r.theirs, 100*r.differs(), note)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return failed
}
