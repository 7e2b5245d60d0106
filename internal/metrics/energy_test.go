package metrics

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestEnergy(t *testing.T) {
	const s = int64(1e9)
	at := func(pairs ...float64) []PowerSample {
		var out []PowerSample
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, PowerSample{int64(pairs[i] * 1e9), pairs[i+1]})
		}
		return out
	}
	for _, c := range []struct {
		name     string
		samples  []PowerSample
		from, to int64
		want     float64 // below 0: undefined
	}{
		{"constant", at(0, 100, 1, 100, 2, 100), 0, 2 * s, 200},
		{"a ramp", at(0, 0, 1, 100, 2, 200), 0, 2 * s, 200},
		{"ends between samples", at(-0.5, 100, 0.5, 200, 1.5, 300), 0, s, 0.5*175 + 0.5*225},
		{"held to the ends", at(0.5, 100, 1.5, 100), 0, 2 * s, 200},
		{"one sample", at(1, 100), 0, 2 * s, -1},
		{"none within", at(-10, 100, 10, 100), 0, 2 * s, -1},
		{"a gap", at(0, 100, 1, 100, 3.5, 100, 4, 100), 0, 4 * s, -1},
		{"twice the period", at(0, 100, 1, 100, 3, 100, 4, 100), 0, 4 * s, 400},
		{"begins late", at(2.5, 100, 3, 100), 0, 3 * s, -1},
		{"ends early", at(0, 100, 1, 100), 0, 4 * s, -1},
		{"negative", at(0, 100, 1, -1, 2, 100), 0, 2 * s, -1},
		{"no number", at(0, 100, 1, math.NaN(), 2, 100), 0, 2 * s, -1},
		{"not in order", at(0, 100, 1, 100, 1, 100), 0, 2 * s, -1},
		{"empty window", at(0, 100, 1, 100), s, s, -1},
	} {
		got, err := Energy(c.samples, c.from, c.to, s)
		if c.want < 0 {
			if !errors.Is(err, ErrEnergyUndefined) || got != 0 {
				t.Errorf("%s: %v, %v, want undefined", c.name, got, err)
			}
		} else if err != nil || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// TestEnergyOfParts: a window's energy is that of its halves together, and lies
// between the least and the most power.
func TestEnergyOfParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []PowerSample
		at, low, high := int64(0), math.Inf(1), 0.0
		for range rapid.IntRange(8, 30).Draw(t, "n") {
			w := rapid.Float64Range(0, 1000).Draw(t, "w")
			low, high = min(low, w), max(high, w)
			list = append(list, PowerSample{at, w})
			at += rapid.Int64Range(1e8, 2e9).Draw(t, "gap")
		}
		end := list[len(list)-1].AtNs
		cut := list[len(list)/2].AtNs
		whole, err := Energy(list, 0, end, 1e9)
		a, errA := Energy(list, 0, cut, 1e9)
		b, errB := Energy(list, cut, end, 1e9)
		if err != nil || errA != nil || errB != nil {
			t.Fatal(err, errA, errB)
		}
		if math.Abs(whole-a-b) > 1e-6 || whole < low*seconds(end)-1e-6 || whole > high*seconds(end)+1e-6 {
			t.Fatalf("%v is not %v + %v, or not between %v and %v W", whole, a, b, low, high)
		}
	})
}
