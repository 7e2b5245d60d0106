package metrics

import (
	"math"
	"slices"
)

// Sum adds xs in ascending order with a compensation term (Neumaier), so that
// the result does not depend on the order they came in. xs is not changed.
func Sum(xs []float64) float64 {
	return sumSorted(slices.Sorted(slices.Values(xs)))
}

func sumSorted(xs []float64) float64 {
	var sum, rest float64
	for _, x := range xs {
		t := sum + x
		if math.Abs(sum) >= math.Abs(x) {
			rest += (sum - t) + x
		} else {
			rest += (x - t) + sum
		}
		sum = t
	}
	return sum + rest
}

// Mean of xs; false for none.
func Mean(xs []float64) (float64, bool) {
	if len(xs) == 0 {
		return 0, false
	}
	return Sum(xs) / float64(len(xs)), true
}

// StdDev is the population standard deviation; false for no samples.
func StdDev(xs []float64) (float64, bool) {
	mean, ok := Mean(xs)
	if !ok {
		return 0, false
	}
	squares := make([]float64, len(xs))
	for i, x := range xs {
		squares[i] = (x - mean) * (x - mean)
	}
	return math.Sqrt(Sum(squares) / float64(len(xs))), true
}

// SampleStdDev is the standard deviation of a population that xs is a sample of
// (n-1 in the denominator): what is stated over trials. False below two samples.
func SampleStdDev(xs []float64) (float64, bool) {
	sd, ok := StdDev(xs)
	if !ok || len(xs) < 2 {
		return 0, false
	}
	n := float64(len(xs))
	return sd * math.Sqrt(n/(n-1)), true
}

// CV is the population standard deviation over the mean (no unit). It is 0 for an
// empty set and for a mean of zero, and then not defined.
func CV(xs []float64) (cv float64, defined bool) {
	mean, ok := Mean(xs)
	if !ok || mean == 0 {
		return 0, false
	}
	sd, _ := StdDev(xs)
	return sd / mean, true
}

// Floor is the smallest sample that can certify percentile p at 99 % confidence;
// 0 for a percentile that none is stated for.
// Source: MLPerf early stopping, as tabulated by mlcommons/endpoints.
func Floor(p float64) int {
	for _, f := range floors {
		if f.p == p {
			return f.n
		}
	}
	return 0
}

var floors = []struct {
	p float64
	n int
}{{50, 11}, {75, 24}, {80, 31}, {90, 64}, {95, 130}, {97, 219}, {99, 662}, {99.9, 6636}, {99.99, 66381}}

// Samples are what is known of one quantity over many requests.
type Samples struct {
	Values []float64
	// Limits are censored samples: each is known only to exceed its limit. They
	// rank above every value, in ascending order.
	Limits []float64
	// Dependent samples (gaps of one request) get no confidence interval.
	Dependent bool

	sorted bool
}

// Add appends a value.
func (s *Samples) Add(v float64) { s.Values, s.sorted = append(s.Values, v), false }

// AddCensored appends a sample that is known only to exceed limit.
func (s *Samples) AddCensored(limit float64) { s.Limits, s.sorted = append(s.Limits, limit), false }

// N is the number of samples, censored ones included.
func (s *Samples) N() int { return len(s.Values) + len(s.Limits) }

// Sort brings the samples in order; the functions below do it when it is due.
func (s *Samples) Sort() {
	if !s.sorted {
		slices.Sort(s.Values)
		slices.Sort(s.Limits)
		s.sorted = true
	}
}

// Percentile is type 7 (linear between order statistics), p in [0, 100], over all
// samples. When a rank it needs falls among the censored ones, censored is true
// and the result is a bound the percentile lies above: the limit at that rank, but
// never less than the largest value. ok is false for no samples.
func (s *Samples) Percentile(p float64) (v float64, censored, ok bool) {
	n := s.N()
	if n == 0 || math.IsNaN(p) || p < 0 || p > 100 {
		return 0, false, false
	}
	s.Sort()
	rank := float64(n-1) * p / 100
	lo := int(math.Floor(rank))
	hi := min(int(math.Ceil(rank)), n-1)
	k := len(s.Values)
	if hi >= k {
		bound := math.Inf(-1)
		if k > 0 {
			bound = s.Values[k-1]
		}
		if lo >= k || k == 0 {
			bound = max(bound, s.Limits[max(lo-k, 0)])
		}
		return bound, true, true
	}
	a, b := s.Values[lo], s.Values[hi]
	if a == b || lo == hi {
		return a, false, true
	}
	return min(max(a+(rank-float64(lo))*(b-a), a), b), false, true
}
