package metrics

import "assay/schemas"

// Peer is how another tool defines what it reports of one request. The names are
// its own; times are in ms. Where it counts tokens by a tokenizer of its own, the
// service's count stands here.
type Peer struct {
	Name string
	// Success says whether the tool counts the request as completed.
	Success func(*schemas.RequestRecord) bool
	// TTFT, TPOT and E2E are false where the tool has no sample.
	TTFT, TPOT, E2E func(*schemas.RequestRecord) (float64, bool)
	// ITL are its inter-token samples, one a request or many.
	ITL func(*schemas.RequestRecord) []float64
	// Tokens it credits the request with.
	Tokens func(*schemas.RequestRecord) int
}

// Peers lists the tools whose definitions are known, by name.
// Sources: each tool's own client, as read in 2026; see docs/views.md.
func Peers() []Peer {
	return []Peer{
		{Name: "vllm", Success: vllmSuccess, TTFT: vllmTTFT, TPOT: vllmTPOT, E2E: VLLME2EMs, ITL: VLLMITLMs, Tokens: toldTokens},
		{Name: "sglang", Success: vllmSuccess, TTFT: TTFTVisibleMs, TPOT: sglangTPOT, E2E: lastChunkMs, ITL: chunkGapsMs, Tokens: sglangTokens},
		{Name: "aiperf", Success: isOK, TTFT: TTFTMs, TPOT: aiperfITL, E2E: lastResponseMs, ITL: single(aiperfITL), Tokens: toldTokens},
		{Name: "guidellm", Success: isOK, TTFT: TTFTMs, TPOT: guidellmTPOT, E2E: E2EMs, ITL: single(guidellmITL), Tokens: toldTokens},
	}
}

func isOK(r *schemas.RequestRecord) bool { return r.Outcome == schemas.OutcomeOK }

// toldTokens is the service's count, else one for each event.
func toldTokens(r *schemas.RequestRecord) int {
	if r.OutputTokens != nil {
		return *r.OutputTokens
	}
	return len(r.Chunks)
}

// sglangTokens credits the requested length where the service tells no count.
func sglangTokens(r *schemas.RequestRecord) int {
	if r.OutputTokens != nil && r.OutputTokensSource == "usage" {
		return *r.OutputTokens
	}
	return r.AskedOutputTokens
}

// vllmSuccess: any event with choices arrived and the connection ended by itself,
// whatever the stream said: an error event or a missing end does not count.
func vllmSuccess(r *schemas.RequestRecord) bool {
	switch r.Outcome {
	case schemas.OutcomeOK, schemas.OutcomeTruncated, schemas.OutcomeSSEError, schemas.OutcomeEngineError, schemas.OutcomeLengthMismatch, schemas.OutcomeNoToken:
		return len(vllmEvents(r)) > 0
	}
	return false
}

// vllmEvents are the arrivals of events with a choice in them: the first one even
// if it only names a role, those with output, and one that only tells the finish.
func vllmEvents(r *schemas.RequestRecord) []int64 {
	var out []int64
	if r.FirstEventNs != nil && (len(r.Chunks) > 0 || r.FinishNs != nil) && (len(r.Chunks) == 0 || *r.FirstEventNs < r.Chunks[0].AtNs) {
		out = append(out, *r.FirstEventNs)
	}
	for _, c := range r.Chunks {
		out = append(out, c.AtNs)
	}
	if r.FinishNs != nil && len(out) > 0 && *r.FinishNs > out[len(out)-1] {
		out = append(out, *r.FinishNs)
	}
	return out
}

func vllmTTFT(r *schemas.RequestRecord) (float64, bool) {
	at := vllmEvents(r)
	if len(at) == 0 {
		return 0, false
	}
	return between(r.DispatchedNs, &at[0])
}

// VLLME2EMs ends at the last event with a choice.
func VLLME2EMs(r *schemas.RequestRecord) (float64, bool) {
	at := vllmEvents(r)
	if len(at) == 0 {
		return 0, false
	}
	return between(r.DispatchedNs, &at[len(at)-1])
}

// VLLMITLMs are all gaps between events with a choice, pooled over requests.
func VLLMITLMs(r *schemas.RequestRecord) []float64 {
	at := vllmEvents(r)
	var out []float64
	for i := 1; i < len(at); i++ {
		out = append(out, float64(at[i]-at[i-1])*msPerNs)
	}
	return out
}

// vllmTPOT is (E2E - TTFT) / (n - 1), left out for a single token.
func vllmTPOT(r *schemas.RequestRecord) (float64, bool) {
	return perLater(r, vllmTTFT, VLLME2EMs, toldTokens(r))
}

func sglangTPOT(r *schemas.RequestRecord) (float64, bool) {
	return perLater(r, TTFTVisibleMs, lastChunkMs, sglangTokens(r))
}

func aiperfITL(r *schemas.RequestRecord) (float64, bool) {
	return perLater(r, TTFTMs, lastResponseMs, toldTokens(r))
}

// guidellmITL is (last - first) / (n - 1), one mean a request.
func guidellmITL(r *schemas.RequestRecord) (float64, bool) {
	return perLater(r, TTFTMs, lastChunkMs, toldTokens(r))
}

// guidellmTPOT is (last - sent) / n: it includes TTFT.
func guidellmTPOT(r *schemas.RequestRecord) (float64, bool) {
	v, ok := lastChunkMs(r)
	if n := toldTokens(r); ok && n > 0 {
		return v / float64(n), true
	}
	return 0, false
}

type latencyOf func(*schemas.RequestRecord) (float64, bool)

func perLater(r *schemas.RequestRecord, ttft, e2e latencyOf, n int) (float64, bool) {
	first, ok := ttft(r)
	whole, ok2 := e2e(r)
	if !ok || !ok2 || n < 2 {
		return 0, false
	}
	return (whole - first) / float64(n-1), true
}

func single(of latencyOf) func(*schemas.RequestRecord) []float64 {
	return func(r *schemas.RequestRecord) []float64 {
		if v, ok := of(r); ok {
			return []float64{v}
		}
		return nil
	}
}

func lastChunkMs(r *schemas.RequestRecord) (float64, bool) {
	return between(r.DispatchedNs, r.LastTokenNs)
}

// lastResponseMs ends at the last event that is not [DONE], usage included.
func lastResponseMs(r *schemas.RequestRecord) (float64, bool) {
	last := r.LastTokenNs
	for _, at := range []*int64{r.FinishNs, r.UsageNs} {
		if at != nil && (last == nil || *at > *last) {
			last = at
		}
	}
	return between(r.DispatchedNs, last)
}
