package loadgen

import "testing"

// A set clock is noticed, and stamps of the meantime are not trusted.
func TestClockSteps(t *testing.T) {
	mono, wall := int64(1000), int64(5_000_000)
	c := &stampClock{pair: func() (int64, int64) { mono += 100; return mono, wall + mono }}
	c.offset.Store(c.measure())
	if _, stepped := c.now(); stepped || c.mono(wall+42) != 42 {
		t.Errorf("stepped %v, a stamp of 42 is %d", stepped, c.mono(wall+42))
	}
	wall += 3_600_000_000_000
	if _, stepped := c.now(); !stepped || c.steps.Load() != 1 {
		t.Errorf("an hour's step was not noticed: %d steps", c.steps.Load())
	}
	if _, stepped := c.now(); stepped || c.mono(wall+42) != 42 {
		t.Errorf("after the step: stepped %v, a stamp of 42 is %d", stepped, c.mono(wall+42))
	}
	wall -= 7_200_000_000_000
	if _, stepped := c.now(); !stepped || c.steps.Load() != 2 {
		t.Error("a step back was not noticed")
	}
}

// A reading of the clocks that is interrupted is no step.
func TestClockInterrupted(t *testing.T) {
	n, mono := 0, int64(0)
	c := &stampClock{pair: func() (int64, int64) {
		n++
		mono += 100
		if n == 10 || n == 12 {
			return mono + 1_000_000, 7_000_000 + mono // a millisecond between the two
		}
		return mono, 7_000_000 + mono
	}}
	c.offset.Store(c.measure())
	if _, stepped := c.now(); stepped || c.steps.Load() != 0 {
		t.Error("an interrupted reading was taken for a step")
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	for ns := int64(1); ns <= 100_000; ns++ {
		h.add(ns)
	}
	for q, want := range map[float64]float64{0.5: 50_000, 0.99: 99_000} {
		if got := float64(h.quantile(q)); got < want || got > 1.13*want {
			t.Errorf("quantile %v is %v, want %v and up to an eighth more", q, got, want)
		}
	}
	if h.quantile(1) != 100_000 {
		t.Errorf("the largest is %d", h.quantile(1))
	}
	for i := range 400 {
		if end := bucketEnd(i); bucketOf(end) != i {
			t.Errorf("bucket %d ends at %d, which is in bucket %d", i, end, bucketOf(end))
		}
	}
}
