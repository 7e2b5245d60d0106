package serving

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"assay/internal/workload"
	"assay/schemas"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var slo = schemas.SLO{TTFTMs: 10_000, TPOTMs: 100}

func h100(t testing.TB, in Input, cfg Config) Config {
	t.Helper()
	bases, err := in.BaseModels()
	if err != nil {
		t.Fatal(err)
	}
	fits, err := Published("h100", bases)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Models, err = in.Served(fits); err != nil {
		t.Fatal(err)
	}
	cfg.Device, _ = FindDevice("h100")
	return cfg
}

// TestByHand follows two requests through one worker with latencies that can be
// reckoned in the head.
func TestByHand(t *testing.T) {
	base := BaseModel{"m", 16, 1e-6, 8192} // loads within 1 s
	fit := Fit{Prefill: Coefficients{0.010, 0.001, 0}, Decode: Coefficients{0.005, 0, 0.001}}
	cfg := Config{Device: Device{"d", 80}, Models: []Served{{"a", base, fit}, {"b", base, fit}}, Workers: 1, Policy: PolicyServerlessLLM}
	in := Input{IDs: []string{"x", "y", "z"}, Models: []Alias{{"a", "m"}, {"b", "m"}}, Requests: []Request{
		{Index: 0, Model: 0, AtMs: 100, InputTokens: 10, OutputTokens: 3},
		{Index: 1, Model: 0, AtMs: 1115, InputTokens: 20, OutputTokens: 2},
		{Index: 2, Model: 1, AtMs: 1116, InputTokens: 5, OutputTokens: 1},
	}}
	// x: load to 1100, prefill of 10 tokens to 1120, where y has come: its prefill
	// of 20 to 1150, then both decode in 5+2 ms to 1157, y ends, x alone to 1163.
	// z: load to 2163, prefill of 5 to 2178.
	want := [][]int64{{1120, 1157, 1163}, {1150, 1157}, {2178}}
	var got [3][]int64
	res, err := Simulate(context.Background(), in, cfg, slo, func(o Outcome) error {
		got[o.Index] = slices.Clone(o.TokensMs)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got[:]); diff != "" {
		t.Errorf("token times (-want +got):\n%s", diff)
	}
	if res.Stats.Finished != 3 || res.Stats.ModelSwitches != 2 || res.Stats.PrefillSteps != 3 || res.Stats.DecodeSteps != 2 || res.Stats.EndMs != 2178 {
		t.Errorf("stats %+v", res.Stats)
	}
	if res.MeanQoS != 1 {
		t.Errorf("all in time, and the mean QoS is %v", res.MeanQoS)
	}
}

func TestPatienceAndCapacity(t *testing.T) {
	base := BaseModel{"m", 16, 0.0512, 8192} // room for 1,000 tokens
	fit := Fit{Prefill: Coefficients{20, 0, 0}, Decode: Coefficients{0.005, 0, 0}}
	cfg := Config{Device: Device{"d", 80}, Models: []Served{{"a", base, fit}}, Workers: 1, Policy: PolicyServerlessLLM}
	in := Input{IDs: []string{"first", "late", "large", "last"}, Models: []Alias{{"a", "m"}}, Requests: []Request{
		{Index: 0, AtMs: 0, InputTokens: 10, OutputTokens: 2},
		{Index: 1, AtMs: 2000, InputTokens: 10, OutputTokens: 2},
		{Index: 2, AtMs: 2000, InputTokens: 999, OutputTokens: 2},
		{Index: 3, AtMs: 15001, InputTokens: 10, OutputTokens: 2},
	}}
	res, err := Simulate(context.Background(), in, cfg, slo, nil)
	if err != nil {
		t.Fatal(err)
	}
	// "first" is at its prefill when "last" comes, 15,001 ms after it, and fails.
	want := []Failure{FailedPatience, "", FailedCapacity, ""}
	for i, r := range res.Rows {
		if r.Why != want[i] || r.Finished != (want[i] == "") {
			t.Errorf("%s: failure %q, want %q", in.IDs[i], r.Why, want[i])
		}
	}
}

func TestConfigErrors(t *testing.T) {
	in := Input{IDs: []string{"0"}, Models: []Alias{{"a", "qwen2.5-7b"}}, Requests: []Request{{InputTokens: 1, OutputTokens: 1}}}
	for want, change := range map[string]func(*Config){
		"workers = 0":            func(c *Config) { c.Workers = 0 },
		`policy "fcfs"`:          func(c *Config) { c.Policy = "fcfs" },
		"prefill workers":        func(c *Config) { c.Policy = PolicyAegaeon },
		"has no prefill workers": func(c *Config) { c.PrefillWorkers = 1 },
		"batch term":             func(c *Config) { c.BatchTerm = "none" },
		"bandwidth":              func(c *Config) { c.BandwidthGBps = -1 },
		"no models":              func(c *Config) { c.Models = nil },
		"no room for KV":         func(c *Config) { c.Device.MemoryGB = 14 },
	} {
		cfg := h100(t, in, Config{Workers: 2, Policy: PolicyServerlessLLM})
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func TestArrivalsMustBeInOrder(t *testing.T) {
	in := Input{Models: []Alias{{"a", "qwen2.5-7b"}}}
	s, err := New(h100(t, in, Config{Workers: 1, Policy: PolicyServerlessLLM}))
	if err != nil {
		t.Fatal(err)
	}
	reqs := []Request{{AtMs: 5, InputTokens: 1, OutputTokens: 1}, {AtMs: 4, InputTokens: 1, OutputTokens: 1}}
	_, err = s.Run(context.Background(), slices.Values(reqs), func(Outcome) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "sort the arrivals") {
		t.Errorf("got %v", err)
	}
}

func TestSinkAndContextEndARun(t *testing.T) {
	in := Input{IDs: []string{"0"}, Models: []Alias{{"a", "qwen2.5-7b"}}, Requests: []Request{{InputTokens: 1, OutputTokens: 9}}}
	cfg := h100(t, in, Config{Workers: 1, Policy: PolicyServerlessLLM})
	full := errors.New("disk full")
	if _, err := Simulate(context.Background(), in, cfg, slo, func(Outcome) error { return full }); !errors.Is(err, full) {
		t.Errorf("a sink's error gives %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(full)
	if _, err := Simulate(ctx, in, cfg, slo, nil); !errors.Is(err, full) {
		t.Errorf("a cancelled context gives %v", err)
	}
}

// TestGolden pins what every policy makes of a small, crowded workload, on
// machines that have no reference at hand.
func TestGolden(t *testing.T) {
	in, err := ReadInput("testdata/crowded.csv", workload.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range Policies {
		for _, term := range []BatchTerm{BatchActual, BatchArtifact} {
			cfg := h100(t, in, Config{Workers: 3, Policy: policy, BatchTerm: term})
			if policy == PolicyAegaeon {
				cfg.PrefillWorkers = 1
			}
			res, err := Simulate(context.Background(), in, cfg, slo, nil)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := WriteRows(&b, in, res.Rows); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "# mean qos %.6f, %+v\n", res.MeanQoS, res.Stats)
			golden(t, fmt.Sprintf("testdata/crowded-%s-%s.golden", policy, term), b.String())
		}
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// point is a random workload on a random system.
func point(t *rapid.T) (Input, Config) {
	models := rapid.IntRange(1, 7).Draw(t, "models")
	in := Input{}
	for i := range models {
		in.Models = append(in.Models, Alias{fmt.Sprintf("m%d", i), AliasBase(rapid.IntRange(0, 9).Draw(t, "base"))})
	}
	at := int64(0)
	for i := range rapid.IntRange(1, 60).Draw(t, "requests") {
		at += int64(rapid.IntRange(0, 1500).Draw(t, "gap"))
		in.IDs = append(in.IDs, fmt.Sprint(i))
		in.Requests = append(in.Requests, Request{Index: i, Model: rapid.IntRange(0, models-1).Draw(t, "model"), AtMs: at,
			InputTokens: rapid.IntRange(1, 3000).Draw(t, "input"), OutputTokens: rapid.IntRange(1, 400).Draw(t, "output")})
	}
	cfg := Config{Workers: rapid.IntRange(2, 5).Draw(t, "workers"), Policy: rapid.SampledFrom(Policies).Draw(t, "policy")}
	cfg.BatchTerm = rapid.SampledFrom([]BatchTerm{BatchActual, BatchArtifact}).Draw(t, "batch term")
	if cfg.Policy == PolicyAegaeon {
		cfg.PrefillWorkers = rapid.IntRange(1, cfg.Workers-1).Draw(t, "prefill")
	}
	return in, cfg
}

// TestInvariants: every request ends once, has no token before it came, as many
// as it asked for if it finished and none otherwise; no more KV than fits, here in
// devices that hardly hold the weights; the counters agree with the outcomes; and
// a second run gives the same.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in, cfg := point(rt)
		cfg = h100(t, in, cfg)
		cfg.Device.MemoryGB = rapid.Float64Range(27, 40).Draw(rt, "memory")
		out, stats := simulate(t, in, cfg)
		var sum Stats
		for _, o := range out {
			check(rt, o)
			sum.Requests++
			switch {
			case o.Finished:
				sum.Finished++
				sum.Tokens += int64(len(o.TokensMs))
			case o.Why == FailedPatience:
				sum.FailedPatience++
			default:
				sum.FailedCapacity++
			}
		}
		got := Stats{Requests: stats.Requests, Finished: stats.Finished, Tokens: stats.Tokens, FailedPatience: stats.FailedPatience, FailedCapacity: stats.FailedCapacity}
		if got != sum {
			rt.Errorf("the counters are %+v, the outcomes give %+v", got, sum)
		}
		if stats.LargestKVPercent > 100 {
			rt.Errorf("a step held %d %% of the KV that fits", stats.LargestKVPercent)
		}
		again, statsAgain := simulate(t, in, cfg)
		if stats != statsAgain || !cmp.Equal(out, again, cmp.AllowUnexported(outcome{})) {
			rt.Error("a second run gives something else")
		}
	})
}

func check(t *rapid.T, o outcome) {
	if o.Finished != (o.Why == "") {
		t.Errorf("request %d finished: %v, and failed for %q", o.Index, o.Finished, o.Why)
	}
	want := 0
	if o.Finished {
		want = o.OutputTokens
	}
	if len(o.TokensMs) != want {
		t.Errorf("request %d has %d tokens, want %d", o.Index, len(o.TokensMs), want)
	}
	before := o.AtMs
	for _, at := range o.TokensMs {
		if at < before {
			t.Errorf("request %d: a token at %d ms, after %d ms", o.Index, at, before)
		}
		before = at
	}
}

func TestPublishedIsWhatProfilesGive(t *testing.T) {
	needShared(t)
	want, err := FitModels(filepath.Join(shared, "profiles"), "h100", BaseModels)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Published("h100", BaseModels)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("built-in latencies (-fitted +built in):\n%s", diff)
	}
}

// TestEventsInOrder: events come back in order of time, then of creation, however
// pushing and handling are mixed.
func TestEventsInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var e events
		now, seq, pushed := int64(0), uint64(0), 0
		push := func() {
			e.push(now+int64(rapid.IntRange(0, 3).Draw(rt, "after")), nil)
			pushed++
		}
		for range rapid.IntRange(1, 20).Draw(rt, "first") {
			push()
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if len(e.heap) == 0 {
				break
			}
			got := e.take()
			if got.atMs < now || (got.atMs == now && got.seq < seq) {
				rt.Fatalf("event %d at %d after event %d at %d", got.seq, got.atMs, seq, now)
			}
			now, seq, pushed = got.atMs, got.seq, pushed-1
			for range rapid.IntRange(0, 2).Draw(rt, "pushes") {
				push()
			}
			e.drop()
			if len(e.heap) != pushed {
				rt.Fatalf("%d events, want %d", len(e.heap), pushed)
			}
		}
	})
}
