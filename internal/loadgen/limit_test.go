package loadgen

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"assay/internal/workload"
	"assay/schemas"
)

// counting serves answers and keeps the largest number of requests in flight.
func counting(t *testing.T, hold time.Duration) (url string, peak *atomic.Int64) {
	t.Helper()
	var now atomic.Int64
	peak = &atomic.Int64{}
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
		}
		hold := time.NewTimer(hold)
		defer hold.Stop()
		<-hold.C
		now.Add(-1) // before the answer ends, so that a slot is never counted twice
		streamOf(answerOf(3)...)(w, r)
	}), peak
}

func TestClosedLoopKeepsItsNumberInFlight(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		url, peak := counting(t, 5*time.Millisecond)
		opts := Options{BaseURL: url, Held: true, Concurrency: concurrency, Requests: schedule(24, 0)}
		recs, err := collect(t, context.Background(), opts)
		if err != nil || tally(recs)[schemas.OutcomeOK] != 24 {
			t.Fatalf("%v, %v", err, tally(recs))
		}
		if got := peak.Load(); got != int64(concurrency) {
			t.Errorf("concurrency %d: %d requests at once", concurrency, got)
		}
		slices.SortFunc(recs, func(a, b schemas.RequestRecord) int { return cmp.Compare(a.ScheduledNs, b.ScheduledNs) })
		for i, r := range recs {
			if r.Index != i || r.QueuedNs != nil || *r.DispatchedNs < r.ScheduledNs {
				t.Fatalf("record %d: %+v", i, r)
			}
			if concurrency == 1 && i > 0 && r.ScheduledNs < *recs[i-1].DoneNs {
				t.Errorf("request %d began before the one above ended", i)
			}
		}
	}
}

func TestACapOnTheOpenLoopIsQueueingToldApart(t *testing.T) {
	url, peak := counting(t, 20*time.Millisecond)
	opts := Options{BaseURL: url, Held: true, MaxInFlight: 2, Requests: schedule(8, time.Millisecond)}
	recs, err := collect(t, context.Background(), opts)
	if err != nil || peak.Load() > 2 {
		t.Fatalf("%v, %d at once", err, peak.Load())
	}
	for _, r := range recs {
		if r.ScheduledNs != int64(r.Index)*1e6 || r.QueuedNs == nil || *r.QueuedNs < r.ScheduledNs || *r.DispatchedNs < *r.QueuedNs {
			t.Fatalf("%+v", r)
		}
		// The third pair began at the earliest when two rounds of 20 ms were over.
		if wait := *r.DispatchedNs - *r.QueuedNs; r.Index >= 4 && wait < int64(30*time.Millisecond) {
			t.Errorf("request %d waited %d ns for a slot", r.Index, wait)
		}
	}
}

func TestAStoppedClosedLoopHasAllItsRecords(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	recs, err := collect(t, ctx, Options{BaseURL: url, Concurrency: 1, Requests: schedule(5, 0)})
	if err == nil || tally(recs)[schemas.OutcomeNotSent] != 4 {
		t.Errorf("%v, %v", err, tally(recs))
	}
}

func TestGivenTextsAndSharedBlocks(t *testing.T) {
	c := newClient(t, Options{BaseURL: "http://127.0.0.1:1", ContentSeed: 9})
	text := Request{ScheduledRequest: schemas.ScheduledRequest{Index: 1, Model: "m", OutputTokens: 4}, Prompt: workload.Prompt{Text: "say \"hé\""}}
	var body struct {
		Prompt any `json:"prompt"`
	}
	if err := json.Unmarshal(c.body(text), &body); err != nil || body.Prompt != "say \"hé\"" {
		t.Errorf("%v %v", body.Prompt, err)
	}
	if PromptDigest(APICompletions, 9, text) != schemas.DigestOf([]byte(text.Text)) || PromptDigest(APIChat, 9, text) != schemas.DigestOf([]byte(text.Text)) {
		t.Error("the digest is not the text's")
	}
	block := func(index, n int, ids ...int64) Request {
		r := request(index, 1)
		r.InputTokens, r.Prompt = n, workload.Prompt{Blocks: ids, BlockTokens: 4}
		return r
	}
	if PromptDigest(APICompletions, 9, block(1, 8, 7, 8)) != PromptDigest(APICompletions, 9, block(2, 8, 7, 8)) {
		t.Error("equal blocks must give equal prompts")
	}
	if PromptDigest(APICompletions, 9, block(1, 9, 7, 8)) == PromptDigest(APICompletions, 9, block(2, 9, 7, 8)) {
		t.Error("what no block covers is the request's own")
	}
}
