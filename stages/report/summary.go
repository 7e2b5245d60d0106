package report

import (
	"assay/internal/metrics"
	"assay/internal/report"
	"assay/schemas"
)

// Summary is the summary output: for each stage and matrix point the values of
// each trial and what they come to over trials. The run is the unit.
type Summary struct {
	MetricsVersion int            `json:"metrics_version"`
	Emulated       bool           `json:"emulated"`
	Groups         []GroupSummary `json:"groups"`
}

// GroupSummary is one matrix point of one stage.
type GroupSummary struct {
	Stage    string          `json:"stage"`
	Point    map[string]any  `json:"point"`
	Emulated bool            `json:"emulated"`
	Trials   []string        `json:"trials"`
	Metrics  []MetricSummary `json:"metrics"`
}

// MetricSummary is one metric over the trials of a group. Mean and deviation are
// over the trials that have a value; the others say why they have none.
type MetricSummary struct {
	Metric string       `json:"metric"`
	Unit   string       `json:"unit"`
	Values []TrialValue `json:"values"`
	N      int          `json:"n"`
	Mean   *float64     `json:"mean,omitempty"`
	StdDev *float64     `json:"stddev,omitempty"` // of the sample of trials; absent below two
}

// TrialValue is one trial's value, or why there is none.
type TrialValue struct {
	Trial   string   `json:"trial,omitempty"`
	Value   *float64 `json:"value,omitempty"`
	Unknown string   `json:"unknown,omitempty"`
}

// main metrics, as report.Lookup names them.
func mainMetrics() []string {
	var out []string
	for _, m := range []string{"ttft_from_schedule_ms", "ttft_ms", "tpot_ms", "e2e_ms"} {
		for _, s := range []string{"mean", "p50", "p95", "p99"} {
			out = append(out, m+"."+s)
		}
	}
	return append(out, "qos.mean", "slo_attainment", "output_tokens_per_s", "requests_per_s", "makespan_s", "error_rate")
}

func summarize(results []schemas.StageResult) Summary {
	out := Summary{MetricsVersion: metrics.Version, Groups: []GroupSummary{}}
	for _, group := range groups(results) {
		g := GroupSummary{Stage: group[0].Stage, Point: group[0].Point, Trials: []string{}}
		for _, r := range group {
			g.Trials = append(g.Trials, r.Trial)
			g.Emulated = g.Emulated || r.Result.Emulated
		}
		for _, m := range mainMetrics() {
			g.Metrics = append(g.Metrics, overTrials(m, group))
		}
		out.Emulated = out.Emulated || g.Emulated
		out.Groups = append(out.Groups, g)
	}
	return out
}

// groups gathers the results of one stage and matrix point, in order of first
// appearance.
func groups(results []schemas.StageResult) [][]schemas.StageResult {
	at := map[string]int{}
	var out [][]schemas.StageResult
	for _, r := range results {
		point, err := schemas.Canonical(r.Point)
		if err != nil { // cannot be: a point is scalars
			point = []byte(r.Trial)
		}
		key := r.Stage + "\x00" + string(point)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

func overTrials(metric string, group []schemas.StageResult) MetricSummary {
	m := MetricSummary{Metric: metric, Values: []TrialValue{}}
	var xs []float64
	for _, r := range group {
		v, unit, err := report.Lookup(r.Result, metric)
		if unit != "" {
			m.Unit = unit
		}
		tv := TrialValue{Trial: r.Trial}
		if err != nil {
			tv.Unknown = err.Error()
		} else {
			tv.Value = &v
			xs = append(xs, v)
		}
		m.Values = append(m.Values, tv)
	}
	m.N = len(xs)
	if mean, ok := metrics.Mean(xs); ok {
		m.Mean = &mean
	}
	if sd, ok := metrics.SampleStdDev(xs); ok {
		m.StdDev = &sd
	}
	return m
}
