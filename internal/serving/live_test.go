package serving

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// stepped runs a workload an event at a time, with every token told of as it is
// made, and cancels some requests.
func stepped(t rapid.TB, in Input, cfg Config, cancel map[int]int64) (told [][]int64, ends []Outcome, s *System) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	told, ends = make([][]int64, len(in.Requests)), make([]Outcome, len(in.Requests))
	under := map[int]*request{}
	s.each = func(r Request, timesMs ...int64) {
		for _, ms := range timesMs {
			if ms != s.nowMs {
				t.Errorf("a token of %d ms is told of at %d ms", ms, s.nowMs)
			}
		}
		told[r.Index] = append(told[r.Index], timesMs...)
	}
	s.sink = func(o Outcome) error {
		o.TokensMs = slices.Clone(o.TokensMs)
		ends[o.Index] = o
		return nil
	}
	s.Observe(func(Event) { checkOwners(t, s) })
	arrivals := in.Requests
	for {
		at, ok := s.nextMs()
		if len(arrivals) > 0 && (!ok || arrivals[0].AtMs <= at) {
			if under[arrivals[0].Index], err = s.arrive(arrivals[0]); err != nil {
				t.Fatal(err)
			}
			arrivals = arrivals[1:]
			continue
		}
		if !ok {
			return told, ends, s
		}
		s.fire()
		for i, when := range cancel {
			if r := under[i]; r != nil && when <= s.nowMs {
				s.cancel(r)
				delete(cancel, i)
			}
		}
	}
}

// TestStepsAreASimulation: a system whose tokens are told of one by one gives every
// token at the time of a simulation, in which whole runs of steps are kept back.
func TestStepsAreASimulation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in, cfg := point(rt)
		if cfg.Policy == PolicyAegaeon {
			cfg.WorkStealing = rapid.Bool().Draw(rt, "stealing")
		}
		cfg = h100(t, in, cfg)
		cfg.Device.MemoryGB = rapid.Float64Range(27, 60).Draw(rt, "memory")
		want, _ := simulate(t, in, cfg)
		told, ends, _ := stepped(rt, in, cfg, nil)
		for i, o := range want {
			if o.Finished != ends[i].Finished || o.Why != ends[i].Why || (o.Finished && !slices.Equal(told[i], o.TokensMs)) {
				rt.Fatalf("request %d: told of %v (%q), a simulation gives %v (%q)", i, told[i], ends[i].Why, o.TokensMs, o.Why)
			}
		}
	})
}

// TestCancelled: whatever is cancelled whenever, every other request finishes or
// fails as ever, nothing is left behind, and no token is made for one that has gone.
func TestCancelled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in, cfg := point(rt)
		if cfg.Policy == PolicyAegaeon {
			cfg.WorkStealing = rapid.Bool().Draw(rt, "stealing")
		}
		cfg = h100(t, in, cfg)
		cancel := map[int]int64{}
		for _, r := range in.Requests {
			if rapid.Bool().Draw(rt, "cancel") {
				cancel[r.Index] = r.AtMs + int64(rapid.IntRange(0, 6000).Draw(rt, "after"))
			}
		}
		told, ends, s := stepped(rt, in, cfg, cancel)
		var tokens int64
		for i, o := range ends {
			if o.Finished && len(told[i]) != in.Requests[i].OutputTokens {
				rt.Errorf("request %d finished with %d tokens of %d", i, len(told[i]), in.Requests[i].OutputTokens)
			}
			if o.Why == FailedCancelled && len(told[i]) > 0 && told[i][len(told[i])-1] > o.EndMs {
				rt.Errorf("request %d was cancelled at %d ms and has a token at %d ms", i, o.EndMs, told[i][len(told[i])-1])
			}
			if !o.Finished && o.Why == "" {
				rt.Errorf("request %d never ended", i)
			}
			tokens += int64(max(0, len(told[i])-1))
		}
		c := s.Cluster()
		if c.Routing.Total != 0 {
			rt.Errorf("%d requests are outstanding at the end", c.Routing.Total)
		}
		var decoded int64
		for _, l := range c.Decode {
			decoded += l.OutputTokens
			if l.Requests+l.KVTokens != 0 {
				rt.Errorf("work is left at the end: %+v", l)
			}
		}
		if cfg.Policy == PolicyAegaeon && decoded != tokens {
			rt.Errorf("workers count %d tokens, requests got %d", decoded, tokens)
		}
		if s.stats.LargestKVPercent > 100 {
			rt.Errorf("a step held %d %% of the KV that fits", s.stats.LargestKVPercent)
		}
	})
}

func liveOf(t *testing.T, cfg Config, scale float64) *Live {
	t.Helper()
	l, err := NewLive(cfg, scale)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return l
}

// TestLive: requests that come while it runs get the times that a simulation of the
// same arrivals gives.
func TestLive(t *testing.T) {
	in := Input{Models: []Alias{{"a", "qwen2.5-7b"}, {"b", "yi-9b"}}}
	for i := range 12 {
		in.IDs = append(in.IDs, "")
		in.Requests = append(in.Requests, Request{Index: i, Model: i % 2, AtMs: int64(i) * 100, InputTokens: 50 + i, OutputTokens: 5 + i})
	}
	cfg := h100(t, in, Config{Workers: 4, PrefillWorkers: 2, Policy: PolicyAegaeon})
	l := liveOf(t, cfg, 20)
	var tickets []*Ticket
	for _, r := range in.Requests {
		if err := l.Wall().Until(context.Background(), r.AtMs); err != nil {
			t.Fatal(err)
		}
		ticket, err := l.Submit(r.Model, r.InputTokens, r.OutputTokens, l.Wall().At(r.AtMs))
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	got := make([][]int64, len(tickets))
	for i, ticket := range tickets {
		in.Requests[i].AtMs = ticket.AtMs // a late clock moves an arrival
		for k := range ticket.OutputTokens {
			at, err := ticket.Token(context.Background(), k)
			if err != nil {
				t.Fatal(err)
			}
			if time.Now().Before(at) {
				t.Errorf("token %d of request %d is there before its time", k, i)
			}
			got[i] = append(got[i], l.Wall().Ms(at))
		}
		if err := ticket.Err(); err != nil {
			t.Error(err)
		}
	}
	want, _ := simulate(t, in, cfg)
	for i := range want {
		if diff := cmp.Diff(want[i].TokensMs, got[i]); diff != "" {
			t.Errorf("request %d (-simulated +live):\n%s", i, diff)
		}
	}
}

func TestLiveFailures(t *testing.T) {
	in := Input{Models: []Alias{{"a", "qwen2.5-7b"}}}
	l := liveOf(t, h100(t, in, Config{Workers: 1, Policy: PolicyServerlessLLM}), 1)
	ctx := context.Background()
	var failed *Failed
	huge, err := l.Submit(0, 1<<20, 1, time.Now())
	if err != nil || !errors.As(huge.Err(), &failed) || failed.Why != FailedCapacity {
		t.Errorf("a request that fits nowhere: %v, %v", err, huge.Err())
	}
	if _, err := l.Submit(3, 1, 1, time.Now()); err == nil {
		t.Error("a model that is not there is served")
	}
	going, err := l.Submit(0, 10, 1<<10, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	going.Cancel()
	if _, err := going.Token(ctx, 0); !errors.As(err, &failed) || failed.Why != FailedCancelled {
		t.Errorf("after its cancellation: %v", err)
	}
	going.Cancel() // again: nothing
	soon, cancel := context.WithCancelCause(ctx)
	cancel(errFinished)
	waiting, err := l.Submit(0, 10, 1<<10, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Token(soon, 0); !errors.Is(err, errFinished) {
		t.Errorf("with its context ended: %v", err)
	}
	if err := l.Do(func(s *System) {
		if s.Cancelled() != 1 || s.stats.FailedCapacity != 1 {
			t.Errorf("%d cancelled, %+v", s.Cancelled(), s.stats)
		}
	}); err != nil {
		t.Error(err)
	}
}

func TestLiveStops(t *testing.T) {
	in := Input{Models: []Alias{{"a", "qwen2.5-7b"}}}
	l, err := NewLive(h100(t, in, Config{Workers: 1, Policy: PolicyServerlessLLM}), 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	ticket, err := l.Submit(0, 10, 1<<10, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if _, err := ticket.Token(context.Background(), 0); !errors.Is(err, ErrStopped) {
		t.Errorf("a request that was under way: %v", err)
	}
	if _, err := l.Submit(0, 1, 1, time.Now()); !errors.Is(err, ErrStopped) {
		t.Errorf("a request afterwards: %v", err)
	}
	for _, scale := range []float64{0, -1} {
		if _, err := NewLive(Config{}, scale); err == nil {
			t.Errorf("time scale %v is taken", scale)
		}
	}
}
