package loadgen

import (
	"math"
	"math/bits"
	"sync/atomic"

	"assay/schemas"
)

// histogram counts durations in ns, in buckets of an eighth of their size at most.
// It may be added to from several goroutines and never allocates.
type histogram struct {
	buckets [64 * 8]atomic.Int64
	n, max  atomic.Int64
}

func (h *histogram) add(ns int64) { h.addN(ns, 1) }

func (h *histogram) addN(ns, n int64) {
	ns = max(ns, 0)
	h.buckets[bucketOf(ns)].Add(n)
	h.n.Add(n)
	for old := h.max.Load(); ns > old && !h.max.CompareAndSwap(old, ns); old = h.max.Load() {
	}
}

// bucketOf is the place of a duration: its power of two, and the three bits after
// the first.
func bucketOf(ns int64) int {
	if ns < 8 {
		return int(ns)
	}
	e := bits.Len64(uint64(ns)) - 1
	return (e-2)*8 + int(ns>>(e-3))&7
}

// bucketEnd is the largest duration of a bucket.
func bucketEnd(i int) int64 {
	if i < 8 {
		return int64(i)
	}
	e := i/8 + 2
	if e >= 62 {
		return math.MaxInt64
	}
	return int64(8+i%8+1)<<(e-3) - 1
}

// quantile is the end of the bucket that the nearest rank falls in, in ns.
func (h *histogram) quantile(q float64) int64 {
	n := h.n.Load()
	rank := int64(math.Ceil(q * float64(n)))
	for i := range h.buckets {
		if rank -= h.buckets[i].Load(); rank <= 0 && n > 0 {
			return min(bucketEnd(i), h.max.Load())
		}
	}
	return 0
}

// spread is the histogram in milliseconds, nil if it is empty.
func (h *histogram) spread() *schemas.Spread {
	if h.n.Load() == 0 {
		return nil
	}
	return &schemas.Spread{N: h.n.Load(), P50: ms(h.quantile(0.5)), P99: ms(h.quantile(0.99)), Max: ms(h.max.Load())}
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
