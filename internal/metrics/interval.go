package metrics

import "math"

// Confidence of the intervals beside percentiles.
const Confidence = 0.95

// OrderRanks are the ranks, from 1, of the order statistics between which the
// p-th percentile of a continuous law lies with at least the confidence asked, for
// n independent samples. How many samples lie below the percentile is binomial;
// each tail gets half of what may be missed. A low of 0 or a high of n+1 means that
// n is too small for a bound on that side.
func OrderRanks(p float64, n int, confidence float64) (low, high int) {
	q, tail := p/100, (1-confidence)/2
	if n < 1 || !(q > 0 && q < 1) {
		return 0, max(n, 0) + 1
	}
	// Beyond 12 deviations nothing is left that a float64 could tell.
	mean, sd := float64(n)*q, math.Sqrt(float64(n)*q*(1-q))
	from := max(0, int(mean-12*sd)-12)
	to := min(n, int(mean+12*sd)+12)
	high = n + 1
	cdf := 0.0
	for k := from; k <= to; k++ {
		// Before the addition cdf is P(B < k).
		if cdf <= tail {
			low = k
		}
		cdf += binomial(k, n, q)
		if cdf >= 1-tail {
			high = k + 1
			break
		}
	}
	return low, min(high, n+1)
}

func binomial(k, n int, q float64) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return math.Exp(a - b - c + float64(k)*math.Log(q) + float64(n-k)*math.Log1p(-q))
}

// Interval is the order-statistic interval of a percentile, nil for a bound that
// does not exist. When the upper bound falls among the censored samples, highAbove
// is the limit it lies above.
func (s *Samples) Interval(p float64) (low, high, highAbove *float64) {
	n, k := s.N(), len(s.Values)
	if n == 0 || s.Dependent {
		return nil, nil, nil
	}
	s.Sort()
	l, h := OrderRanks(p, n, Confidence)
	if l >= 1 && l <= k {
		low = &s.Values[l-1]
	}
	switch {
	case h > n:
	case h <= k:
		high = &s.Values[h-1]
	default:
		bound := s.Limits[h-1-k]
		if k > 0 {
			bound = max(bound, s.Values[k-1])
		}
		highAbove = &bound
	}
	return low, high, highAbove
}

// Trend is the Mann-Kendall statistic of a series, in standard deviations: how
// far it is from having no monotone trend. Ties are accounted for; it is 0 for
// fewer than three values, and for a series that never changes.
func Trend(xs []float64) float64 {
	n, score := len(xs), 0
	ties := map[float64]int{}
	for i, x := range xs {
		ties[x]++
		for _, y := range xs[:i] {
			switch {
			case x > y:
				score++
			case x < y:
				score--
			}
		}
	}
	variance := n * (n - 1) * (2*n + 5)
	for _, t := range ties {
		variance -= t * (t - 1) * (2*t + 5)
	}
	if n < 3 || variance <= 0 || score == 0 {
		return 0
	}
	// Continuity correction.
	if score > 0 {
		score--
	} else {
		score++
	}
	return float64(score) / math.Sqrt(float64(variance)/18)
}
