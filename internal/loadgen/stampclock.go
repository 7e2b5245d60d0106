package loadgen

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stepTolerance is how far two readings of the clocks' distance may lie apart
	// without a step of the wall clock: a reading may be interrupted.
	stepTolerance = 20 * time.Microsecond
	// pairReadings is how many paired readings make one distance.
	pairReadings = 9
)

// stampClock maps the kernel's stamps, which are wall-clock times, to the
// monotonic clock of the anchor. Both clocks are slewed alike, so their distance
// changes only when the wall clock is set; that is a step.
type stampClock struct {
	pair   func() (mono, wall int64) // one reading of both, the wall clock first
	offset atomic.Int64              // wall minus mono
	steps  atomic.Int64
	mu     sync.Mutex
}

// WallAnchor is an anchor on the wall clock, in ns: of several readings the best,
// so that times of two processes can be held against each other.
func WallAnchor(anchor time.Time) int64 { return newStampClock(anchor).offset.Load() }

func newStampClock(anchor time.Time) *stampClock {
	c := &stampClock{pair: func() (int64, int64) {
		t := time.Now() // reads the wall clock, then the monotonic one
		return int64(t.Sub(anchor)), t.UnixNano()
	}}
	c.offset.Store(c.measure())
	return c
}

// measure is the largest distance of several readings: what comes between the two
// clocks of a reading only makes it smaller.
func (c *stampClock) measure() int64 {
	var best int64
	for i := range pairReadings {
		mono, wall := c.pair()
		if d := wall - mono; i == 0 || d > best {
			best = d
		}
	}
	return best
}

// mono is a wall-clock stamp on the monotonic clock.
func (c *stampClock) mono(wall int64) int64 { return wall - c.offset.Load() }

// now reads both clocks. stepped says that the wall clock was set since the last
// reading, so that a stamp of the meantime means nothing certain.
func (c *stampClock) now() (mono int64, stepped bool) {
	mono, wall := c.pair()
	d := time.Duration(wall - mono - c.offset.Load())
	if d.Abs() <= stepTolerance {
		return mono, false
	}
	return mono, c.again()
}

// again measures anew and says whether the clock was set.
func (c *stampClock) again() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.measure()
	if time.Duration(d-c.offset.Load()).Abs() <= stepTolerance {
		return false
	}
	c.offset.Store(d)
	c.steps.Add(1)
	return true
}
