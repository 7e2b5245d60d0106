package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"assay/internal/metrics"
	"assay/schemas"
)

// span counts what completes and arrives within a window.
type span struct {
	window metrics.Window
	ok     int // ended properly in it
	met    int // of those, within the targets
	input  int64
	output int64
	slices []int64 // output tokens of requests that ended properly, by slice
}

// newSpan cuts a window into equal slices of at most a second. Since they tile the
// window, the fullest one is never below the mean.
func newSpan(w metrics.Window) *span {
	const second, most = int64(1e9), 1_000_000
	n := max(1, (w.ToNs-w.FromNs+second-1)/second)
	return &span{window: w, slices: make([]int64, min(n, most))}
}

func (s *span) holds(at int64) bool { return at >= s.window.FromNs && at <= s.window.ToNs }

// add counts one record. Tokens count by the time they arrived, completions by
// the end of the answer.
func (s *span) add(r *schemas.RequestRecord, met bool) {
	if r.Outcome != schemas.OutcomeOK {
		return
	}
	if r.DoneNs != nil && s.holds(*r.DoneNs) {
		s.ok++
		if met {
			s.met++
		}
	}
	if r.FirstTokenNs != nil && s.holds(*r.FirstTokenNs) {
		n := r.AskedInputTokens
		if r.InputTokens != nil {
			n = *r.InputTokens
		}
		s.input += int64(n)
	}
	if r.OutputTokens == nil {
		return // not in the totals either
	}
	tokens := metrics.TokensPerChunk(r)
	for i, n := range tokens.Counts {
		at := r.Chunks[i].AtNs
		if !s.holds(at) {
			continue
		}
		s.output += int64(n)
		width := float64(s.window.ToNs-s.window.FromNs) / float64(len(s.slices))
		k := 0
		if width > 0 {
			k = int(float64(at-s.window.FromNs) / width)
		}
		s.slices[min(max(k, 0), len(s.slices)-1)] += int64(n)
	}
}

// peak is the rate of the fullest slice, tokens per second.
func (s *span) peak() (float64, bool) {
	width := s.window.Seconds() / float64(len(s.slices))
	if !(width > 0) {
		return 0, false
	}
	return float64(slices.Max(s.slices)) / width, true
}

type phaseKey struct{ phase, from, model string }

// parts are the groups beside all and its model's that a record belongs to.
func (f *fold) parts(r *schemas.RequestRecord) []*group {
	met := f.opts.SLO != nil && metrics.SLOMet(r, *f.opts.SLO, f.opts.OpenLoop)
	var out []*group
	if f.full != nil {
		f.full.add(r, met)
	}
	if f.steady != nil {
		f.steady.add(r, met)
		if f.steady.holds(r.ScheduledNs) {
			out = append(out, f.steadyGroup)
		}
	}
	phase := f.phase(r)
	if r.Phase != "" || r.SwitchFrom != "" {
		f.switches.add(r, phase)
	}
	if phase == "" {
		return out
	}
	keys := []phaseKey{{phase: phase}}
	if phase == schemas.PhaseSwitch {
		keys = append(keys, phaseKey{phase, r.SwitchFrom, r.Model})
	}
	for _, k := range keys {
		if f.phases[k] == nil {
			f.phases[k] = newGroup()
		}
		out = append(out, f.phases[k])
	}
	return out
}

// phase is the schedule's, but for what a service that was just started was sent
// before it began to answer at all.
func (f *fold) phase(r *schemas.RequestRecord) string {
	c := f.opts.Course
	if !f.opts.FirstUse || c == nil || r.DispatchedNs == nil {
		return r.Phase
	}
	if c.FirstAnswerNs == nil || *r.DispatchedNs < *c.FirstAnswerNs {
		return schemas.PhaseStartup
	}
	return r.Phase
}

func (f *fold) courseValues(out map[string]schemas.Value) {
	const why = "the records were not looked at for their course"
	out["peak_output_tokens_per_s"] = unknown("tokens/s", why)
	out["mean_in_flight"], out["peak_in_flight"] = unknown("requests", why), unknown("requests", why)
	if f.full == nil {
		return
	}
	out["peak_output_tokens_per_s"] = peakValue(f.full)
	out["mean_in_flight"] = known("requests", f.opts.Course.MeanInFlight)
	out["peak_in_flight"] = known("requests", float64(f.opts.Course.PeakInFlight))
}

func peakValue(s *span) schemas.Value {
	v, ok := s.peak()
	if !ok {
		return unknown("tokens/s", "the run has no length")
	}
	out := known("tokens/s", v)
	out.Set = "fullest of equal slices of at most 1 s"
	return out
}

// windows adds the steady window and the phases to a result.
func (f *fold) windows(res *schemas.Result) {
	keys := slices.SortedFunc(maps.Keys(f.phases), func(a, b phaseKey) int {
		return cmp.Or(strings.Compare(a.phase, b.phase), strings.Compare(a.from, b.from), strings.Compare(a.model, b.model))
	})
	for _, k := range keys {
		g := f.phases[k]
		res.Phases = append(res.Phases, schemas.PhaseResult{Phase: k.phase, SwitchFrom: k.from, Model: k.model, Counts: g.counts, Metrics: g.summaries(f.opts)})
	}
	res.Switches = f.switches.matrix()
	c := f.opts.Course
	if c == nil {
		return
	}
	w := &schemas.WindowResult{Source: c.Source, Unknown: c.Unknown, Metrics: map[string]schemas.Summary{}, Values: map[string]schemas.Value{}}
	w.Counts.Outcomes, w.Counts.OutputTokenSources = map[schemas.Outcome]int{}, map[string]int{}
	res.Steady = w
	if f.steady == nil {
		return
	}
	w.FromNs, w.ToNs = c.Steady.FromNs, c.Steady.ToNs
	w.Counts, w.Metrics = f.steadyGroup.counts, f.steadyGroup.summaries(f.opts)
	w.Values = f.steadyValues()
}

func (f *fold) steadyValues() map[string]schemas.Value {
	s, g := f.steady, f.steadyGroup
	rate := func(unit string, n float64) schemas.Value {
		v, ok := s.window.Rate(n)
		if !ok {
			return unknown(unit, "the window has no length")
		}
		return known(unit, v)
	}
	out := map[string]schemas.Value{
		"window_s":                 known("s", s.window.Seconds()),
		"requests_per_s":           rate("req/s", float64(s.ok)),
		"output_tokens_per_s":      rate("tokens/s", float64(s.output)),
		"input_tokens_per_s":       rate("tokens/s", float64(s.input)),
		"total_tokens_per_s":       rate("tokens/s", float64(s.input+s.output)),
		"peak_output_tokens_per_s": peakValue(s),
		"error_rate":               ratio(g.counts.Issued-g.counts.OK, g.counts.Issued, "no request was due in the window"),
		"slo_attainment":           unknown("ratio", "no slo was given"),
		"goodput_rps":              unknown("req/s", "no slo was given"),
	}
	if f.opts.SLO != nil {
		out["slo_attainment"] = ratio(g.sloMet, g.counts.Issued, "no request was due in the window")
		out["goodput_rps"] = rate("req/s", float64(s.met))
	}
	return out
}
