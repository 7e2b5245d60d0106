package report

import (
	"fmt"

	"assay/internal/metrics"
	"assay/schemas"
)

// distributions lists the report's distributions in order.
var distributions = []struct{ name, unit string }{
	{"ttft_ms", "ms"}, {"ttft_visible_ms", "ms"}, {"ttft_from_schedule_ms", "ms"},
	{"tpot_ms", "ms"}, {"itl_chunk_ms", "ms"}, {"itl_token_ms", "ms"}, {"max_gap_ms", "ms"},
	{"e2e_ms", "ms"}, {"e2e_from_schedule_ms", "ms"}, {"send_lag_ms", "ms"}, {"queue_ms", "ms"}, {"qos", "ratio"},
}

// sample takes every sample of one record. A request that failed before the event
// a latency ends with is a censored sample: it ranks above every value, and its
// limit is how long it had been waited for.
func (g *group) sample(r *schemas.RequestRecord) {
	failed := r.Outcome != schemas.OutcomeOK
	fromSchedule := max(0, float64(r.EndNs-r.ScheduledNs)/1e6)
	fromDispatch := 0.0
	if r.DispatchedNs != nil {
		fromDispatch = max(0, float64(r.EndNs-*r.DispatchedNs)/1e6)
	}
	g.latency("ttft_ms", metrics.TTFTMs, r, failed, fromDispatch)
	g.latency("ttft_visible_ms", metrics.TTFTVisibleMs, r, failed, fromDispatch)
	g.latency("ttft_from_schedule_ms", metrics.TTFTFromScheduleMs, r, failed, fromSchedule)
	g.latency("e2e_ms", metrics.E2EMs, r, failed, fromDispatch)
	g.latency("e2e_from_schedule_ms", metrics.E2EFromScheduleMs, r, failed, fromSchedule)
	g.latency("send_lag_ms", metrics.SendLagMs, r, false, 0)
	g.latency("queue_ms", metrics.QueueMs, r, false, 0)
	g.pace(r, failed)
}

func (g *group) latency(name string, of func(*schemas.RequestRecord) (float64, bool), r *schemas.RequestRecord, failed bool, limit float64) {
	if v, ok := of(r); ok {
		g.samples[name].Add(v)
	} else if failed {
		g.samples[name].AddCensored(limit)
	}
}

// pace takes what is measured between tokens. A failed request never showed its
// pace, so it is censored there, at what was seen of it; a stream that fell silent
// until a time limit is a censored gap of that length.
func (g *group) pace(r *schemas.RequestRecord, failed bool) {
	tpot, hasTPOT := metrics.TPOTMs(r)
	gap, hasGap := metrics.MaxGapMs(r)
	silence := 0.0
	if r.Outcome == schemas.OutcomeTimeout && r.LastTokenNs != nil {
		silence = float64(r.EndNs-*r.LastTokenNs) / 1e6
		g.samples["itl_chunk_ms"].AddCensored(silence)
	}
	switch {
	case failed && r.AskedOutputTokens != 1:
		g.samples["tpot_ms"].AddCensored(tpot)
		g.samples["max_gap_ms"].AddCensored(max(gap, silence))
	case !failed:
		if metrics.Paceless(r) {
			g.paceless++
			if len(r.Chunks) > 1 {
				g.unspaced++
			}
		}
		if hasTPOT {
			g.samples["tpot_ms"].Add(tpot)
		}
		if hasGap {
			g.samples["max_gap_ms"].Add(gap)
		}
	}
	for _, v := range metrics.ITLChunkMs(r) {
		g.samples["itl_chunk_ms"].Add(v)
	}
	if per, ok := metrics.ITLTokenMs(r); ok {
		for _, v := range per {
			g.samples["itl_token_ms"].Add(v)
		}
	}
}

func (g *group) summaries(opts FoldOptions) map[string]schemas.Summary {
	out := map[string]schemas.Summary{}
	for _, d := range distributions {
		s := metrics.Summarize(d.unit, g.samples[d.name])
		switch d.name {
		case "tpot_ms":
			leftOut(&s, g.paceless, "tokens")
		case "itl_chunk_ms", "max_gap_ms":
			leftOut(&s, g.unspaced, "token events")
		}
		switch {
		case d.name == "qos" && opts.SLO == nil:
			s.Note = "no slo was given"
		case d.name == "queue_ms" && s.N == 0:
			s.Note = "no cap on the requests in flight made any wait"
		case d.name == "itl_token_ms" && s.N == 0 && s.Note == "":
			s.Note = "the service does not tell how many tokens its events carry"
		}
		out[d.name] = s
	}
	return out
}

// leftOut notes requests that have no sample because what they sent has one time.
func leftOut(s *schemas.Summary, n int, what string) {
	if n == 0 {
		return
	}
	s.Unknown = n
	text := fmt.Sprintf("requests left out, since all their %s came at one time: %d", what, n)
	if s.Note != "" {
		text = s.Note + "; " + text
	}
	s.Note = text
}
