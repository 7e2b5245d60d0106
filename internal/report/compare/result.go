package compare

import (
	"assay/internal/metrics"
	"assay/internal/report"
	"assay/schemas"
)

// Result is what a compare stage publishes: the comparison, and its differences as
// values that a claim can name.
func Result(c schemas.Comparison) schemas.Result {
	res := schemas.Result{
		Schema: schemas.ResultV1, MetricsVersion: metrics.Version, Emulated: c.Emulated, Simulated: c.Simulated, Headline: "ttft_ms", StampSource: "unknown",
		Counts:  schemas.Counts{Outcomes: map[schemas.Outcome]int{}, OutputTokenSources: map[string]int{}},
		Metrics: map[string]schemas.Summary{}, Values: values(c), Models: []schemas.ModelResult{}, Speed: 1, Comparable: c.Comparable, Comparison: &c,
	}
	res.Findings = append(append([]schemas.Finding{}, c.Refusals...), Outside(c)...)
	return res
}

func values(c schemas.Comparison) map[string]schemas.Value {
	out := map[string]schemas.Value{}
	for _, g := range c.Groups {
		at := "."
		if g.Label != "" {
			at = "[" + g.Label + "]."
		}
		for _, m := range g.Metrics {
			unit := "%"
			if m.As == schemas.DifferencePoints {
				unit = "points"
			}
			for name, v := range map[string]*float64{report.Difference: m.Mean, report.DifferenceLow: m.Low, report.DifferenceHigh: m.High} {
				value := schemas.Value{Unit: unit, Value: v}
				if v == nil {
					value.Reason = m.Note
				}
				out[name+at+m.Metric] = value
			}
		}
	}
	return out
}

// SwitchMaps are heat maps of the switches of the baseline and of the candidate of
// each group, over its pairs.
func SwitchMaps(groups []Group) []report.NamedMatrix {
	var out []report.NamedMatrix
	for _, g := range groups {
		sides := [2][]*schemas.SwitchMatrix{}
		for _, p := range g.Pairs {
			sides[0], sides[1] = append(sides[0], p.Baseline.Result.Switches), append(sides[1], p.Candidate.Result.Switches)
		}
		for i, name := range []string{g.Baseline, g.Candidate} {
			m := report.MeanSwitches(sides[i])
			if m == nil {
				continue
			}
			if at := pointText(g.Point); at != "" {
				name += " at " + at
			}
			if !has(out, name) {
				out = append(out, report.NamedMatrix{Name: name, Matrix: m})
			}
		}
	}
	return out
}

func has(list []report.NamedMatrix, name string) bool {
	for _, n := range list {
		if n.Name == name {
			return true
		}
	}
	return false
}
