package schemas

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNumbersForPeople(t *testing.T) {
	for _, c := range []struct {
		f      float64
		digits int
		want   string
	}{
		{100, 2, "100"}, {99.95, 2, "100"}, {1234.5, 3, "1234"}, {0.012345, 3, "0.0123"}, {0.00001234, 2, "0.000012"}, {1e22, 3, "10000000000000000000000"},
		{1.5, 3, "1.5"}, {2, 3, "2"}, {0, 3, "0"}, {-12.345, 3, "-12.3"}, {99.99, 3, "100"}, {1000000, 4, "1000000"},
	} {
		if got := Rounded(c.f, c.digits); got != c.want {
			t.Errorf("Rounded(%v, %d) = %s, want %s", c.f, c.digits, got, c.want)
		}
	}
	for v, want := range map[any]string{1e7: "10000000", 1e-6: "0.000001", 0.1: "0.1", "text": "text", true: "true", int64(7): "7"} {
		if got := PlainText(v); got != want {
			t.Errorf("PlainText(%v) = %s, want %s", v, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64Range(-1e30, 1e30).Draw(t, "f")
		digits := rapid.IntRange(1, 8).Draw(t, "digits")
		if got := Decimal(f); strings.ContainsAny(got, "eE") {
			t.Fatal(got)
		} else if back, err := strconv.ParseFloat(got, 64); err != nil || back != f {
			t.Fatalf("%v became %s", f, got)
		}
		got := Rounded(f, digits)
		back, err := strconv.ParseFloat(got, 64)
		if err != nil || strings.ContainsAny(got, "eE") || math.Abs(back-f) > math.Abs(f)*math.Pow(10, float64(1-digits)) {
			t.Fatalf("%v with %d digits became %s", f, digits, got)
		}
	})
}
