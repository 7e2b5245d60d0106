package metrics

import (
	"errors"

	"assay/schemas"
)

// AegaeonEntry is what Aegaeon's replay writes of one request. Times are in ms.
type AegaeonEntry struct {
	TTFTMs float64
	QoS    float64
	// PerTokenMs are the time to the first token and the gaps between tokens, whose
	// sum is the time from arrival to the last token. It is empty for a request that
	// got no token, or another number than it was to get: TTFTMs is the target then.
	PerTokenMs []float64
}

// Aegaeon gives the entry of a request by that replay's own rules: only the number
// of tokens says whether it counts, not how its stream ended, and a request that
// does not count has the target as its TTFT. All tokens of an event have its time.
// A request whose tokens all arrive with it is ErrQoSUndefined: the replay would
// divide by zero.
//
// Source: Aegaeon (SOSP'25) artifact; see docs/views.md.
func Aegaeon(r *schemas.RequestRecord, slo schemas.SLO) (AegaeonEntry, error) {
	times := TokenTimesNs(r)
	if len(times) == 0 || len(times) != r.AskedOutputTokens {
		return AegaeonEntry{TTFTMs: slo.TTFTMs}, nil
	}
	qos, err := QoS(r.ScheduledNs, times, msToNs(slo.TTFTMs), msToNs(slo.TPOTMs))
	if err != nil && !errors.Is(err, ErrQoSUndefined) {
		return AegaeonEntry{}, err
	}
	e := AegaeonEntry{QoS: qos}
	before := r.ScheduledNs
	for _, t := range times {
		e.PerTokenMs = append(e.PerTokenMs, float64(t-before)*msPerNs)
		before = t
	}
	e.TTFTMs = e.PerTokenMs[0]
	return e, err
}

// NearestRank is the nearest-rank percentile of sorted values: the smallest with at
// least p per cent of them at or below it. False for none.
func NearestRank(sorted []float64, p float64) (float64, bool) {
	if len(sorted) == 0 {
		return 0, false
	}
	rank := int(p / 100 * float64(len(sorted)))
	if float64(rank) < p/100*float64(len(sorted)) {
		rank++
	}
	return sorted[min(max(rank, 1), len(sorted))-1], true
}
