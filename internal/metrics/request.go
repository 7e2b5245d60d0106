package metrics

import "assay/schemas"

const msPerNs = 1e-6

func between(from, to *int64) (float64, bool) {
	if from == nil || to == nil {
		return 0, false
	}
	return float64(*to-*from) * msPerNs, true
}

// TTFTMs is first_token - dispatched. There is none without a token; a failure
// is never 0.
func TTFTMs(r *schemas.RequestRecord) (float64, bool) {
	return between(r.DispatchedNs, r.FirstTokenNs)
}

// TTFTVisibleMs is first_visible - dispatched: the first non-empty text.
func TTFTVisibleMs(r *schemas.RequestRecord) (float64, bool) {
	return between(r.DispatchedNs, r.FirstVisibleNs)
}

// TTFTFromScheduleMs is first_token - scheduled: what a user who arrived on time
// waited, however late the client was.
func TTFTFromScheduleMs(r *schemas.RequestRecord) (float64, bool) {
	return between(&r.ScheduledNs, r.FirstTokenNs)
}

// E2EMs is done - dispatched, for a request that ended properly (outcome ok).
func E2EMs(r *schemas.RequestRecord) (float64, bool) {
	if r.Outcome != schemas.OutcomeOK {
		return 0, false
	}
	return between(r.DispatchedNs, r.DoneNs)
}

// E2EFromScheduleMs is done - scheduled, for a request that ended properly.
func E2EFromScheduleMs(r *schemas.RequestRecord) (float64, bool) {
	if r.Outcome != schemas.OutcomeOK {
		return 0, false
	}
	return between(&r.ScheduledNs, r.DoneNs)
}

// SendLagMs is dispatched - scheduled: how late the client was.
func SendLagMs(r *schemas.RequestRecord) (float64, bool) {
	return between(&r.ScheduledNs, r.DispatchedNs)
}

// QueueMs is dispatched - queued: what a cap on requests in flight made a request
// that was due wait. It is part of the send lag. There is none without a cap.
func QueueMs(r *schemas.RequestRecord) (float64, bool) {
	return between(r.QueuedNs, r.DispatchedNs)
}

// AtOneTime says that all token events of a request have one time: they came in one
// receive, or in one event. When each came, within it, is not known, and a pace of 0
// would be a claim about the service that nothing supports.
func AtOneTime(r *schemas.RequestRecord) bool {
	return len(r.Chunks) > 0 && r.Chunks[0].AtNs == r.Chunks[len(r.Chunks)-1].AtNs
}

// Paceless says whether a request that ended properly has no TPOT although it has
// several tokens: they came at one time.
func Paceless(r *schemas.RequestRecord) bool {
	return r.Outcome == schemas.OutcomeOK && AtOneTime(r) && TokensPerChunk(r).Total > 1
}

// TPOTMs is (last_token - first_token) / (n - n1), with n output tokens and n1
// tokens in the first token event. It is undefined if n = n1, and if all token
// events have one time.
func TPOTMs(r *schemas.RequestRecord) (float64, bool) {
	tokens := TokensPerChunk(r)
	span, ok := between(r.FirstTokenNs, r.LastTokenNs)
	if !ok || AtOneTime(r) || len(tokens.Counts) == 0 || tokens.Total <= tokens.Counts[0] {
		return 0, false
	}
	return span / float64(tokens.Total-tokens.Counts[0]), true
}

// ITLChunkMs are the gaps between token events. There is none if all of them have
// one time. Where only some share one, the gaps between those are 0 and the gap
// before them is whole, so that their sum is right.
func ITLChunkMs(r *schemas.RequestRecord) []float64 {
	if AtOneTime(r) {
		return nil
	}
	return chunkGapsMs(r)
}

// chunkGapsMs are the differences of the stamps, whatever they tell.
func chunkGapsMs(r *schemas.RequestRecord) []float64 {
	if len(r.Chunks) < 2 {
		return nil
	}
	out := make([]float64, 0, len(r.Chunks)-1)
	for i := 1; i < len(r.Chunks); i++ {
		out = append(out, float64(r.Chunks[i].AtNs-r.Chunks[i-1].AtNs)*msPerNs)
	}
	return out
}

// ITLTokenMs are the chunk gaps divided by the tokens of the later chunk,
// repeated that often. It exists only where the service told every count, the
// counts agree with the total, and not all token events have one time.
func ITLTokenMs(r *schemas.RequestRecord) ([]float64, bool) {
	tokens := TokensPerChunk(r)
	if tokens.Source != TokensTold || tokens.Disagree || AtOneTime(r) {
		return nil, false
	}
	var out []float64
	for i, gap := range ITLChunkMs(r) {
		for n := tokens.Counts[i+1]; n > 0; n-- {
			out = append(out, gap/float64(tokens.Counts[i+1]))
		}
	}
	return out, true
}

// MaxGapMs is the largest gap between token events: stalls that means hide.
// There is none with fewer than two events, or where all of them have one time.
func MaxGapMs(r *schemas.RequestRecord) (float64, bool) {
	gaps := ITLChunkMs(r)
	if len(gaps) == 0 {
		return 0, false
	}
	largest := gaps[0]
	for _, g := range gaps[1:] {
		largest = max(largest, g)
	}
	return largest, true
}

// SLOMet says whether a request ended properly with ttft <= T and tpot <= P, both
// inclusive. The TTFT is the run's headline: from the schedule in open loop, from
// the send otherwise. Without a defined TPOT (tokens at one time) TTFT alone decides: whoever
// reads them has waited for nothing else.
func SLOMet(r *schemas.RequestRecord, slo schemas.SLO, openLoop bool) bool {
	if r.Outcome != schemas.OutcomeOK {
		return false
	}
	ttft, ok := TTFTMs(r)
	if openLoop {
		ttft, ok = TTFTFromScheduleMs(r)
	}
	if !ok || ttft > slo.TTFTMs {
		return false
	}
	tpot, ok := TPOTMs(r)
	return !ok || tpot <= slo.TPOTMs
}
