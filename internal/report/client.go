package report

import (
	"fmt"
	"strings"

	"assay/schemas"
)

// clientReasons is how many reasons against a client are printed.
const clientReasons = 3

// writeClient says in a line how far the client can be believed, over all results
// of a stage: the worst of each figure.
func writeClient(b *strings.Builder, results []schemas.StageResult) {
	var w worst
	for _, r := range results {
		if r.Result.Client != nil {
			w.add(trialLabel(r), r.Result.Client)
		}
	}
	if w.judged == 0 {
		return
	}
	fmt.Fprintf(b, "\n  client ok in %d of %d", w.ok, w.judged)
	if w.unknown > 0 {
		fmt.Fprintf(b, ", unknown in %d", w.unknown)
	}
	fmt.Fprintf(b, "; at worst: error %s ms, sent late by %s ms (p99), %.2f%% of stamps shared\n", number(w.err), number(w.late), 100*w.shared)
	for i, reason := range w.reasons {
		if i == clientReasons {
			fmt.Fprintf(b, "    and %d more; result.json has them\n", len(w.reasons)-i)
			break
		}
		fmt.Fprintf(b, "    %s\n", reason)
	}
}

type worst struct {
	judged, ok, unknown int
	err, late           *float64
	shared              float64
	reasons             []string
}

func (w *worst) add(label string, c *schemas.ClientVerdict) {
	w.judged++
	switch c.OK {
	case "true":
		w.ok++
	case "unknown":
		w.unknown++
	}
	w.err = larger(w.err, c.ErrorMs)
	if c.LatenessMs != nil {
		w.late = larger(w.late, &c.LatenessMs.P99)
	}
	if c.Stamps > 0 {
		w.shared = max(w.shared, float64(c.Shared)/float64(c.Stamps))
	}
	for _, reason := range c.Reasons {
		w.reasons = append(w.reasons, label+": "+reason)
	}
}

func larger(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}
