package report

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"assay/internal/metrics"
	"assay/schemas"
)

// Of the drift test: the time from the first request to the last send is cut into
// this many slices, of which at most half may be warm-up. A series drifts when its
// trend is further from none than by chance once in twenty.
const (
	courseSlices   = 20
	courseRequests = 100 // fewer cannot fill the slices
	driftLimit     = 1.96
)

// Where a steady window comes from.
const (
	WindowDetected = "detected"
	WindowDeclared = "declared"
)

// Course is how a run went over time, from a first look at its records.
type Course struct {
	Full   metrics.Window // first scheduled to last end
	Steady metrics.Window
	Source string // WindowDetected or WindowDeclared
	// Unknown says why there is no steady window; Drifts that the drift test does.
	Unknown string
	Drifts  bool
	// MeanInFlight is over the full window; PeakInFlight the most at any time.
	MeanInFlight float64
	PeakInFlight int
	// FirstAnswerNs is when the first token of all arrived; nil when none did.
	FirstAnswerNs *int64
}

// LookOptions declare the windows: with either above 0 the steady window is the
// full one without WarmupNs at its beginning and DrainNs at its end.
type LookOptions struct {
	WarmupNs, DrainNs int64
}

// Look reads the records once for what a fold has to know before it begins.
func Look(records iter.Seq2[schemas.RequestRecord, error], opts LookOptions) (Course, error) {
	c := Course{Source: WindowDetected}
	var seen []visit
	for r, err := range records {
		if err == nil {
			err = checkRecord(&r)
		}
		if err != nil {
			return Course{}, fmt.Errorf("look at the records: %w", err)
		}
		seen = append(seen, visitOf(&r))
		if at := r.FirstTokenNs; at != nil && (c.FirstAnswerNs == nil || *at < *c.FirstAnswerNs) {
			c.FirstAnswerNs = at
		}
	}
	if len(seen) == 0 {
		c.Unknown = "no request was issued"
		return c, nil
	}
	c.Full = metrics.Window{FromNs: seen[0].scheduled, ToNs: seen[0].end}
	for _, v := range seen {
		c.Full.FromNs, c.Full.ToNs = min(c.Full.FromNs, v.scheduled), max(c.Full.ToNs, v.end)
	}
	c.MeanInFlight, c.PeakInFlight = inFlight(seen, c.Full)
	if opts.WarmupNs > 0 || opts.DrainNs > 0 {
		c.Source = WindowDeclared
		c.Steady = metrics.Window{FromNs: c.Full.FromNs + opts.WarmupNs, ToNs: c.Full.ToNs - opts.DrainNs}
		if c.Steady.ToNs <= c.Steady.FromNs {
			c.Unknown = fmt.Sprintf("warmup and drain leave nothing of a run of %.3f s", c.Full.Seconds())
		}
		return c, nil
	}
	c.detect(seen)
	return c, nil
}

// visit is what the drift test needs of a request.
type visit struct {
	scheduled, end int64
	dispatched     int64
	sent           bool
	ttft           float64 // NaN without a token
}

func visitOf(r *schemas.RequestRecord) visit {
	v := visit{scheduled: r.ScheduledNs, end: max(r.EndNs, r.ScheduledNs), ttft: math.NaN()}
	if r.DispatchedNs != nil {
		v.dispatched, v.sent = *r.DispatchedNs, true
	}
	if t, ok := metrics.TTFTMs(r); ok {
		v.ttft = t
	}
	return v
}

// inFlight integrates the requests in flight over a window, event by event.
func inFlight(seen []visit, w metrics.Window) (mean float64, peak int) {
	type event struct {
		at    int64
		delta int
	}
	var events []event
	for _, v := range seen {
		if !v.sent {
			continue
		}
		from, to := max(v.dispatched, w.FromNs), min(v.end, w.ToNs)
		if from < to {
			events = append(events, event{from, 1}, event{to, -1})
		}
	}
	// At one time ends come first: a slot that is taken again is not two.
	slices.SortFunc(events, func(a, b event) int {
		if a.at != b.at {
			return int(min(max(a.at-b.at, -1), 1))
		}
		return a.delta - b.delta
	})
	now, area, last := 0, 0.0, w.FromNs
	for _, e := range events {
		area += float64(now) * float64(e.at-last)
		now, last = now+e.delta, e.at
		peak = max(peak, now)
	}
	if w.ToNs <= w.FromNs {
		return 0, peak
	}
	return area / float64(w.ToNs-w.FromNs), peak
}

// detect looks for the longest stretch up to the last send in which neither the
// requests in flight nor TTFT have a trend, and that begins like it goes on. After
// the last send comes the drain.
func (c *Course) detect(seen []visit) {
	to := c.Full.FromNs
	sent := 0
	for _, v := range seen {
		if v.sent {
			to = max(to, v.dispatched)
			sent++
		}
	}
	if sent < courseRequests {
		c.Unknown = fmt.Sprintf("%d requests are too few to tell, it takes %d", sent, courseRequests)
		return
	}
	if to <= c.Full.FromNs {
		c.Unknown = "all requests were sent at one time"
		return
	}
	edge := func(i int) int64 { return c.Full.FromNs + (to-c.Full.FromNs)/courseSlices*int64(i) }
	var flight, ttft []float64
	for i := range courseSlices {
		end := edge(i + 1)
		if i == courseSlices-1 {
			end = to
		}
		w := metrics.Window{FromNs: edge(i), ToNs: end}
		mean, _ := inFlight(seen, w)
		flight = append(flight, mean)
		ttft = append(ttft, meanTTFT(seen, w))
	}
	first := -1
	for cut := 0; cut <= courseSlices/2; cut++ {
		known := slices.DeleteFunc(slices.Clone(ttft[cut:]), math.IsNaN)
		if math.Abs(metrics.Trend(flight[cut:])) > driftLimit || math.Abs(metrics.Trend(known)) > driftLimit {
			continue
		}
		if first < 0 {
			first = cut
		}
		// A few slices out of line hardly make a trend: the window begins with one
		// that is like those of the second half.
		if alike(flight, cut) && alike(ttft, cut) {
			first = cut
			break
		}
	}
	if first >= 0 {
		c.Steady = metrics.Window{FromNs: edge(first), ToNs: to}
		return
	}
	c.Unknown, c.Drifts = "requests in flight or TTFT drift until the last send", true
}

// alike reports whether slice k lies within the range of the second half.
func alike(xs []float64, k int) bool {
	half := slices.DeleteFunc(slices.Clone(xs[len(xs)/2:]), math.IsNaN)
	return len(half) == 0 || math.IsNaN(xs[k]) || (xs[k] >= slices.Min(half) && xs[k] <= slices.Max(half))
}

// meanTTFT is over the requests sent in a window; NaN for none.
func meanTTFT(seen []visit, w metrics.Window) float64 {
	var xs []float64
	for _, v := range seen {
		if v.sent && v.dispatched >= w.FromNs && v.dispatched < w.ToNs && !math.IsNaN(v.ttft) {
			xs = append(xs, v.ttft)
		}
	}
	mean, ok := metrics.Mean(xs)
	if !ok {
		return math.NaN()
	}
	return mean
}
