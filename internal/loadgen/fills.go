package loadgen

import "sync"

// mark is when the bytes of one read of a body arrived: those that came last at
// the stamp at, the others after since and not after at. Times are nanoseconds
// after the anchor.
type mark struct {
	since, at int64
}

// fills follows what a connection received for one request. The transport reads
// the head of an answer in a goroutine of its own, hence the lock.
type fills struct {
	mu       sync.Mutex
	begun    int64 // when the connection was given to the request
	count    int   // receives so far
	first    int64 // stamp of the first
	last     int64 // stamp of the newest
	taken    int   // receives the body's reader has seen
	body     bool  // the body's reader has looked before
	read     mark  // what it was told
	unstated int   // receives without a stamp of the kernel's
}

func newFills(now int64) *fills { return &fills{begun: now, last: now, read: mark{now, now}} }

// add notes a receive. Stamps of one connection never go back.
func (f *fills) add(at int64, kernel bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at = max(at, f.last)
	if f.count == 0 {
		f.first = at
	}
	f.count++
	f.last = at
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
		f.read = mark{since: f.begun, at: f.last}
	case f.count > f.taken:
		f.read = mark{since: f.read.at, at: f.last}
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
