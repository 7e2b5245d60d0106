package metrics

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestTQuantile holds quantiles against published tables.
func TestTQuantile(t *testing.T) {
	for _, c := range []struct {
		p    float64
		df   int
		want float64
	}{
		{0.975, 1, 12.7062}, {0.975, 2, 4.30265}, {0.975, 3, 3.18245}, {0.975, 4, 2.77645}, {0.975, 5, 2.57058}, {0.975, 10, 2.22814},
		{0.975, 29, 2.04523}, {0.975, 120, 1.97993}, {0.975, 100000, 1.95999}, {0.95, 7, 1.89458}, {0.995, 4, 4.60409}, {0.9995, 3, 12.92398}, {0.75, 1, 1}, {0.025, 4, -2.77645},
	} {
		if got := TQuantile(c.p, c.df); math.Abs(got-c.want) > 1e-4*math.Abs(c.want) {
			t.Errorf("p %v, %d degrees: %v, want %v", c.p, c.df, got, c.want)
		}
	}
	for _, bad := range []float64{0, 1, -1, math.NaN()} {
		if !math.IsNaN(TQuantile(bad, 3)) {
			t.Errorf("p %v has a quantile", bad)
		}
	}
}

func TestMeanInterval(t *testing.T) {
	mean, low, high, ok := MeanInterval([]float64{1, 2, 3, 4, 5}, 0.95)
	if !ok || mean != 3 || math.Abs(low-(3-1.963243)) > 1e-5 || math.Abs(high-(3+1.963243)) > 1e-5 {
		t.Errorf("%v [%v, %v]", mean, low, high)
	}
	if mean, _, _, ok := MeanInterval([]float64{7}, 0.95); ok || mean != 7 {
		t.Error("one sample has an interval")
	}
	rapid.Check(t, func(rt *rapid.T) {
		xs := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 2, 30).Draw(rt, "xs")
		mean, low, high, ok := MeanInterval(xs, 0.95)
		_, low99, high99, _ := MeanInterval(xs, 0.99)
		if !ok || !(low <= mean && mean <= high && low99 <= low && high <= high99) {
			rt.Errorf("%v in [%v, %v], at 99 %% [%v, %v]", mean, low, high, low99, high99)
		}
	})
}
