package measure

import (
	"fmt"
	"iter"

	"assay/pipeline"
	"assay/schemas"
)

// lengths sums up, while records pass by, what was asked for and what came.
type lengths struct {
	askedIn, askedOut, actualIn, actualOut span
	inSources, outSources                  map[string]int
	inDiff, outDiff                        spread // of what was counted, not taken as asked
}

// span is the range and mean of whole numbers, in constant memory.
type span struct {
	n, min, max int
	sum         int64
}

func newLengths() *lengths {
	return &lengths{inSources: map[string]int{}, outSources: map[string]int{}}
}

func (l *lengths) watch(recs iter.Seq2[schemas.RequestRecord, error]) iter.Seq2[schemas.RequestRecord, error] {
	return func(yield func(schemas.RequestRecord, error) bool) {
		for rec, err := range recs {
			if err == nil {
				l.add(&rec)
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

func (l *lengths) add(r *schemas.RequestRecord) {
	l.askedIn.add(r.AskedInputTokens)
	l.askedOut.add(r.AskedOutputTokens)
	if r.Outcome != schemas.OutcomeOK {
		return
	}
	if r.InputTokens != nil {
		l.actualIn.add(*r.InputTokens)
		l.inSources[r.InputTokensSource]++
		if r.InputTokensSource != "asked" {
			l.inDiff.add(*r.InputTokens, r.AskedInputTokens)
		}
	}
	if r.OutputTokens != nil {
		l.actualOut.add(*r.OutputTokens)
		l.outSources[r.OutputTokensSource]++
		l.outDiff.add(*r.OutputTokens, r.AskedOutputTokens)
	}
}

func (s *span) add(n int) {
	if s.n == 0 {
		s.min, s.max = n, n
	}
	s.n++
	s.min, s.max, s.sum = min(s.min, n), max(s.max, n), s.sum+int64(n)
}

// value is how a span stands in a condition; nil for an empty one.
func (s *span) value() any {
	if s.n == 0 {
		return nil
	}
	return map[string]any{"n": s.n, "min": s.min, "max": s.max, "mean": float64(s.sum) / float64(s.n)}
}

// spread sums up the differences between counted and asked lengths.
type spread struct {
	n, exact, maxAbs      int
	sum, sumAbs, sumAsked int64
}

// add takes one pair; nothing was asked of a given text.
func (s *spread) add(counted, asked int) {
	if asked <= 0 {
		return
	}
	d := counted - asked
	s.n++
	if d == 0 {
		s.exact++
	}
	s.maxAbs = max(s.maxAbs, abs(d))
	s.sum, s.sumAbs, s.sumAsked = s.sum+int64(d), s.sumAbs+int64(abs(d)), s.sumAsked+int64(asked)
}

func (s spread) meanAbs() float64 { return float64(s.sumAbs) / float64(max(s.n, 1)) }
func (s spread) mean() float64    { return float64(s.sum) / float64(max(s.n, 1)) }

// share is by how much lengths differ, as a part of what was asked.
func (s spread) share() float64 { return float64(s.sumAbs) / float64(max(s.sumAsked, 1)) }

// value is how it stands in a condition; nil when nothing was counted.
func (s spread) value() any {
	if s.n == 0 {
		return nil
	}
	return map[string]any{"n": s.n, "exact": s.exact, "mean": s.mean(), "mean_abs": s.meanAbs(), "max_abs": s.maxAbs}
}

// Findings of lengths.
const (
	findingInput  = "lengths.input-off"
	findingOutput = "lengths.output-off"
)

// findings says which lengths differ by more than the stage's tolerance.
func (l *lengths) findings(task *pipeline.Task, set schemas.Settings) []schemas.Finding {
	var out []schemas.Finding
	limit := set.Float("length_tolerance")
	for _, x := range []struct {
		id, what, remedy string
		s                spread
	}{
		{findingInput, "prompts", "name the service's tokenizer (tokenize), or send token ids (prompts = \"ids\") where it takes them", l.inDiff},
		{findingOutput, "answers", "hold the service to the asked lengths by ignore_eos and, where it needs another field, hold", l.outDiff},
	} {
		if x.s.share() > limit {
			out = append(out, schemas.Finding{ID: x.id, Severity: schemas.SeverityWarning, Subject: "stage " + task.Node.ID, Remedy: x.remedy,
				Message: fmt.Sprintf("the tokens of %s differ from those asked by %s of them (length_tolerance %s): %d of %d are exact, the largest difference is %d",
					x.what, schemas.Rounded(x.s.share(), 4), schemas.Decimal(limit), x.s.exact, x.s.n, x.s.maxAbs)})
		}
	}
	return out
}

// lengthsKept is the error of a stage that requires its lengths.
func lengthsKept(set schemas.Settings, res schemas.Result) error {
	if !set.Bool("require_lengths") {
		return nil
	}
	for _, f := range res.Findings {
		if f.ID == findingInput || f.ID == findingOutput {
			return fmt.Errorf("require_lengths: %s", f.Message)
		}
	}
	return nil
}
