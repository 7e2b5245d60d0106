package metrics

import "math"

// MeanInterval is the mean of xs and its t interval at a confidence, for independent
// samples of a law close to normal. With fewer than two samples there is no
// interval, and ok is false.
func MeanInterval(xs []float64, confidence float64) (mean, low, high float64, ok bool) {
	mean, _ = Mean(xs)
	sd, enough := SampleStdDev(xs)
	if !enough || !(confidence > 0 && confidence < 1) {
		return mean, 0, 0, false
	}
	half := TQuantile(0.5+confidence/2, len(xs)-1) * sd / math.Sqrt(float64(len(xs)))
	return mean, mean - half, mean + half, true
}

// TQuantile is the p-quantile of Student's t with df degrees of freedom, 1 or more;
// NaN outside of 0 < p < 1.
func TQuantile(p float64, df int) float64 {
	switch {
	case !(p > 0 && p < 1) || df < 1:
		return math.NaN()
	case p == 0.5:
		return 0
	case p < 0.5:
		return -TQuantile(1-p, df)
	}
	low, high := 0.0, 1.0
	for tCDF(high, df) < p {
		low, high = high, 2*high
	}
	for range 200 {
		mid := low + (high-low)/2
		if mid <= low || mid >= high {
			break
		}
		if tCDF(mid, df) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return low + (high-low)/2
}

// tCDF is the distribution function of Student's t for t >= 0.
func tCDF(t float64, df int) float64 {
	n := float64(df)
	return 1 - 0.5*betaInc(n/2, 0.5, n/(n+t*t))
}

// betaInc is the regularized incomplete beta function, by its continued fraction
// (modified Lentz).
func betaInc(a, b, x float64) float64 {
	if x <= 0 {
		return 0
	}
	if x >= 1 {
		return 1
	}
	if x > (a+1)/(a+b+2) {
		return 1 - betaInc(b, a, 1-x)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	const tiny, steps = 1e-300, 500
	c, d := 1.0, 1/nonZero(1-(a+b)*x/(a+1), tiny)
	f := d
	for m := 1.0; m <= steps; m++ {
		k := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d = 1 / nonZero(1+k*d, tiny)
		c = nonZero(1+k/c, tiny)
		f *= c * d
		k = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d = 1 / nonZero(1+k*d, tiny)
		c = nonZero(1+k/c, tiny)
		step := c * d
		f *= step
		if math.Abs(step-1) < 1e-15 {
			break
		}
	}
	return front * f
}

func nonZero(v, tiny float64) float64 {
	if math.Abs(v) < tiny {
		return tiny
	}
	return v
}
