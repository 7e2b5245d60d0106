package metrics

import "assay/schemas"

// Percentiles of every distribution in a report.
var Percentiles = []float64{50, 90, 95, 99}

// Summarize describes samples: count, mean, deviation and range over the known
// values, percentiles over all, censored ones included. Percentiles whose sample
// floor is not met are marked; beside each stands its interval, where it has one.
func Summarize(unit string, s *Samples) schemas.Summary {
	s.Sort()
	out := schemas.Summary{Unit: unit, N: len(s.Values), Censored: len(s.Limits), Percentiles: []schemas.Percentile{}}
	if k := len(s.Values); k > 0 {
		mean, _ := Mean(s.Values)
		sd, _ := StdDev(s.Values)
		out.Mean, out.StdDev = &mean, &sd
		lo, hi := s.Values[0], s.Values[k-1]
		out.Min, out.Max = &lo, &hi
	}
	for _, p := range Percentiles {
		row := schemas.Percentile{P: p, Few: s.N() < Floor(p)}
		if v, censored, ok := s.Percentile(p); ok && censored {
			row.Above = &v
		} else if ok {
			row.Value = &v
		}
		row.Low, row.High, row.HighAbove = s.Interval(p)
		if row.Low != nil || row.High != nil || row.HighAbove != nil {
			out.Confidence = Confidence
		}
		out.Percentiles = append(out.Percentiles, row)
	}
	if len(s.Limits) > 0 {
		out.Note = "mean, deviation and range are over the known values only; percentiles count censored samples above them"
	}
	return out
}

// Window is a span of the run's clock, [FromNs, ToNs].
type Window struct {
	FromNs, ToNs int64
}

// Seconds is its length.
func (w Window) Seconds() float64 { return float64(w.ToNs-w.FromNs) / 1e9 }

// Rate is n per second of the window; false for a window without length.
func (w Window) Rate(n float64) (float64, bool) {
	if w.ToNs <= w.FromNs {
		return 0, false
	}
	return n / w.Seconds(), true
}

// EventRate is (n-1) events over the time from the first to the last of n: the
// mean rate of a process seen only at its events. False for fewer than two, or
// for no time between them.
func EventRate(timesNs []int64) (float64, bool) {
	if len(timesNs) < 2 {
		return 0, false
	}
	first, last := timesNs[0], timesNs[0]
	for _, t := range timesNs {
		first, last = min(first, t), max(last, t)
	}
	return Window{FromNs: first, ToNs: last}.Rate(float64(len(timesNs) - 1))
}
