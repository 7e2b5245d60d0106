package metrics

import (
	"errors"
	"fmt"
	"math"

	"assay/schemas"
)

// PowerSample is the power of one device at one time.
type PowerSample struct {
	AtNs  int64
	Watts float64
}

// ErrEnergyUndefined is in the chain of errors of Energy.
var ErrEnergyUndefined = errors.New("energy is undefined")

// Energy is the integral of a device's power over [fromNs, toNs] by the trapezoid
// rule, in joules. Samples are in order of time; those outside bound the ends. It is
// undefined, never 0, with fewer than two samples, a gap of more than twice the
// period, within or at an end, a sample that is negative or no number, or times
// that do not grow.
func Energy(samples []PowerSample, fromNs, toNs, periodNs int64) (joules float64, err error) {
	undefined := func(format string, args ...any) (float64, error) {
		return 0, fmt.Errorf("%w: %s", ErrEnergyUndefined, fmt.Sprintf(format, args...))
	}
	for i, s := range samples {
		if s.Watts < 0 || math.IsNaN(s.Watts) || math.IsInf(s.Watts, 0) {
			return undefined("sample %d is %s W", i, schemas.Decimal(s.Watts))
		}
		if i > 0 && s.AtNs <= samples[i-1].AtNs {
			return undefined("sample %d is not after the one before", i)
		}
	}
	samples = cutPower(samples, fromNs, toNs, 2*periodNs)
	switch n := len(samples); {
	case n < 2:
		return undefined("%d samples in the window", n)
	case toNs <= fromNs:
		return undefined("the window is empty")
	case samples[0].AtNs-fromNs > 2*periodNs || toNs-samples[n-1].AtNs > 2*periodNs:
		return undefined("the samples do not reach to the ends of the window")
	}
	for i, b := range samples {
		if i == 0 {
			joules += b.Watts * seconds(b.AtNs-fromNs)
			continue
		}
		a := samples[i-1]
		if b.AtNs-a.AtNs > 2*periodNs {
			return undefined("no sample for %.3f s", seconds(b.AtNs-a.AtNs))
		}
		joules += (a.Watts + b.Watts) / 2 * seconds(b.AtNs-a.AtNs)
	}
	last := samples[len(samples)-1]
	return joules + last.Watts*seconds(toNs-last.AtNs), nil
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// cutPower cuts samples to a window. Where two samples no further apart than maxNs
// stand around an end, their line gives the power there.
func cutPower(samples []PowerSample, fromNs, toNs, maxNs int64) []PowerSample {
	var out []PowerSample
	for i, b := range samples {
		if i > 0 {
			a := samples[i-1]
			for _, end := range []int64{fromNs, toNs} {
				if a.AtNs < end && end < b.AtNs && b.AtNs-a.AtNs <= maxNs {
					share := float64(end-a.AtNs) / float64(b.AtNs-a.AtNs)
					out = append(out, PowerSample{end, a.Watts + share*(b.Watts-a.Watts)})
				}
			}
		}
		if fromNs <= b.AtNs && b.AtNs <= toNs {
			out = append(out, b)
		}
	}
	return out
}
