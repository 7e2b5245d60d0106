package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"assay/schemas"
)

// The processes of arrival.
const (
	ProcessConstant = "constant"
	ProcessPoisson  = "poisson"
	ProcessGamma    = "gamma"
	ProcessOnOff    = "on-off"
	ProcessRamp     = "ramp"
)

// CheckProcess says what is wrong with the description of a process.
func CheckProcess(p schemas.ArrivalProcess) error {
	if !(p.Rate >= 0) || math.IsInf(p.Rate, 0) {
		return fmt.Errorf("arrival: rate = %s, want requests per second", schemas.Decimal(p.Rate))
	}
	foreign := func(set bool, key, of string) error {
		if set && p.Process != of {
			return fmt.Errorf("arrival: %s belongs to process %q, not to %q: leave it out", key, of, p.Process)
		}
		return nil
	}
	if err := errors.Join(foreign(p.Shape != 0, "shape", ProcessGamma), foreign(p.OnMs != 0, "on", ProcessOnOff), foreign(p.OffMs != 0, "off", ProcessOnOff),
		foreign(p.OffRate != 0, "off_rate", ProcessOnOff), foreign(p.ToRate != 0, "to_rate", ProcessRamp), foreign(p.OverMs != 0, "over", ProcessRamp)); err != nil {
		return err
	}
	switch p.Process {
	case ProcessConstant, ProcessPoisson:
	case ProcessGamma:
		if !(p.Shape > 0) {
			return errors.New("arrival: process gamma needs its shape: 1 is poisson, below it burstier")
		}
	case ProcessOnOff:
		if !(p.OnMs > 0) || !(p.OffMs > 0) {
			return errors.New("arrival: process on-off needs on and off, the lengths of a burst and of the pause after it")
		}
	case ProcessRamp:
		if !(p.OverMs > 0) || p.Rate+p.ToRate == 0 {
			return errors.New("arrival: process ramp needs over, the time it takes, and rate or to_rate above 0")
		}
		return nil
	default:
		return fmt.Errorf("arrival: process %q: want constant, poisson, gamma, on-off or ramp", p.Process)
	}
	if p.Rate == 0 {
		return errors.New("arrival: rate is 0: nothing would ever arrive")
	}
	return nil
}

// Arrivals draws arrival times in nanoseconds from 0: n of them, or those before
// span when n is 0. They are never rescaled, so that a Poisson process is one: its
// count within a span varies as it should.
func Arrivals(p schemas.ArrivalProcess, n int, span time.Duration, seed uint64) ([]int64, error) {
	if err := CheckProcess(p); err != nil {
		return nil, err
	}
	if n <= 0 && span <= 0 {
		return nil, errors.New("arrival: neither requests nor duration says when it ends: give one of them")
	}
	r := NewRand(seed, "arrival/"+p.Process)
	next := clock(p, r)
	var out []int64
	for n <= 0 || len(out) < n {
		at := next()
		if n <= 0 && at >= span.Seconds() {
			break
		}
		if at > maxOffset.Seconds() {
			if n <= 0 {
				break
			}
			return nil, fmt.Errorf("arrival: request %d of %d would arrive after %s: raise the rate or ask for fewer", len(out)+1, n, maxOffset)
		}
		if len(out) == DefaultMaxRows {
			return nil, fmt.Errorf("arrival: more than %d requests within %s: lower the rate or the duration", DefaultMaxRows, span)
		}
		out = append(out, int64(math.Round(at*1e9)))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("arrival: nothing arrives within %s at this rate and seed: raise the rate or the duration", span)
	}
	return out, nil
}

// clock returns a function that gives the time of the next arrival, in seconds.
func clock(p schemas.ArrivalProcess, r *rand.Rand) func() float64 {
	var at, mass float64
	switch p.Process {
	case ProcessConstant:
		i := -1
		return func() float64 { i++; return float64(i) / p.Rate }
	case ProcessPoisson:
		return func() float64 { at += r.ExpFloat64() / p.Rate; return at }
	case ProcessGamma:
		return func() float64 { at += gamma(r, p.Shape) / (p.Shape * p.Rate); return at }
	case ProcessOnOff:
		return func() float64 { mass += r.ExpFloat64(); return onOffTime(p, mass) }
	}
	return func() float64 { mass += r.ExpFloat64(); return rampTime(p, mass) }
}

// onOffTime is when the expected number of arrivals reaches mass. A process whose
// rate varies is a unit Poisson process seen through this function.
func onOffTime(p schemas.ArrivalProcess, mass float64) float64 {
	on, off := p.OnMs/1e3, p.OffMs/1e3
	inOn, inOff := on*p.Rate, off*p.OffRate
	cycles := math.Floor(mass / (inOn + inOff))
	rest := mass - cycles*(inOn+inOff)
	at := cycles * (on + off)
	if rest <= inOn {
		return at + rest/p.Rate
	}
	return at + on + (rest-inOn)/p.OffRate
}

// rampTime is the same for a rate that goes linearly from Rate to ToRate and
// stays there: the root of Rate t + slope t^2 / 2 = mass. With ToRate = 0 the ramp
// holds finitely many arrivals; beyond them the time is infinite.
func rampTime(p schemas.ArrivalProcess, mass float64) float64 {
	over := p.OverMs / 1e3
	whole := (p.Rate + p.ToRate) / 2 * over
	if mass > whole {
		return over + (mass-whole)/p.ToRate
	}
	slope := (p.ToRate - p.Rate) / over
	// In this form nothing cancels and slope may be 0.
	return 2 * mass / (p.Rate + math.Sqrt(math.Max(0, p.Rate*p.Rate+2*slope*mass)))
}

// gamma draws from the gamma distribution of a shape and scale 1 (Marsaglia and
// Tsang, 2000; for shapes below 1 by a power of a uniform number).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(1-r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-r.Float64()) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
