package workload

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/schemas"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pgregory.net/rapid"
)

func TestSynthRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := SynthSpec{
			Models:       rapid.IntRange(1, 5).Draw(t, "models"),
			RatePerModel: rapid.Float64Range(0.5, 5).Draw(t, "rate"),
			Duration:     time.Duration(rapid.IntRange(1000, 20000).Draw(t, "ms")) * time.Millisecond,
			InputMean:    rapid.IntRange(1, 3000).Draw(t, "in"),
			OutputMean:   rapid.IntRange(1, 3000).Draw(t, "out"),
			MaxTokens:    rapid.IntRange(2, 4096).Draw(t, "max"),
			Seed:         rapid.Uint64().Draw(t, "seed"),
		}
		w, err := Synth(spec)
		if err != nil {
			if strings.Contains(err.Error(), "no arrival") {
				return
			}
			t.Fatal(err)
		}
		for _, r := range w.Requests {
			if r.InputTokens < 1 || r.OutputTokens < min(minOutput, spec.MaxTokens-1) || r.InputTokens+r.OutputTokens > spec.MaxTokens {
				t.Fatalf("lengths of %+v with max %d", r, spec.MaxTokens)
			}
			if r.AtNs >= int64(spec.Duration) {
				t.Fatalf("%+v arrives after %s", r, spec.Duration)
			}
		}
		var b bytes.Buffer
		if err := WriteCSV(&b, w); err != nil {
			t.Fatal(err)
		}
		got, err := Read(&b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got.Digest, got.Reading = "", schemas.Reading{}
		if d := cmp.Diff(w, got, cmpopts.IgnoreUnexported(Workload{})); d != "" {
			t.Fatal(d)
		}
		again, _ := Synth(spec)
		if d := cmp.Diff(w, again, cmpopts.IgnoreUnexported(Workload{})); d != "" {
			t.Fatalf("the same seed gives another workload: %s", d)
		}
	})
}

// Arrivals are a Poisson process: counts per second have the rate as mean and
// variance, gaps follow the exponential law (Kolmogorov-Smirnov at 0.1 %).
func TestSynthIsPoisson(t *testing.T) {
	const rate, seconds = 5.0, 2000
	w, err := Synth(SynthSpec{Models: 1, RatePerModel: rate, Duration: seconds * time.Second, InputMean: 256, OutputMean: 128, MaxTokens: 100000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]float64, seconds)
	var gaps []float64
	for i, r := range w.Requests {
		counts[r.AtNs/1e9]++
		if i > 0 {
			gaps = append(gaps, float64(r.AtNs-w.Requests[i-1].AtNs)/1e9)
		}
	}
	mean := float64(len(w.Requests)) / seconds
	variance := 0.0
	for _, c := range counts {
		variance += (c - mean) * (c - mean) / seconds
	}
	if math.Abs(mean-rate) > 4*math.Sqrt(rate/seconds) || math.Abs(variance/mean-1) > 0.2 {
		t.Errorf("mean %v variance %v, want %v", mean, variance, rate)
	}
	slices.Sort(gaps)
	d := 0.0
	for i, g := range gaps {
		d = max(d, math.Abs(float64(i+1)/float64(len(gaps))-(1-math.Exp(-rate*g))))
	}
	// Times are whole milliseconds: allow for half of one beside the critical value.
	if limit := 1.95/math.Sqrt(float64(len(gaps))) + rate*0.0005; d > limit {
		t.Errorf("KS distance of gaps %v, limit %v", d, limit)
	}
	in, out := 0.0, 0.0
	for _, r := range w.Requests {
		in += float64(r.InputTokens) / float64(len(w.Requests))
		out += float64(r.OutputTokens) / float64(len(w.Requests))
	}
	if math.Abs(in-256) > 15 || math.Abs(out-128) > 8 {
		t.Errorf("mean lengths %v and %v, want 256 and 128", in, out)
	}
}

func TestSynthRefuses(t *testing.T) {
	good := SynthSpec{Models: 2, RatePerModel: 1, Duration: time.Minute, InputMean: 10, OutputMean: 10, MaxTokens: 100}
	for name, change := range map[string]func(*SynthSpec){
		"models":   func(s *SynthSpec) { s.Models = 0 },
		"rate":     func(s *SynthSpec) { s.RatePerModel = math.NaN() },
		"duration": func(s *SynthSpec) { s.Duration = 0 },
		"mean":     func(s *SynthSpec) { s.InputMean = 0 },
		"max":      func(s *SynthSpec) { s.MaxTokens = 1 },
		"requests": func(s *SynthSpec) { s.RatePerModel = 1e9 },
		"arrival":  func(s *SynthSpec) { s.RatePerModel = 1e-9 },
	} {
		s := good
		change(&s)
		if _, err := Synth(s); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestWriteCSVRefuses(t *testing.T) {
	for name, r := range map[string]Request{
		"half a millisecond": {AtNs: 1500, Model: "m", InputTokens: 1, OutputTokens: 1},
		"comma":              {Model: "a,b", InputTokens: 1, OutputTokens: 1},
		"length":             {Model: "m", InputTokens: 0, OutputTokens: 1},
	} {
		if err := WriteCSV(&bytes.Buffer{}, Workload{Requests: []Request{r}}); err == nil {
			t.Errorf("%s was written", name)
		}
	}
}

func TestPrompts(t *testing.T) {
	a, b := PromptTokenIDs(7, 3, 1000, Prompt{}), PromptTokenIDs(7, 3, 1000, Prompt{})
	if d := cmp.Diff(a, b); d != "" {
		t.Error(d)
	}
	for _, id := range a {
		if id < TokenIDLow || id >= TokenIDHigh {
			t.Fatalf("id %d", id)
		}
	}
	if slices.Equal(a[:4], PromptTokenIDs(7, 4, 4, Prompt{})) || slices.Equal(a[:4], PromptTokenIDs(8, 3, 4, Prompt{})) {
		t.Error("another index or seed gives the same prompt")
	}
	if n := len(strings.Fields(PromptText(7, 3, 50, Prompt{}))); n != 50 {
		t.Errorf("%d words", n)
	}
}

// The derivation of seeds is part of the identity of results: it may not drift. The
// first value is also what sha256sum prints for the stated bytes.
func TestSubSeedIsFixed(t *testing.T) {
	if got := SubSeed(42, "prompt/0"); got != 0x745120eac40b2bed {
		t.Errorf("SubSeed(42, prompt/0) = %#x", got)
	}
	if got := PromptTokenIDs(42, 0, 3, Prompt{}); !slices.Equal(got, []int{13355, 14217, 9012}) {
		t.Errorf("PromptTokenIDs(42, 0, 3, Prompt{}) = %v", got)
	}
}
