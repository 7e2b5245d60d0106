package loadgen

// mark is when the bytes of one receive arrived: all of them after since and not
// after at, and those that came last at the stamp at, if it is exact. Times are
// nanoseconds after the anchor.
type mark struct {
	since, at int64
	exact     bool
}
