package measure

import (
	"iter"

	"assay/schemas"
)

// lengths sums up, while records pass by, what was asked for and what came.
type lengths struct {
	askedIn, askedOut, actualIn, actualOut span
	inSources, outSources                  map[string]int
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
	}
	if r.OutputTokens != nil {
		l.actualOut.add(*r.OutputTokens)
		l.outSources[r.OutputTokensSource]++
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
