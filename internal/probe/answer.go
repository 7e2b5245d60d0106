package probe

import (
	"strings"

	"assay/internal/metrics"
	"assay/schemas"
)

// answer is a record as people read it: times from the send, chunks and tokens
// counted apart.
func answer(r *schemas.RequestRecord, prompt string, heard *ear) schemas.ProbeRequest {
	a := schemas.ProbeRequest{
		ID: r.ID, Index: r.Index, Model: r.Model, Prompt: prompt, Outcome: r.Outcome, Error: r.Error, HTTPStatus: r.HTTPStatus,
		ScheduledS: float64(r.ScheduledNs) / 1e9, StampSource: r.StampSource, FinishReason: r.FinishReason, OutputTokensSource: "unknown",
	}
	for _, t := range []struct {
		to **float64
		at *int64
	}{
		{&a.FirstTextMs, r.FirstVisibleNs}, {&a.ConnectedMs, r.ConnAcquiredNs}, {&a.FirstByteMs, r.FirstByteNs}, {&a.FirstOutputMs, r.FirstTokenNs},
		{&a.FinishMs, r.FinishNs}, {&a.UsageMs, r.UsageNs}, {&a.DoneMs, r.DoneNs}, {&a.TotalMs, &r.EndNs}, {&a.HeadersMs, headers(r, heard)},
	} {
		*t.to = sinceSend(r, t.at)
	}
	if lag, ok := metrics.SendLagMs(r); ok {
		a.SendLagMs = &lag
	}
	if r.FirstEventNs != nil && (r.FirstTokenNs == nil || *r.FirstEventNs < *r.FirstTokenNs) {
		a.EmptyMs = sinceSend(r, r.FirstEventNs)
	}
	for i, c := range r.Chunks {
		if c.Hidden {
			a.HiddenChunks++
			continue
		}
		a.TextChunks++
		a.LastTextMs = sinceSend(r, &r.Chunks[i].AtNs)
	}
	if told(r.OutputTokensSource) {
		a.OutputTokens, a.OutputTokensSource = r.OutputTokens, r.OutputTokensSource
	}
	if told(r.InputTokensSource) {
		a.InputTokens = r.InputTokens
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	if b := heard.texts[r.Index]; b != nil {
		a.Text, a.TextCut = strings.ToValidUTF8(heard.opts.hide(b.String()), "\uFFFD"), heard.cut[r.Index]
		if len(a.Text) > maxText {
			a.Text, a.TextCut = strings.ToValidUTF8(a.Text[:maxText], ""), true
		}
	}
	return a
}

// told says whether a count is the service's own, and not one of chunks.
func told(source string) bool { return source == "usage" || source == "token_ids" }

// headers is when the head was read, or earlier: an event that the kernel stamped
// before cannot have come before it.
func headers(r *schemas.RequestRecord, heard *ear) *int64 {
	heard.mu.Lock()
	defer heard.mu.Unlock()
	at, ok := heard.heads[r.Index]
	if !ok {
		return nil
	}
	if r.FirstEventNs != nil {
		at = min(at, *r.FirstEventNs)
	}
	return &at
}

func sinceSend(r *schemas.RequestRecord, at *int64) *float64 {
	if r.DispatchedNs == nil || at == nil {
		return nil
	}
	ms := float64(*at-*r.DispatchedNs) / 1e6
	return &ms
}
