package report

import (
	"math/rand/v2"
	"testing"

	"assay/schemas"

	"pgregory.net/rapid"
)

// timed is an answer of n tokens, 10 ms apart, the first after ttft.
func timed(i int, at, ttft int64, n int) schemas.RequestRecord {
	const ms = int64(1e6)
	r := okRecord(i, n)
	r.ScheduledNs, r.Chunks = at, nil
	sent := at
	r.DispatchedNs = &sent
	for k := range n {
		r.Chunks = append(r.Chunks, schemas.Chunk{AtNs: at + ttft + int64(k)*10*ms, Bytes: 1})
	}
	first, last := r.Chunks[0].AtNs, r.Chunks[n-1].AtNs
	done := last + ms
	r.FirstTokenNs, r.FirstVisibleNs, r.LastTokenNs, r.DoneNs, r.EndNs = &first, &first, &last, &done, done
	return r
}

func course(t testing.TB, recs []schemas.RequestRecord, opts LookOptions) Course {
	t.Helper()
	c, err := Look(Records(recs), opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const second = int64(1e9)

func TestADeclaredWindowByHand(t *testing.T) {
	// One request a second from 0 to 9 s, each 5 tokens at +0.5, +0.51, ... +0.54 s,
	// done at +0.541 s. The run ends at 9.541 s. Without 2 s and 3.041 s the window
	// is [2, 6.5]: requests 2 to 6 are due in it, 2 to 5 end in it, and of the sixth
	// one token arrives, at 6.5 s.
	var recs []schemas.RequestRecord
	for i := range 10 {
		recs = append(recs, timed(i, int64(i)*second, second/2, 5))
	}
	c := course(t, recs, LookOptions{WarmupNs: 2 * second, DrainNs: 3*second + second*41/1000})
	if c.Source != WindowDeclared || c.Steady.FromNs != 2*second || c.Steady.ToNs != 6*second+second/2 {
		t.Fatalf("%+v", c)
	}
	res := mustFold(t, recs, FoldOptions{SLO: &schemas.SLO{TTFTMs: 600, TPOTMs: 20}, OpenLoop: true, Course: &c})
	checkNumbers(t, res, map[string]float64{
		"steady.window_s": 4.5, "steady.requests_per_s": 4 / 4.5, "steady.output_tokens_per_s": 21 / 4.5, "steady.goodput_rps": 4 / 4.5,
		"steady.ttft_ms.n": 5, "steady.ttft_ms.mean": 500, "steady.error_rate": 0, "steady.slo_attainment": 1,
		// 4.5 s make five slices of 0.9 s; no slice holds more than one request's tokens.
		"steady.peak_output_tokens_per_s": 5 / 0.9,
		"requests_per_s":                  10 / 9.541, "mean_in_flight": 10 * 0.541 / 9.541, "peak_in_flight": 1,
	})
	if _, _, err := Lookup(res, "steady.makespan_s"); err == nil {
		t.Error("a name that a window does not have: no error")
	}
	gone := course(t, recs, LookOptions{WarmupNs: 20 * second})
	if gone.Unknown == "" || mustFold(t, recs, FoldOptions{Course: &gone}).Steady.Unknown == "" {
		t.Error("a warmup longer than the run leaves a window")
	}
}

func TestTheSteadyWindowIsDetected(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	noisy := func(ms float64) int64 { return int64((ms + 10*r.Float64()) * 1e6) }
	var level, settling, growing []schemas.RequestRecord
	for i := range 1000 {
		at := int64(i) * second / 20
		level = append(level, timed(i, at, noisy(100), 3))
		// The first 15 s are slow, and ever less so.
		settling = append(settling, timed(i, at, noisy(100+max(0, 2000-float64(i)*7)), 3))
		growing = append(growing, timed(i, at, noisy(100+float64(i)), 3))
	}
	if c := course(t, level, LookOptions{}); c.Unknown != "" || c.Steady.FromNs > 10*second || c.Steady.ToNs != 999*second/20 {
		t.Errorf("a level run: %+v", c)
	}
	c := course(t, settling, LookOptions{})
	if c.Unknown != "" || c.Steady.FromNs < 8*second || c.Steady.FromNs > 25*second {
		t.Errorf("a run that settles within 15 s: %+v", c)
	}
	res := mustFold(t, settling, FoldOptions{Course: &c})
	if full, steady := *res.Metrics["ttft_ms"].Mean, *res.Steady.Metrics["ttft_ms"].Mean; full < 1.5*steady {
		t.Errorf("full %v and steady %v ms must tell the difference", full, steady)
	}
	c = course(t, growing, LookOptions{})
	res = mustFold(t, growing, FoldOptions{Course: &c})
	if !c.Drifts || res.Steady.Unknown == "" || len(res.Findings) == 0 || res.Findings[0].ID != "result.not-steady" {
		t.Errorf("a run that drifts: %+v, %+v", c, res.Findings)
	}
	if c := course(t, level[:50], LookOptions{}); c.Unknown == "" || c.Drifts {
		t.Errorf("too short a run: %+v", c)
	}
	if c := course(t, nil, LookOptions{}); c.Unknown == "" {
		t.Errorf("no run: %+v", c)
	}
}

func TestPhasesAreKeptApart(t *testing.T) {
	recs := []schemas.RequestRecord{timed(0, 0, second, 2), timed(1, 2*second, second/2, 2), timed(2, 4*second, second/4, 2)}
	recs[0].Phase, recs[1].Phase, recs[2].Phase = schemas.PhaseCold, schemas.PhaseSwitch, schemas.PhaseSwitch
	recs[1].SwitchFrom, recs[2].SwitchFrom = "m0", "m1"
	queued := recs[2].ScheduledNs
	recs[2].QueuedNs = &queued
	res := mustFold(t, recs, FoldOptions{})
	got := map[string]float64{}
	for _, p := range res.Phases {
		got[p.Phase+" "+p.SwitchFrom] = *p.Metrics["ttft_ms"].Mean
	}
	want := map[string]float64{"cold ": 1000, "switch ": 375, "switch m0": 500, "switch m1": 250}
	for k, v := range want {
		if got[k] != v || len(got) != len(want) {
			t.Errorf("%s: %v, want %v of %v", k, got[k], v, got)
		}
	}
	if q := res.Metrics["queue_ms"]; q.N != 1 || *q.Mean != 0 {
		t.Errorf("queue_ms %+v", q)
	}
}

// A service that was just started: 0 and 1 were sent before anything was answered,
// 2 after.
func TestWhatStartupKeptWaiting(t *testing.T) {
	recs := []schemas.RequestRecord{timed(0, 0, 3*second, 2), timed(1, second, 4*second, 2), timed(2, 4*second, second/4, 2)}
	recs[0].Phase, recs[2].Phase = schemas.PhaseCold, schemas.PhaseSwitch
	c := course(t, recs, LookOptions{})
	for _, first := range []bool{true, false} {
		got := map[string]int{}
		for _, p := range mustFold(t, recs, FoldOptions{Course: &c, FirstUse: first}).Phases {
			if p.SwitchFrom == "" && p.Model == "" {
				got[p.Phase] = p.Counts.Issued
			}
		}
		if first && (got["startup"] != 2 || got["cold"] != 0 || got["switch"] != 1) || !first && (got["startup"] != 0 || got["cold"] != 1) {
			t.Errorf("first use %t: %v", first, got)
		}
	}
	recs = recs[:1]
	recs[0].Outcome, recs[0].FirstTokenNs, recs[0].LastTokenNs, recs[0].DoneNs, recs[0].Chunks = schemas.OutcomeTimeout, nil, nil, nil, nil
	c = course(t, recs, LookOptions{})
	if p := mustFold(t, recs, FoldOptions{Course: &c, FirstUse: true}).Phases; len(p) != 1 || p[0].Phase != schemas.PhaseStartup {
		t.Errorf("a service that never answered: %+v", p)
	}
}

func TestPeaksAreNeverBelowMeans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "n")
		var recs []schemas.RequestRecord
		for i := range n {
			at := rapid.Int64Range(0, 5*second).Draw(t, "at")
			recs = append(recs, timed(i, at, rapid.Int64Range(1, second).Draw(t, "ttft"), rapid.IntRange(1, 40).Draw(t, "tokens")))
		}
		c, err := Look(Records(recs), LookOptions{WarmupNs: rapid.Int64Range(0, second).Draw(t, "warmup")})
		if err != nil {
			t.Fatal(err)
		}
		res, err := Fold(Records(recs), FoldOptions{Course: &c, SLO: testSLO})
		if err != nil {
			t.Fatal(err)
		}
		for _, values := range []map[string]schemas.Value{res.Values, res.Steady.Values} {
			peak, mean := values["peak_output_tokens_per_s"].Value, values["output_tokens_per_s"].Value
			if peak != nil && mean != nil && *peak < *mean*(1-1e-12) {
				t.Fatalf("peak %v below mean %v", *peak, *mean)
			}
		}
		if *res.Values["peak_in_flight"].Value < *res.Values["mean_in_flight"].Value {
			t.Fatal("peak in flight below mean")
		}
		// A window never counts more than the run.
		if s := res.Steady; s.Unknown == "" && (s.Counts.Issued > res.Counts.Issued || *s.Values["goodput_rps"].Value > *s.Values["requests_per_s"].Value) {
			t.Fatalf("%+v", s.Counts)
		}
		sum := 0
		for _, m := range res.Models {
			sum += m.Counts.Issued
		}
		if sum != res.Counts.Issued || sum != n {
			t.Fatalf("%d issued, models have %d", res.Counts.Issued, sum)
		}
	})
}
