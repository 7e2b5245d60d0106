package metrics

import (
	"errors"
	"fmt"

	"assay/schemas"
)

// ErrQoSUndefined is returned when the last token arrives at the arrival time
// itself: there is no time to take a share of.
var ErrQoSUndefined = errors.New("qos: the last token arrives at the arrival time: undefined")

// QoS is Aegaeon's cumulative-time ratio, in [0, 1] (no unit). Arrival a, token
// times t_1..t_n and the targets T (first token) and P (each further one) are in
// nanoseconds. Token i is due d_i = T + (i-1)P after the start s of its segment,
// s = a at first. A late token credits d_{i-1} if the token before it was on time
// in this segment, else nothing, and starts a new segment at its own time; the
// index i goes on. At the end min(d_{n+1}, t_n - s) is credited. The result is
// the credits divided by t_n - a. No tokens give 0. Times that decrease or precede
// the arrival, and negative targets, are errors; t_n = a is ErrQoSUndefined.
//
// Source: Aegaeon (SOSP'25) artifact; example: a = 0, tokens 3, 6, 7, 8, T = 3,
// P = 2 gives 5/8.
func QoS(arrival int64, tokens []int64, ttft, tpot int64) (float64, error) {
	n := len(tokens)
	if n == 0 {
		return 0, nil
	}
	if ttft < 0 || tpot < 0 {
		return 0, fmt.Errorf("qos: targets %d and %d ns are negative", ttft, tpot)
	}
	due := func(i int) float64 { return float64(ttft) + float64(i-1)*float64(tpot) }
	start, segment, credit, before := arrival, 0, 0.0, arrival
	for i := 1; i <= n; i++ {
		t := tokens[i-1]
		if t < before {
			return 0, fmt.Errorf("qos: token %d at %d ns is before %d ns: times must not decrease", i, t, before)
		}
		before = t
		if float64(t-start) <= due(i) {
			continue
		}
		if i-1 > segment {
			credit += due(i - 1)
		}
		start, segment = t, i
	}
	last := tokens[n-1]
	if last == arrival {
		return 0, ErrQoSUndefined
	}
	credit += min(due(n+1), float64(last-start))
	return credit / float64(last-arrival), nil
}

// RequestQoS applies QoS to a record, from its scheduled time. It is 0 for a
// request that did not end properly, and for one that was held to a length and
// has another.
func RequestQoS(r *schemas.RequestRecord, slo schemas.SLO) (float64, error) {
	if r.Outcome != schemas.OutcomeOK {
		return 0, nil
	}
	times := TokenTimesNs(r)
	if r.Held && len(times) != r.AskedOutputTokens {
		return 0, nil
	}
	return QoS(r.ScheduledNs, times, msToNs(slo.TTFTMs), msToNs(slo.TPOTMs))
}

// TokensOnTime counts the tokens that arrived by their deadline a + T + (i-1)P,
// never reset, and the tokens that were due: those that arrived, or those asked
// for where the service was held to a length or failed.
func TokensOnTime(r *schemas.RequestRecord, slo schemas.SLO) (onTime, due int) {
	times := TokenTimesNs(r)
	ttft, tpot := float64(msToNs(slo.TTFTMs)), float64(msToNs(slo.TPOTMs))
	for i, t := range times {
		if float64(t-r.ScheduledNs) <= ttft+float64(i)*tpot {
			onTime++
		}
	}
	due = len(times)
	if r.Held || r.Outcome != schemas.OutcomeOK {
		due = max(due, r.AskedOutputTokens)
	}
	return onTime, due
}

// msToNs turns a target back into whole nanoseconds.
func msToNs(ms float64) int64 {
	if ms < 0 {
		return -1
	}
	return int64(min(ms*1e6+0.5, 1<<62))
}
