package metrics

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const second = int64(1e9)

func TestQoSExamples(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrival int64
		tokens  []int64
		t, p    int64
		want    float64
	}{
		{"published example", 0, []int64{3, 6, 7, 8}, 3, 2, 5.0 / 8},
		{"the same, later", 100, []int64{103, 106, 107, 108}, 3, 2, 5.0 / 8},
		{"no token", 0, nil, 3, 2, 0},
		{"all on time", 0, []int64{1, 2, 3}, 3, 2, 1},
		{"on the deadline", 0, []int64{3, 5, 7}, 3, 2, 1},
		{"one token, late", 0, []int64{4}, 3, 2, 0},
		{"slack is banked", 0, []int64{second / 10, 5 * second}, 10 * second, second / 10, 1},
		{"late last token adds nothing for its segment", 0, []int64{3, 6}, 3, 2, 3.0 / 6},
		{"two late in a row", 0, []int64{4, 20}, 3, 2, 0},
		{"tokens of one chunk", 0, []int64{3, 3, 3, 3}, 3, 2, 1},
	} {
		got, err := QoS(c.arrival, c.tokens, c.t, c.p)
		if err != nil || got != c.want {
			t.Errorf("%s: got %v, %v; want %v", c.name, got, err, c.want)
		}
	}
}

func TestQoSRefuses(t *testing.T) {
	if _, err := QoS(5, []int64{5}, 1, 1); !errors.Is(err, ErrQoSUndefined) {
		t.Errorf("t_n = a: %v", err)
	}
	for name, tokens := range map[string][]int64{"decreasing": {3, 2}, "before the arrival": {-1}} {
		if _, err := QoS(0, tokens, 1, 1); err == nil || errors.Is(err, ErrQoSUndefined) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := QoS(0, []int64{1}, -1, 1); err == nil {
		t.Error("a negative target was accepted")
	}
}

// loopQoS is the definition by intervals: walk the tokens, crediting each stretch
// of time in which the stream was ahead of its deadlines.
func loopQoS(tokens []int64, ttft, tpot float64) float64 {
	credit, start, first := 0.0, 0.0, 0
	for first < len(tokens) {
		i := first
		for i < len(tokens) && float64(tokens[i])-start <= ttft+float64(i)*tpot {
			i++
		}
		if i == len(tokens) {
			return (credit + float64(tokens[i-1]) - start) / float64(tokens[i-1])
		}
		if i > first {
			credit += ttft + float64(i-1)*tpot
		}
		start, first = float64(tokens[i]), i+1
	}
	return credit / float64(tokens[len(tokens)-1])
}

func TestQoSProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttft, tpot := rapid.Int64Range(0, 50).Draw(t, "T"), rapid.Int64Range(0, 10).Draw(t, "P")
		gaps := rapid.SliceOfN(rapid.Int64Range(0, 30), 1, 40).Draw(t, "gaps")
		tokens, at := []int64{}, int64(0)
		late := false
		for i, g := range gaps {
			at += g
			tokens = append(tokens, at)
			late = late || at > ttft+int64(i)*tpot
		}
		got, err := QoS(0, tokens, ttft, tpot)
		if at == 0 {
			if !errors.Is(err, ErrQoSUndefined) {
				t.Fatalf("t_n = a gives %v, %v", got, err)
			}
			return
		}
		if err != nil || !(got >= 0 && got <= 1) {
			t.Fatalf("qos %v, %v", got, err)
		}
		if (got == 1) == late {
			t.Fatalf("qos %v, but late is %v", got, late)
		}
		if want := loopQoS(tokens, float64(ttft), float64(tpot)); math.Abs(got-want) > 1e-12 {
			t.Fatalf("qos %v, by intervals %v", got, want)
		}
	})
}

func ptr[T any](v T) *T { return &v }

// record makes an ok record with chunks at the given milliseconds after 0.
func record(scheduled, dispatched float64, chunks ...float64) *schemas.RequestRecord {
	ns := func(ms float64) int64 { return int64(ms * 1e6) }
	r := &schemas.RequestRecord{Schema: schemas.RequestRecordV1, Outcome: schemas.OutcomeOK, ScheduledNs: ns(scheduled), DispatchedNs: ptr(ns(dispatched))}
	for _, c := range chunks {
		r.Chunks = append(r.Chunks, schemas.Chunk{AtNs: ns(c)})
	}
	if k := len(chunks); k > 0 {
		r.FirstTokenNs, r.LastTokenNs = ptr(ns(chunks[0])), ptr(ns(chunks[k-1]))
		r.DoneNs, r.EndNs = ptr(ns(chunks[k-1]+1)), ns(chunks[k-1]+1)
		r.OutputTokens, r.AskedOutputTokens = ptr(k), k
	}
	return r
}

func TestPerRequest(t *testing.T) {
	r := record(10, 12, 112, 122, 152)
	r.FirstVisibleNs = ptr(int64(122e6))
	for _, c := range []struct {
		name string
		of   func(*schemas.RequestRecord) (float64, bool)
		want float64
	}{
		{"ttft", TTFTMs, 100}, {"visible", TTFTVisibleMs, 110}, {"from schedule", TTFTFromScheduleMs, 102},
		{"tpot", TPOTMs, 20}, {"e2e", E2EMs, 141}, {"e2e from schedule", E2EFromScheduleMs, 143},
		{"gap", MaxGapMs, 30}, {"lag", SendLagMs, 2},
	} {
		if got, ok := c.of(r); !ok || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: got %v, %v; want %v", c.name, got, ok, c.want)
		}
	}
	if d := cmp.Diff([]float64{10, 30}, ITLChunkMs(r)); d != "" {
		t.Error(d)
	}
	failed := record(10, 12)
	failed.Outcome = schemas.OutcomeTimeout
	for name, of := range map[string]func(*schemas.RequestRecord) (float64, bool){"ttft": TTFTMs, "tpot": TPOTMs, "e2e": E2EMs, "gap": MaxGapMs} {
		if v, ok := of(failed); ok {
			t.Errorf("%s of a failure without a token is %v", name, v)
		}
	}
	cut := record(0, 0, 10, 20)
	cut.Outcome = schemas.OutcomeTruncated
	if _, ok := E2EMs(cut); ok {
		t.Error("a truncated request has an e2e")
	}
}

func TestTPOTDividesByTokensAfterTheFirstChunk(t *testing.T) {
	r := record(0, 0, 100, 200)
	r.OutputTokens = ptr(8)
	r.Chunks[0].Tokens, r.Chunks[1].Tokens = ptr(3), ptr(5)
	if got, ok := TPOTMs(r); !ok || got != 20 {
		t.Errorf("tpot %v %v, want 100/(8-3)", got, ok)
	}
	per, ok := ITLTokenMs(r)
	if d := cmp.Diff([]float64{20, 20, 20, 20, 20}, per); !ok || d != "" {
		t.Errorf("%v %s", ok, d)
	}
	one := record(0, 0, 100)
	one.OutputTokens = ptr(5)
	if v, ok := TPOTMs(one); ok {
		t.Errorf("n = n1, but tpot is %v", v)
	}
}

func TestTokensPerChunk(t *testing.T) {
	for _, c := range []struct {
		name   string
		chunks int
		told   []int
		total  int
		want   ChunkTokens
	}{
		{"one each", 3, nil, 3, ChunkTokens{[]int{1, 1, 1}, 3, TokensOnePer, false}},
		{"no total", 3, nil, 0, ChunkTokens{[]int{1, 1, 1}, 3, TokensOnePer, false}},
		{"more tokens", 3, nil, 7, ChunkTokens{[]int{3, 2, 2}, 7, TokensEstimated, false}},
		{"fewer tokens", 3, nil, 2, ChunkTokens{[]int{1, 1, 0}, 2, TokensEstimated, false}},
		{"told", 2, []int{3, 4}, 7, ChunkTokens{[]int{3, 4}, 7, TokensTold, false}},
		{"told, no total", 2, []int{3, 4}, 0, ChunkTokens{[]int{3, 4}, 7, TokensTold, false}},
		{"told, one without an event", 2, []int{3, 4}, 8, ChunkTokens{[]int{3, 5}, 8, TokensTold, true}},
		{"told too many", 2, []int{3, 4}, 5, ChunkTokens{[]int{3, 2}, 5, TokensEstimated, true}},
		{"nothing", 0, nil, 4, ChunkTokens{nil, 0, TokensNone, false}},
	} {
		r := &schemas.RequestRecord{Chunks: make([]schemas.Chunk, c.chunks)}
		for i, n := range c.told {
			r.Chunks[i].Tokens = ptr(n)
		}
		if c.total > 0 {
			r.OutputTokens = ptr(c.total)
		}
		if d := cmp.Diff(c.want, TokensPerChunk(r)); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestRequestQoS(t *testing.T) {
	slo := schemas.SLO{TTFTMs: 3, TPOTMs: 2}
	r := record(0, 0, 3, 6, 7, 8)
	if got, err := RequestQoS(r, slo); err != nil || got != 5.0/8 {
		t.Errorf("got %v, %v", got, err)
	}
	r.Held, r.AskedOutputTokens = true, 5
	if got, err := RequestQoS(r, slo); err != nil || got != 0 {
		t.Errorf("short of the length it was held to: %v, %v", got, err)
	}
	r.Held, r.Outcome = false, schemas.OutcomeTruncated
	if got, err := RequestQoS(r, slo); err != nil || got != 0 {
		t.Errorf("failed: %v, %v", got, err)
	}
	if onTime, due := TokensOnTime(r, slo); onTime != 3 || due != 5 {
		t.Errorf("tokens on time %d of %d, want 3 of 5", onTime, due)
	}
}

func TestSLOMet(t *testing.T) {
	late := record(0, 50, 140, 150)
	slo := schemas.SLO{TTFTMs: 100, TPOTMs: 10}
	if !SLOMet(late, slo, false) || SLOMet(late, slo, true) {
		t.Error("the anchor of the TTFT does not decide")
	}
	if SLOMet(record(0, 0, 100, 111), slo, true) || !SLOMet(record(0, 0, 100, 110), slo, true) {
		t.Error("the limits are not inclusive")
	}
	if !SLOMet(record(0, 0, 100), slo, true) {
		t.Error("a request of one token has no TPOT to miss")
	}
}

func TestPercentileType7(t *testing.T) {
	s := &Samples{Values: []float64{15, 20, 35, 40, 50}}
	for p, want := range map[float64]float64{0: 15, 40: 29, 50: 35, 90: 46, 100: 50} {
		if got, censored, ok := s.Percentile(p); !ok || censored || math.Abs(got-want) > 1e-12 {
			t.Errorf("p%v = %v, want %v", p, got, want)
		}
	}
	if _, _, ok := (&Samples{}).Percentile(50); ok {
		t.Error("no samples have a percentile")
	}
}

func TestPercentileCensored(t *testing.T) {
	s := &Samples{Values: []float64{1, 2, 3}, Limits: []float64{600, 0.1}}
	for _, c := range []struct {
		p, want  float64
		censored bool
	}{{50, 3, false}, {60, 3, true}, {75, 3, true}, {100, 600, true}} {
		if got, censored, _ := s.Percentile(c.p); got != c.want || censored != c.censored {
			t.Errorf("p%v = %v (censored %v), want %v (%v)", c.p, got, censored, c.want, c.censored)
		}
	}
	if got, censored, ok := (&Samples{Limits: []float64{7}}).Percentile(50); got != 7 || !censored || !ok {
		t.Errorf("only failures: %v %v %v", got, censored, ok)
	}
}

func TestStatisticsProperties(t *testing.T) {
	value := rapid.Float64Range(-1e9, 1e9)
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(value, 0, 60).Draw(t, "values")
		limits := rapid.SliceOfN(value, 0, 10).Draw(t, "limits")
		a := &Samples{Values: slices.Clone(values), Limits: slices.Clone(limits)}
		seed := rapid.Uint64().Draw(t, "seed")
		rng := rand.New(rand.NewPCG(seed, 0))
		rng.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
		b := &Samples{Values: values, Limits: limits}
		if d := cmp.Diff(Summarize("ms", a), Summarize("ms", b)); d != "" {
			t.Fatalf("the order of samples matters: %s", d)
		}
		before, above := math.Inf(-1), false
		for p := 0.0; p <= 100; p += 2.5 {
			v, censored, ok := a.Percentile(p)
			if ok && (v < before || (above && !censored)) {
				t.Fatalf("p%v = %v (%v) after %v (%v)", p, v, censored, before, above)
			}
			if ok {
				before, above = v, censored
			}
		}
	})
}

func TestSumIsCompensated(t *testing.T) {
	if got := Sum([]float64{1, 1e100, 1, -1e100}); got != 2 {
		t.Errorf("got %v, want 2", got)
	}
}

func TestCV(t *testing.T) {
	if cv, ok := CV([]float64{2, 4, 4, 4, 5, 5, 7, 9}); !ok || cv != 0.4 {
		t.Errorf("got %v %v, want 2/5", cv, ok)
	}
	for name, xs := range map[string][]float64{"empty": nil, "zero mean": {0, 0}} {
		if cv, ok := CV(xs); ok || cv != 0 {
			t.Errorf("%s: %v %v", name, cv, ok)
		}
	}
}

func TestSampleFloors(t *testing.T) {
	few := func(n int) []bool {
		s := &Samples{Values: make([]float64, n)}
		var out []bool
		for _, p := range Summarize("ms", s).Percentiles {
			out = append(out, p.Few)
		}
		return out
	}
	if d := cmp.Diff([]bool{false, false, true, true}, few(129)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]bool{false, false, false, false}, few(662)); d != "" {
		t.Error(d)
	}
	if Floor(99.9) != 6636 || Floor(50) != 11 || Floor(12) != 0 {
		t.Error("floors differ from the table")
	}
}

func TestEventRate(t *testing.T) {
	if r, ok := EventRate([]int64{3 * second, second, 2 * second}); !ok || r != 1 {
		t.Errorf("got %v %v", r, ok)
	}
	if _, ok := EventRate([]int64{second, second}); ok {
		t.Error("no time between two events has a rate")
	}
}

// A pace of 0 is a claim: where all tokens have one time there is none.
func TestTokensAtOneTime(t *testing.T) {
	shared := record(0, 0, 100, 100, 100, 100)
	for i := range shared.Chunks[:3] {
		shared.Chunks[i].SinceNs = ptr(int64(40e6))
	}
	one := record(0, 0, 100)
	one.OutputTokens, one.Chunks[0].Tokens = ptr(4), ptr(4)
	for name, r := range map[string]*schemas.RequestRecord{"four events in one receive": shared, "one event of four tokens": one} {
		tpot, hasTPOT := TPOTMs(r)
		gap, hasGap := MaxGapMs(r)
		per, hasPer := ITLTokenMs(r)
		if hasTPOT || hasGap || hasPer || ITLChunkMs(r) != nil || !Paceless(r) {
			t.Errorf("%s: tpot %v, gap %v, per token %v, gaps %v, paceless %v", name, tpot, gap, per, ITLChunkMs(r), Paceless(r))
		}
		// Whoever reads the tokens has waited for the first alone.
		if !SLOMet(r, schemas.SLO{TTFTMs: 100, TPOTMs: 1}, true) || SLOMet(r, schemas.SLO{TTFTMs: 99, TPOTMs: 1}, true) {
			t.Errorf("%s: TTFT does not decide", name)
		}
	}
	// Some at one time: the gaps add up to the whole.
	some := record(0, 0, 100, 130, 130, 130)
	if got, ok := TPOTMs(some); !ok || got != 10 || Paceless(some) {
		t.Errorf("tpot %v %v, want 10", got, ok)
	}
	if d := cmp.Diff([]float64{30, 0, 0}, ITLChunkMs(some)); d != "" {
		t.Error(d)
	}
	single := record(0, 0, 100)
	if _, ok := TPOTMs(single); ok || Paceless(single) {
		t.Error("one token has no pace to be left out")
	}
	failed := record(0, 0, 100, 100)
	failed.Outcome = schemas.OutcomeTruncated
	if Paceless(failed) {
		t.Error("a failure is censored, not left out")
	}
}
