package metrics

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestOrderRanksAsTabulated(t *testing.T) {
	// n, p -> ranks for 95 %, from the binomial law by hand: P(B < low) <= 2.5 %
	// and P(B >= high) <= 2.5 %.
	for _, c := range []struct {
		p      float64
		n      int
		lo, hi int
	}{
		{50, 5, 0, 6},       // 2^-5 = 3.1 % in each tail: no bound
		{50, 6, 1, 6},       // 2^-6 = 1.6 %
		{50, 10, 2, 9},      // P(B <= 1) = 11/1024
		{50, 20, 6, 15},     // P(B <= 5) = 2.07 %
		{50, 100, 40, 61},   // P(B <= 39) = 1.76 %
		{99, 100, 97, 101},  // P(B >= 100) = 36.6 %: no upper bound
		{95, 59, 52, 60},    // 0.95^59 = 4.85 % > 2.5 %: no upper bound
		{95, 200, 184, 197}, // the usual table
	} {
		lo, hi := OrderRanks(c.p, c.n, 0.95)
		if lo != c.lo || hi != c.hi {
			t.Errorf("p%v of %d: ranks %d and %d, want %d and %d", c.p, c.n, lo, hi, c.lo, c.hi)
		}
	}
	if lo, hi := OrderRanks(99, 50_000_000, 0.95); math.Abs(float64(lo)-49_500_000+1379) > 5 || math.Abs(float64(hi)-49_500_000-1379) > 5 {
		t.Errorf("large n: %d, %d", lo, hi)
	}
}

func TestIntervalsCover(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const runs = 2000
	for _, c := range []struct {
		p float64
		n int
	}{{50, 40}, {90, 120}, {99, 900}} {
		held := 0
		truth := -math.Log(1 - c.p/100)
		for range runs {
			var s Samples
			for range c.n {
				s.Add(r.ExpFloat64())
			}
			lo, hi, above := s.Interval(c.p)
			if above != nil {
				t.Fatal("nothing is censored")
			}
			if (lo == nil || *lo <= truth) && (hi == nil || truth < *hi) {
				held++
			}
		}
		if share := float64(held) / runs; share < 0.95-0.015 {
			t.Errorf("p%v of %d: the interval holds it in %.3f of runs, want 0.95", c.p, c.n, share)
		}
	}
}

func TestIntervalAmongFailures(t *testing.T) {
	var s Samples
	for i := range 90 {
		s.Add(float64(i))
	}
	for range 10 {
		s.AddCensored(500)
	}
	if _, hi, above := s.Interval(90); hi != nil || above == nil || *above != 500 {
		t.Errorf("p90: high %v, above %v", hi, above)
	}
	if lo, hi, _ := s.Interval(50); lo == nil || hi == nil || *lo != 39 || *hi != 60 {
		t.Errorf("p50: %v %v", lo, hi)
	}
	s.Dependent = true
	if lo, hi, above := s.Interval(50); lo != nil || hi != nil || above != nil {
		t.Error("samples that depend on each other have no interval")
	}
}

func TestTrend(t *testing.T) {
	up := make([]float64, 12)
	for i := range up {
		up[i] = float64(i)
	}
	if z := Trend(up); math.Abs(z-65/math.Sqrt(12*11*29/18.0)) > 1e-12 {
		t.Errorf("rising: %v", z)
	}
	if z := Trend([]float64{3, 3, 3, 3}); z != 0 {
		t.Errorf("constant: %v", z)
	}
	r := rand.New(rand.NewPCG(3, 4))
	over := 0
	for range 2000 {
		xs := make([]float64, 20)
		for i := range xs {
			xs[i] = math.Floor(r.Float64() * 8) // with ties
		}
		if math.Abs(Trend(xs)) > 1.96 {
			over++
		}
	}
	if over < 40 || over > 140 {
		t.Errorf("%d of 2000 trendless series are over 1.96, want about 100", over)
	}
}
