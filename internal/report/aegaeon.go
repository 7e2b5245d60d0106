package report

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"assay/internal/metrics"
	"assay/schemas"
)

const aegaeonTool = "aegaeon"

// aegaeonSLO are the targets that Aegaeon's scripts take when none are set.
var aegaeonSLO = schemas.SLO{TTFTMs: 10_000, TPOTMs: 100}

// AegaeonNumbers are what Aegaeon's own scripts make of a run. Three of them
// disagree about requests that failed, which is why each has its name.
type AegaeonNumbers struct {
	SLO schemas.SLO `json:"slo"`
	// MeanQoS is over all requests, a failed one 0: mean_slo_attainment.
	MeanQoS *float64 `json:"mean_slo_attainment,omitempty"`
	// PlottedQoS leaves out requests without tokens, as the plots do.
	PlottedQoS *float64 `json:"plotted_qos,omitempty"`
	// TTFTWithinTarget counts a failed request as one that met it, since the replay
	// writes the target as its TTFT.
	TTFTWithinTarget *float64 `json:"ttft_within_target,omitempty"`
	P95E2EMs         *float64 `json:"p95_e2e_ms,omitempty"` // nearest rank
	// DemoTokens counts the non-empty text chunks of all requests: what the API demo
	// and the energy script call tokens.
	DemoTokens int64 `json:"demo_tokens"`
	// Undefined counts requests whose tokens all came at their arrival: a division by
	// zero there, left out here.
	Undefined int `json:"undefined,omitempty"`
}

// aegaeonFold collects what the numbers are made of.
type aegaeonFold struct {
	v                    *View
	slo                  schemas.SLO
	all, plotted, e2e    []float64
	within               int
	ttft, perToken, demo *metrics.Samples
}

// foldAegaeon folds by the definitions of Aegaeon's replay, plots, smoke tests and
// demo. Without an slo its defaults are taken.
func foldAegaeon(records iter.Seq2[schemas.RequestRecord, error], slo *schemas.SLO) (View, error) {
	v := View{Tool: aegaeonTool, Rows: []ViewRow{{Name: "ttft"}, {Name: "per_token"}, {Name: "e2e"}, {Name: "demo_ttft"}}, Aegaeon: &AegaeonNumbers{SLO: aegaeonSLO}}
	if slo != nil {
		v.Aegaeon.SLO = *slo
	}
	f := aegaeonFold{v: &v, slo: v.Aegaeon.SLO, ttft: &v.Rows[0].samples, perToken: &v.Rows[1].samples, demo: &v.Rows[3].samples}
	f.perToken.Dependent = true
	var window metrics.Window
	n := 0
	for r, err := range records {
		if err == nil {
			err = checkRecord(&r)
		}
		if err == nil {
			err = f.add(&r)
		}
		if err != nil {
			return View{}, fmt.Errorf("view %s: %w", aegaeonTool, err)
		}
		if n == 0 {
			window = metrics.Window{FromNs: r.ScheduledNs, ToNs: r.EndNs}
		}
		n++
		window.FromNs, window.ToNs = min(window.FromNs, r.ScheduledNs), max(window.ToNs, r.EndNs)
	}
	v.rates(window)
	f.end()
	return v, nil
}

func (f *aegaeonFold) add(r *schemas.RequestRecord) error {
	e, err := metrics.Aegaeon(r, f.slo)
	switch {
	case errors.Is(err, metrics.ErrQoSUndefined):
		f.v.Aegaeon.Undefined++
		return nil
	case err != nil:
		return fmt.Errorf("request %s: %w", r.ID, err)
	}
	for _, c := range r.Chunks {
		if !c.Hidden {
			f.v.Aegaeon.DemoTokens++
		}
	}
	if t, ok := metrics.TTFTVisibleMs(r); ok {
		f.demo.Add(t)
	}
	f.ttft.Add(e.TTFTMs)
	f.all = append(f.all, e.QoS)
	if e.TTFTMs <= f.slo.TTFTMs {
		f.within++
	}
	if len(e.PerTokenMs) == 0 {
		f.v.Failed++
		return nil
	}
	f.v.Completed++
	if metrics.AtOneTime(r) && len(e.PerTokenMs) > 1 {
		f.v.AtOneTime++
	}
	f.plotted = append(f.plotted, e.QoS)
	f.v.OutputTokens += int64(len(e.PerTokenMs))
	f.v.InputTokens += int64(max(r.AskedInputTokens, valueOf(r.InputTokens)))
	whole := 0.0
	for _, gap := range e.PerTokenMs {
		f.perToken.Add(gap)
		whole += gap
	}
	f.e2e = append(f.e2e, whole)
	f.v.Rows[2].samples.Add(whole)
	return nil
}

func valueOf(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func (f *aegaeonFold) end() {
	a := f.v.Aegaeon
	for i := range f.v.Rows {
		f.v.Rows[i].Summary = metrics.Summarize("ms", &f.v.Rows[i].samples)
	}
	if m, ok := metrics.Mean(f.all); ok {
		within := float64(f.within) / float64(len(f.all))
		a.MeanQoS, a.TTFTWithinTarget = &m, &within
	}
	if m, ok := metrics.Mean(f.plotted); ok {
		a.PlottedQoS = &m
	}
	slices.Sort(f.e2e)
	if p, ok := metrics.NearestRank(f.e2e, 95); ok {
		a.P95E2EMs = &p
	}
}

// text is what stands below the rows.
func (a *AegaeonNumbers) text() string {
	percent := func(v *float64) string {
		if v == nil {
			return Unknown
		}
		return fmt.Sprintf("%.4f", *v)
	}
	s := fmt.Sprintf("  targets: TTFT %s ms, TPOT %s ms\n  mean_slo_attainment (its qos, failed requests as 0) %s, as its plots draw it (without them) %s\n",
		schemas.Decimal(a.SLO.TTFTMs), schemas.Decimal(a.SLO.TPOTMs), percent(a.MeanQoS), percent(a.PlottedQoS))
	s += fmt.Sprintf("  TTFT within its target %s (a failed request counts as within), e2e nearest-rank p95 %s ms, demo tokens (text chunks) %d\n", percent(a.TTFTWithinTarget), number(a.P95E2EMs), a.DemoTokens)
	if a.Undefined > 0 {
		s += fmt.Sprintf("  %d requests left out: all their tokens came at their arrival\n", a.Undefined)
	}
	return s
}
