package workload

import (
	"math"
	"slices"
	"sort"
	"testing"
	"time"

	"assay/schemas"

	"pgregory.net/rapid"
)

// ks is the Kolmogorov-Smirnov distance of samples from a continuous law.
func ks(xs []float64, cdf func(float64) float64) float64 {
	sort.Float64s(xs)
	d, n := 0.0, float64(len(xs))
	for i, x := range xs {
		f := cdf(x)
		d = max(d, f-float64(i)/n, float64(i+1)/n-f)
	}
	return d
}

// At the 0.1 % level: a right generator fails for one seed in a thousand, and
// the seeds are fixed.
func ksLimit(n int) float64 { return 1.95 / math.Sqrt(float64(n)) }

func gaps(at []int64) []float64 {
	out := make([]float64, len(at))
	before := int64(0)
	for i, t := range at {
		out[i], before = float64(t-before)/1e9, t
	}
	return out
}

func draw(t *testing.T, p schemas.ArrivalProcess, n int, span time.Duration) []int64 {
	t.Helper()
	at, err := Arrivals(p, n, span, 11)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(at) {
		t.Fatal("arrivals are not in order")
	}
	return at
}

// gammaCDF is the regularised lower incomplete gamma function, by its series.
func gammaCDF(shape, x float64) float64 {
	if x <= 0 {
		return 0
	}
	if x > shape+40*math.Sqrt(shape)+40 {
		return 1
	}
	term := 1 / shape
	sum := term
	for k := 1; k < 2000 && term > sum*1e-15; k++ {
		term *= x / (shape + float64(k))
		sum += term
	}
	lg, _ := math.Lgamma(shape)
	return sum * math.Exp(-x+shape*math.Log(x)-lg)
}

func TestPoissonIsPoisson(t *testing.T) {
	const rate, n = 20.0, 20000
	at := draw(t, schemas.ArrivalProcess{Process: ProcessPoisson, Rate: rate}, n, 0)
	if d := ks(gaps(at), func(x float64) float64 { return 1 - math.Exp(-rate*x) }); d > ksLimit(n) {
		t.Errorf("gaps: KS distance %.4f from exponential, limit %.4f", d, ksLimit(n))
	}
	// Counts in windows of half a second are Poisson of mean 10: a process scaled
	// to a fixed count or pinned to boundaries fails this.
	at = draw(t, schemas.ArrivalProcess{Process: ProcessPoisson, Rate: rate}, 0, 1000*time.Second)
	counts := make([]int, 2000)
	for _, a := range at {
		counts[a/int64(500*time.Millisecond)]++
	}
	const lo, hi = 4, 17 // the tails are pooled
	seen := map[int]float64{}
	for _, c := range counts {
		seen[min(max(c, lo), hi)]++
	}
	p := math.Exp(-10)
	prob := map[int]float64{}
	for k := 0; k < 80; k++ {
		prob[min(max(k, lo), hi)] += p
		p *= 10 / float64(k+1)
	}
	chi := 0.0
	for k := lo; k <= hi; k++ {
		want := prob[k] * float64(len(counts))
		chi += (seen[k] - want) * (seen[k] - want) / want
	}
	if chi > 34.53 { // 13 degrees of freedom, 0.1 %
		t.Errorf("counts per window: chi-square %.1f, limit 34.53", chi)
	}
	if z := (float64(len(at)) - 20000) / math.Sqrt(20000); math.Abs(z) > 3.3 || z == 0 {
		t.Errorf("%d arrivals in 1000 s at 20/s: %.1f deviations off, or fixed", len(at), z)
	}
}

func TestGammaHasItsShape(t *testing.T) {
	const rate, n = 5.0, 20000
	for _, shape := range []float64{0.1, 0.5, 1, 2.5, 16} {
		at := draw(t, schemas.ArrivalProcess{Process: ProcessGamma, Rate: rate, Shape: shape}, n, 0)
		// Rounding to nanoseconds makes the tiniest gaps equal; it moves no time by more than that.
		if d := ks(gaps(at), func(x float64) float64 { return gammaCDF(shape, x*shape*rate) }); shape > 0.2 && d > ksLimit(n) {
			t.Errorf("shape %v: KS distance %.4f, limit %.4f", shape, d, ksLimit(n))
		}
		g := gaps(at)
		mean, sq := 0.0, 0.0
		for _, x := range g {
			mean += x / n
		}
		for _, x := range g {
			sq += (x - mean) * (x - mean) / n
		}
		if cv := math.Sqrt(sq) / mean; math.Abs(cv*math.Sqrt(shape)-1) > 0.1 {
			t.Errorf("shape %v: variation %.3f, want %.3f", shape, cv, 1/math.Sqrt(shape))
		}
		if math.Abs(mean*rate-1) > 4/math.Sqrt(shape*n) {
			t.Errorf("shape %v: rate %.3f, want %v", shape, 1/mean, rate)
		}
	}
}

// Seen through its own expected count, a process of varying rate is a unit
// Poisson process.
func TestVaryingRatesThroughTheirExpectedCount(t *testing.T) {
	onOff := schemas.ArrivalProcess{Process: ProcessOnOff, Rate: 50, OnMs: 2000, OffMs: 3000, OffRate: 4}
	ramp := schemas.ArrivalProcess{Process: ProcessRamp, Rate: 2, ToRate: 60, OverMs: 120_000}
	down := schemas.ArrivalProcess{Process: ProcessRamp, Rate: 60, ToRate: 2, OverMs: 120_000}
	for _, c := range []struct {
		name string
		p    schemas.ArrivalProcess
		mass func(float64) float64
	}{
		{"on-off", onOff, func(x float64) float64 {
			k := math.Floor(x / 5)
			in := x - 5*k
			return k*112 + min(in, 2)*50 + max(in-2, 0)*4
		}},
		{"ramp up", ramp, func(x float64) float64 {
			return 2*min(x, 120) + 58.0/120*min(x, 120)*min(x, 120)/2 + 60*max(x-120, 0)
		}},
		{"ramp down", down, func(x float64) float64 {
			return 60*min(x, 120) - 58.0/120*min(x, 120)*min(x, 120)/2 + 2*max(x-120, 0)
		}},
	} {
		at := draw(t, c.p, 4000, 0)
		xs, before := make([]float64, len(at)), 0.0
		for i, a := range at {
			m := c.mass(float64(a) / 1e9)
			xs[i], before = m-before, m
		}
		if d := ks(xs, func(x float64) float64 { return 1 - math.Exp(-x) }); d > ksLimit(len(xs)) {
			t.Errorf("%s: KS distance %.4f, limit %.4f", c.name, d, ksLimit(len(xs)))
		}
	}
	quiet := onOff
	quiet.OffRate = 0
	for _, a := range draw(t, quiet, 1000, 0) {
		if a%int64(5*time.Second) > int64(2*time.Second) {
			t.Fatalf("arrival at %d ns, in the pause", a)
		}
	}
}

func TestConstantIsConstant(t *testing.T) {
	at := draw(t, schemas.ArrivalProcess{Process: ProcessConstant, Rate: 8}, 0, 10*time.Second)
	if len(at) != 80 || at[0] != 0 || at[79] != 9_875_000_000 {
		t.Errorf("%d arrivals, first %d, last %d", len(at), at[0], at[len(at)-1])
	}
}

func TestArrivalsFollowFromTheirSeedAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := schemas.ArrivalProcess{Process: rapid.SampledFrom([]string{ProcessPoisson, ProcessGamma}).Draw(t, "process"), Rate: rapid.Float64Range(0.1, 1e4).Draw(t, "rate")}
		if p.Process == ProcessGamma {
			p.Shape = rapid.Float64Range(0.05, 50).Draw(t, "shape")
		}
		seed := rapid.Uint64().Draw(t, "seed")
		a, err := Arrivals(p, 50, 0, seed)
		b, err2 := Arrivals(p, 50, 0, seed)
		other, err3 := Arrivals(p, 50, 0, seed+1)
		if err != nil || err2 != nil || err3 != nil {
			t.Skip("too slow a process")
		}
		if !slices.Equal(a, b) || slices.Equal(a, other) {
			t.Fatal("equal seeds must give equal arrivals, other seeds others")
		}
		// A shorter schedule is the beginning of a longer one.
		if short, _ := Arrivals(p, 20, 0, seed); !slices.Equal(short, a[:20]) {
			t.Fatal("the number of requests moves their times")
		}
	})
}

func TestProcessesAreChecked(t *testing.T) {
	for _, p := range []schemas.ArrivalProcess{
		{Process: "weibull", Rate: 1}, {Process: ProcessPoisson}, {Process: ProcessGamma, Rate: 1}, {Process: ProcessPoisson, Rate: 1, Shape: 2},
		{Process: ProcessOnOff, Rate: 1, OnMs: 5}, {Process: ProcessRamp, Rate: 1}, {Process: ProcessRamp, OverMs: 5}, {Process: ProcessPoisson, Rate: math.NaN()},
	} {
		if _, err := Arrivals(p, 10, 0, 1); err == nil {
			t.Errorf("%+v: no error", p)
		}
	}
	if _, err := Arrivals(schemas.ArrivalProcess{Process: ProcessPoisson, Rate: 1}, 0, 0, 1); err == nil {
		t.Error("no end: no error")
	}
	// A ramp down to nothing ends by itself within a span, and cannot give more.
	down := schemas.ArrivalProcess{Process: ProcessRamp, Rate: 10, OverMs: 1000}
	if at, err := Arrivals(down, 0, time.Hour, 1); err != nil || at[len(at)-1] > 1e9 {
		t.Errorf("ramp to 0: %v %v", at, err)
	}
	if _, err := Arrivals(down, 1000, 0, 1); err == nil {
		t.Error("more requests than the ramp holds: no error")
	}
}

func TestLengthLaws(t *testing.T) {
	const n = 20000
	uniform := Lengths("input", schemas.LengthSpec{Dist: DistUniform, Min: 10, Max: 19}, 3)
	var count [10]float64
	for range n {
		count[uniform()-10]++
	}
	chi := 0.0
	for _, c := range count {
		chi += (c - n/10) * (c - n/10) / (n / 10)
	}
	if chi > 27.88 { // 9 degrees of freedom, 0.1 %
		t.Errorf("uniform: chi-square %.1f", chi)
	}
	spec := schemas.LengthSpec{Dist: DistLognormal, Mean: 500, Sigma: 1, Min: 1, Max: 1e6}
	logn := Lengths("output", spec, 3)
	xs, mean := make([]float64, n), 0.0
	r := NewRand(9, "test/jitter")
	for i := range xs {
		v := logn()
		mean += float64(v) / n
		xs[i] = float64(v) - 0.5 + r.Float64() // whole numbers made continuous
	}
	cdf := func(x float64) float64 { return 0.5 * math.Erfc(-(math.Log(x)-math.Log(500)+0.5)/math.Sqrt2) }
	if d := ks(xs, cdf); d > ksLimit(n) {
		t.Errorf("lognormal: KS distance %.4f, limit %.4f", d, ksLimit(n))
	}
	if math.Abs(mean-500) > 20 {
		t.Errorf("lognormal: mean %.1f, want 500", mean)
	}
	limited := Lengths("output", schemas.LengthSpec{Dist: DistLognormal, Mean: 500, Sigma: 2, Min: 100, Max: 600}, 3)
	for range 1000 {
		if v := limited(); v < 100 || v > 600 {
			t.Fatalf("length %d outside its limits", v)
		}
	}
	for _, d := range []schemas.LengthSpec{{Dist: DistFixed}, {Dist: DistUniform, Min: 5}, {Dist: DistUniform, Min: 5, Max: 4}, {Dist: DistLognormal}, {Dist: "x"}, {Dist: DistFixed, Tokens: 3, Mean: 4}} {
		if CheckLengths("input", d) == nil {
			t.Errorf("%+v: no error", d)
		}
	}
}

func TestSwitchesVisitEveryOrderedPair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, rounds := rapid.IntRange(2, 9).Draw(t, "n"), rapid.IntRange(1, 3).Draw(t, "rounds")
		walk := Switches(n, rounds, rapid.Uint64().Draw(t, "seed"))
		if len(walk) != rounds*n*(n-1)+1 {
			t.Fatalf("%d entries for %d models in %d rounds", len(walk), n, rounds)
		}
		pairs := map[[2]int]int{}
		for i := 1; i < len(walk); i++ {
			pairs[[2]int{walk[i-1], walk[i]}]++
		}
		for p, k := range pairs {
			if p[0] == p[1] || k != rounds {
				t.Fatalf("pair %v is visited %d times, want %d", p, k, rounds)
			}
		}
		if len(pairs) != n*(n-1) {
			t.Fatalf("%d pairs, want %d", len(pairs), n*(n-1))
		}
	})
}

func TestAssignmentIsEven(t *testing.T) {
	pick := Assign(4, 5)
	var count [4]float64
	for range 8000 {
		count[pick()]++
	}
	chi := 0.0
	for _, c := range count {
		chi += (c - 2000) * (c - 2000) / 2000
	}
	if chi > 16.27 { // 3 degrees of freedom, 0.1 %
		t.Errorf("chi-square %.1f: %v", chi, count)
	}
}
