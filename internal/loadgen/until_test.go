package loadgen

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"assay/schemas"
)

// A closed loop of a stated time: every request that was begun has a record, what
// was only prepared has none, and what was in flight at the end is waited for or cut.
func TestClosedLoopUntil(t *testing.T) {
	for _, cut := range []bool{false, true} {
		want := schemas.AtEndDrained
		if cut {
			want = schemas.AtEndCut
		}
		for until := 300 * time.Millisecond; ; until *= 2 {
			atEnd := loopUntil(t, until, cut)
			if atEnd[""] < 3 && until < 10*time.Second {
				continue // the machine was too busy to answer three requests before the end
			}
			// Three slots: 3 done, 3 in flight.
			if atEnd[want] != 3 || atEnd[""] != 3 || len(atEnd) != 2 {
				t.Errorf("cut %t: %v", cut, atEnd)
			}
			break
		}
	}
}

// loopUntil runs a loop of three slots against a service that answers three requests
// at once, and others only after the end. It returns how many records say what of the
// end.
func loopUntil(t *testing.T, until time.Duration, cut bool) map[string]int {
	var asked atomic.Int64
	over := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if asked.Add(1) > 3 {
			select {
			case <-over:
			case <-r.Context().Done():
				return
			}
		}
		streamOf(`{"choices":[{"index":0,"text":"a"}]}`, lastEvent, doneEvent)(w, r)
	})
	anchor := time.Now().Add(50 * time.Millisecond)
	time.AfterFunc(time.Until(anchor)+until+200*time.Millisecond, func() { close(over) })
	opts := Options{BaseURL: url, Anchor: anchor, Concurrency: 3, Until: until, CutAtEnd: cut, Requests: schedule(200, 0)}
	var recs []schemas.RequestRecord
	if err := Run(context.Background(), opts, func(r schemas.RequestRecord) error { recs = append(recs, r); return nil }); err != nil {
		t.Fatal(err)
	}
	atEnd := map[string]int{}
	indexes := map[int]bool{}
	for _, r := range recs {
		proper(t, r)
		atEnd[r.AtEnd]++
		indexes[r.Index] = true
		if r.ScheduledNs >= int64(until) {
			t.Errorf("request %d was begun at %d, after the end", r.Index, r.ScheduledNs)
		}
		switch {
		case r.AtEnd == "" && (r.Outcome != schemas.OutcomeOK || r.EndNs > int64(until)),
			r.AtEnd == schemas.AtEndDrained && r.Outcome != schemas.OutcomeOK,
			r.AtEnd == schemas.AtEndCut && (r.Outcome != schemas.OutcomeCancelled || !strings.Contains(r.Error, "end of the measuring time")):
			t.Errorf("cut %t: %q with %s (%s), ended at %d", cut, r.AtEnd, r.Outcome, r.Error, r.EndNs)
		}
	}
	for i := range recs {
		if !indexes[i] {
			t.Errorf("request %d was passed over", i)
		}
	}
	return atEnd
}

// However the end falls among the starts, none is scheduled after it.
func TestNothingBeginsAfterTheEnd(t *testing.T) {
	url := serve(t, streamOf(`{"choices":[{"index":0,"text":"a"}]}`, lastEvent, doneEvent))
	requests := schedule(5000, 0)
	for i := range 60 {
		until := 3*time.Millisecond + time.Duration(i)*10*time.Microsecond
		var recs []schemas.RequestRecord
		opts := Options{BaseURL: url, Concurrency: 8, Until: until, Requests: requests}
		if err := Run(context.Background(), opts, func(r schemas.RequestRecord) error { recs = append(recs, r); return nil }); err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			if r.ScheduledNs >= int64(until) {
				t.Fatalf("request %d of %d is scheduled at %d, the end was at %d", r.Index, len(recs), r.ScheduledNs, until)
			}
		}
	}
}

// A list that is shorter than its time ends by itself.
func TestUntilWithFewRequests(t *testing.T) {
	url := serve(t, streamOf(`{"choices":[{"index":0,"text":"a"}]}`, lastEvent, doneEvent))
	begun := time.Now()
	recs, err := collect(t, context.Background(), Options{BaseURL: url, Concurrency: 2, Until: time.Hour, Requests: schedule(4, 0)})
	if err != nil || tally(recs)[schemas.OutcomeOK] != 4 || time.Since(begun) > time.Minute {
		t.Errorf("%v after %s, %v", tally(recs), time.Since(begun), err)
	}
}

func TestTapHearsAnswers(t *testing.T) {
	url := serve(t, streamOf(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"index":0,"delta":{"content":"häl"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}`, doneEvent))
	var mu sync.Mutex
	texts, heads := map[int]string{}, map[int]int64{}
	tap := &Tap{
		Headers: func(i int, at int64) { mu.Lock(); defer mu.Unlock(); heads[i] = at },
		Text:    func(i int, b []byte) { mu.Lock(); defer mu.Unlock(); texts[i] += string(b) },
	}
	recs, err := collect(t, context.Background(), Options{BaseURL: url, API: APIChat, Tap: tap, Requests: schedule(2, time.Millisecond)})
	if err != nil || texts[0] != "hällo" || texts[1] != "hällo" {
		t.Errorf("%v, %v", texts, err)
	}
	for _, r := range recs {
		if heads[r.Index] < *r.DispatchedNs {
			t.Errorf("head of %d at %d, sent %d, ended %d", r.Index, heads[r.Index], *r.DispatchedNs, r.EndNs)
		}
	}
}
