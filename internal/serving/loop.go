package serving

import "context"

// Clock is the time an event loop lives in.
type Clock interface {
	// Until returns once the clock stands at atMs or later, or with ctx's cause.
	Until(ctx context.Context, atMs int64) error
}

// Virtual is the clock of a simulation: every moment is there at once.
type Virtual struct{}

// Until returns at once.
func (Virtual) Until(ctx context.Context, _ int64) error { return context.Cause(ctx) }

// event wakes a worker. Events are ordered by time and then by creation.
type event struct {
	atMs int64
	seq  uint64
	who  worker
}

// events is a binary heap; every worker has at most one event in it.
type events struct {
	heap []event
	seq  uint64
}

func (e *events) less(i, j int) bool {
	a, b := &e.heap[i], &e.heap[j]
	return a.atMs < b.atMs || (a.atMs == b.atMs && a.seq < b.seq)
}

func (e *events) push(atMs int64, who worker) {
	e.seq++
	e.heap = append(e.heap, event{atMs, e.seq, who})
	for i := len(e.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !e.less(i, up) {
			break
		}
		e.heap[i], e.heap[up] = e.heap[up], e.heap[i]
		i = up
	}
}

func (e *events) pop() event {
	top, last := e.heap[0], len(e.heap)-1
	e.heap[0] = e.heap[last]
	e.heap[last] = event{}
	e.heap = e.heap[:last]
	for i := 0; ; {
		least, left, right := i, 2*i+1, 2*i+2
		if left < last && e.less(left, least) {
			least = left
		}
		if right < last && e.less(right, least) {
			least = right
		}
		if least == i {
			return top
		}
		e.heap[i], e.heap[least] = e.heap[least], e.heap[i]
		i = least
	}
}
