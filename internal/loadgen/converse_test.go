package loadgen

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/internal/workload"
	"assay/schemas"
)

// talk is a conversation of turns that say "<name> 0", "<name> 1", ...
func talk(name string, first, turns int, at, think time.Duration) []Request {
	var out []Request
	var history []workload.Message
	for k := range turns {
		r := request(first+k, 3)
		r.Text = fmt.Sprintf("%s %d", name, k)
		r.Conversation, r.Turn, r.AtNs, r.History = name, k, int64(at), slices.Clone(history)
		if k > 0 {
			r.ThinkNs = int64(think)
		}
		history = append(history, workload.Message{Role: "user", Text: r.Text}, workload.Message{Role: "assistant", Text: "answer to " + r.Text})
		out = append(out, r)
	}
	return out
}

// talker keeps the messages it was sent, and the most conversations that it was in
// at once, from a conversation's first turn to the answer to its last.
type talker struct {
	mu   sync.Mutex
	said []string
	fail string // the turn that is refused
}

func (s *talker) handle(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var words []string
	for _, m := range body.Messages {
		words = append(words, m.Role+": "+m.Content)
	}
	s.mu.Lock()
	s.said = append(s.said, strings.Join(words, " | "))
	s.mu.Unlock()
	if s.fail != "" && strings.HasSuffix(words[len(words)-1], s.fail) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	time.Sleep(10 * time.Millisecond)
	streamOf(`{"choices":[{"index":0,"delta":{"content":"a"}}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, doneEvent)(w, r)
}

func TestConversationsTakeTurns(t *testing.T) {
	for _, user := range []bool{false, true} {
		s := &talker{}
		const think = 40 * time.Millisecond
		opts := Options{BaseURL: serve(t, s.handle), API: APIChat, Concurrency: 2, UserStamps: user}
		for i := range 4 {
			opts.Requests = append(opts.Requests, talk(fmt.Sprintf("c%d", i), 3*i, 3, 0, think)...)
		}
		recs, err := collect(t, context.Background(), opts)
		if err != nil || tally(recs)[schemas.OutcomeOK] != 12 {
			t.Fatalf("%v, %v", err, tally(recs))
		}
		slices.SortFunc(recs, func(a, b schemas.RequestRecord) int { return a.Index - b.Index })
		type span struct{ from, to int64 }
		var whole []span
		for i, r := range recs {
			if r.Turn != i%3 || r.Conversation != fmt.Sprintf("c%d", i/3) {
				t.Errorf("record %d: %q, turn %d", i, r.Conversation, r.Turn)
			}
			if r.Turn == 0 {
				whole = append(whole, span{*r.DispatchedNs, recs[i+2].EndNs})
				continue
			}
			if due := recs[i-1].EndNs + int64(think); r.ScheduledNs != due || *r.DispatchedNs < due {
				t.Errorf("%s turn %d: due %d, scheduled %d, sent %d", r.Conversation, r.Turn, due, r.ScheduledNs, *r.DispatchedNs)
			}
		}
		for _, a := range whole {
			at := 0
			for _, b := range whole {
				if b.from <= a.from && a.from < b.to {
					at++
				}
			}
			if at > 2 {
				t.Errorf("%d conversations at once", at)
			}
		}
		want := "user: c1 0 | assistant: answer to c1 0 | user: c1 1 | assistant: answer to c1 1 | user: c1 2"
		s.mu.Lock()
		if !slices.Contains(s.said, want) || !slices.Contains(s.said, "user: c3 0") {
			t.Errorf("what was sent: %q", s.said)
		}
		s.mu.Unlock()
		// The digest is of what was sent.
		last := opts.Requests[5]
		if PromptDigest(APIChat, 0, last) != schemas.DigestOf([]byte(`[{"role":"user","content":"c1 0"},{"role":"assistant","content":"answer to c1 0"},{"role":"user","content":"c1 1"},{"role":"assistant","content":"answer to c1 1"},{"role":"user","content":"c1 2"}]`)) {
			t.Error("the digest of a prompt with history")
		}
	}
}

// In open loop conversations begin at their times, and a turn that was not answered
// ends its own.
func TestAFailedTurnEndsItsConversation(t *testing.T) {
	s := &talker{fail: "b 1"}
	opts := Options{BaseURL: serve(t, s.handle), API: APIChat}
	opts.Requests = append(talk("a", 0, 2, 0, 0), talk("b", 2, 4, 20*time.Millisecond, 0)...)
	recs, err := collect(t, context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]schemas.Outcome{}
	for _, r := range recs {
		got[r.Index] = r.Outcome
		if r.Index == 2 && r.ScheduledNs != 20e6 {
			t.Errorf("b began at %d", r.ScheduledNs)
		}
		if r.Outcome == schemas.OutcomeNotSent && !strings.Contains(r.Error, "turn before") {
			t.Errorf("%+v", r)
		}
	}
	for i, want := range []schemas.Outcome{"ok", "ok", "ok", schemas.OutcomeHTTP5xx, schemas.OutcomeNotSent, schemas.OutcomeNotSent} {
		if got[i] != want {
			t.Errorf("request %d: %s, want %s", i, got[i], want)
		}
	}
}

// Whoever is thinking when a run is stopped is accounted for.
func TestStoppedWhileThinking(t *testing.T) {
	s := &talker{}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(300*time.Millisecond, cancel)
	opts := Options{BaseURL: serve(t, s.handle), API: APIChat, Concurrency: 1}
	opts.Requests = append(talk("a", 0, 3, 0, time.Hour), talk("b", 3, 2, 0, 0)...)
	recs, err := collect(t, ctx, opts)
	if counts := tally(recs); err == nil || counts[schemas.OutcomeOK] != 1 || counts[schemas.OutcomeNotSent] != 4 {
		t.Errorf("%v, %v", tally(recs), err)
	}
	// Where time ends the loop, turns that were never due have no record.
	opts.Until = 300 * time.Millisecond
	n := 0
	if err := Run(context.Background(), opts, func(schemas.RequestRecord) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}
