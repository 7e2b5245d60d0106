package loadgen

import "sync"

// mark is when the bytes of one read of a body arrived: all of them after since
// and not after at, and those that came last at the stamp at, if it is exact.
// Times are nanoseconds after the anchor.
type mark struct {
	since, at int64
	exact     bool
}

// fills follows what a connection received for one request. The transport reads
// the head of an answer in a goroutine of its own, hence the lock.
type fills struct {
	mu       sync.Mutex
	begun    int64 // when the connection was given to the request
	count    int   // receives so far
	first    int64 // stamp of the first
	last     int64 // stamp of the newest
	full     bool  // the newest filled its buffer
	floor    int64 // what comes next came after this
	since    int64 // the floor of the first receive that was not taken
	taken    int   // receives the body's reader has seen
	body     bool  // the body's reader has looked before
	read     mark  // what it was told
	unstated int   // receives without a stamp of the kernel's
}

func newFills(now int64) *fills { return &fills{begun: now, last: now, floor: now} }

// add notes a receive. Stamps of one connection never go back. A receive that
// filled its buffer may have left behind a part of what the kernel merged under
// one stamp: such a stamp is exact for nothing, and no floor for what comes next.
func (f *fills) add(at int64, kernel, full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at = max(at, f.last)
	if f.count == 0 {
		f.first = at
	}
	if f.count == f.taken {
		f.since = f.floor
	}
	f.count++
	f.last, f.full = at, full
	if !full {
		f.floor = at
	}
	if !kernel {
		f.unstated++
	}
}

// before is the stamp that the next one cannot precede.
func (f *fills) before() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// take tells when the bytes of the read that just returned arrived. A body's first
// read may return bytes that came with the head; then nothing is known of them but
// that they came after the request was sent.
func (f *fills) take() mark {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.body:
		f.body = true
		f.read = mark{since: f.begun, at: f.last, exact: !f.full}
	case f.count > f.taken:
		f.read = mark{since: f.since, at: f.last, exact: !f.full}
	}
	f.taken = f.count
	return f.read
}

// source is where the stamps come from, and that of the first byte, 0 for none.
func (f *fills) source() (source string, first int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 || f.unstated > 0 {
		return StampUser, f.first
	}
	return StampKernel, f.first
}
