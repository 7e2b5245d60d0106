package report

import (
	"assay/internal/metrics"
	"assay/schemas"
)

// Names of the report's single numbers, in order.
var valueNames = []string{
	"requests_per_s", "output_tokens_per_s", "input_tokens_per_s", "total_tokens_per_s", "makespan_s",
	"offered_rps", "achieved_rps", "error_rate", "slo_attainment", "goodput_rps", "token_slo_attainment",
	"cv_requests_over_models", "cv_output_tokens_over_models",
	"peak_output_tokens_per_s", "mean_in_flight", "peak_in_flight",
	"drained_at_end", "cut_at_end",
}

// Names of the numbers of a steady window.
var windowNames = []string{
	"requests_per_s", "output_tokens_per_s", "input_tokens_per_s", "total_tokens_per_s", "error_rate", "slo_attainment", "goodput_rps",
	"peak_output_tokens_per_s", "window_s",
}

const (
	fullRun   = "full run: first scheduled to last end"
	overModel = "models in the schedule, requests that ended ok"
)

func (f *fold) values() map[string]schemas.Value {
	c := f.all.counts
	out := map[string]schemas.Value{
		"requests_per_s":      f.rate("req/s", float64(c.OK)),
		"output_tokens_per_s": f.rate("tokens/s", float64(c.OutputTokens)),
		"input_tokens_per_s":  f.rate("tokens/s", float64(c.InputTokens)),
		"total_tokens_per_s":  f.rate("tokens/s", float64(c.InputTokens+c.OutputTokens)),
		"makespan_s":          known("s", f.window.Seconds()),
		"offered_rps":         eventRate(f.scheduled, "scheduled"),
		"achieved_rps":        eventRate(f.dispatched, "sent"),
		"error_rate":          ratio(c.Issued-c.OK, c.Issued, "no request was issued"),
	}
	if c.Issued == 0 {
		out["makespan_s"] = unknown("s", "no request was issued")
	}
	f.sloValues(out)
	f.courseValues(out)
	for _, name := range []string{"drained_at_end", "cut_at_end"} {
		out[name] = unknown("requests", "the load had no stated end in time")
	}
	if f.opts.TimeOver {
		out["drained_at_end"] = known("requests", float64(f.atEnd[schemas.AtEndDrained]))
		out["cut_at_end"] = known("requests", float64(f.atEnd[schemas.AtEndCut]))
	}
	var requests, tokens []float64
	for _, name := range f.modelNames() {
		requests = append(requests, float64(f.models[name].counts.OK))
		tokens = append(tokens, float64(f.models[name].counts.OutputTokens))
	}
	out["cv_requests_over_models"] = cv(requests)
	out["cv_output_tokens_over_models"] = cv(tokens)
	return out
}

func (f *fold) sloValues(out map[string]schemas.Value) {
	if f.opts.SLO == nil {
		const why = "no slo was given"
		out["slo_attainment"] = unknown("ratio", why)
		out["token_slo_attainment"] = unknown("ratio", why)
		out["goodput_rps"] = unknown("req/s", why)
		return
	}
	out["slo_attainment"] = ratio(f.all.sloMet, f.all.counts.Issued, "no request was issued")
	out["token_slo_attainment"] = ratio(f.all.tokensOnTime, f.all.tokensDue, "no token was due")
	out["goodput_rps"] = f.rate("req/s", float64(f.all.sloMet))
}

func (f *fold) rate(unit string, n float64) schemas.Value {
	v, ok := f.window.Rate(n)
	if !ok {
		return unknown(unit, "the run has no length")
	}
	out := known(unit, v)
	out.Set = fullRun
	return out
}

func eventRate(times []int64, what string) schemas.Value {
	v, ok := metrics.EventRate(times)
	if !ok {
		return unknown("req/s", "fewer than two requests were "+what+" at different times")
	}
	return known("req/s", v)
}

func ratio(n, of int, why string) schemas.Value {
	if of == 0 {
		return unknown("ratio", why)
	}
	return known("ratio", float64(n)/float64(of))
}

// cv keeps the convention that an empty set or a zero mean gives 0, and flags it.
func cv(xs []float64) schemas.Value {
	v, defined := metrics.CV(xs)
	out := known("ratio", v)
	out.Set = overModel
	if !defined {
		out.Set += " (0 by convention: the set is empty or its mean is zero)"
	}
	return out
}

func known(unit string, v float64) schemas.Value { return schemas.Value{Unit: unit, Value: &v} }

func unknown(unit, why string) schemas.Value { return schemas.Value{Unit: unit, Reason: why} }
