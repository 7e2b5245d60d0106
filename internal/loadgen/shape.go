package loadgen

import (
	"slices"
	"time"

	"assay/schemas"
)

// Bounds of a calibration: it is to cost a small part of the measurement only.
const (
	calibrationShare   = 20 // of the measurement's time, one part in this many
	calibrationMost    = time.Second
	calibrationLeast   = 200 * time.Millisecond
	calibrationStreams = 1000
)

// Shape follows what a load looked like, so that a calibration can repeat it.
type Shape struct {
	begun, ended []int64
	ttft, gap    histogram
}

// Add takes one record.
func (s *Shape) Add(r *schemas.RequestRecord) {
	if r.DispatchedNs == nil {
		return
	}
	s.begun, s.ended = append(s.begun, *r.DispatchedNs), append(s.ended, r.EndNs)
	if r.FirstTokenNs != nil {
		s.ttft.add(*r.FirstTokenNs - *r.DispatchedNs)
	}
	for i := 1; i < len(r.Chunks); i++ {
		s.gap.add(r.Chunks[i].AtNs - r.Chunks[i-1].AtNs)
	}
}

// Peak is the most requests that were in flight at once.
func (s *Shape) Peak() int {
	slices.Sort(s.begun)
	slices.Sort(s.ended)
	peak, done := 0, 0
	for i, at := range s.begun {
		for done < len(s.ended) && s.ended[done] <= at {
			done++
		}
		peak = max(peak, i+1-done)
	}
	return peak
}

// Plan is a calibration of this shape, or why there is to be none.
func (s *Shape) Plan() (plan CalibrationPlan, why string) {
	peak := s.Peak() // sorts
	if peak == 0 || s.ttft.n.Load() == 0 {
		return plan, "nothing was received"
	}
	took := time.Duration(s.ended[len(s.ended)-1] - s.begun[0])
	budget := min(took/calibrationShare, calibrationMost)
	if budget < calibrationLeast {
		return plan, "the measurement was too short to be worth one"
	}
	plan.Streams = min(peak, calibrationStreams)
	plan.TTFT = clamp(time.Duration(s.ttft.quantile(0.5)), time.Millisecond, budget/4)
	plan.Gap = clamp(time.Duration(s.gap.quantile(0.5)), time.Millisecond, budget/4)
	plan.Spread = budget / 4
	plan.Tokens = max(2, int((budget-plan.TTFT-plan.Spread)/plan.Gap))
	return plan, ""
}

func clamp(d, least, most time.Duration) time.Duration { return min(max(d, least), most) }
