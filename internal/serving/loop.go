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
	// hole says that the event at the top is being handled: what comes next, most
	// often the same worker's, takes its place.
	hole bool
}

func (e *event) before(o *event) bool {
	return e.atMs < o.atMs || (e.atMs == o.atMs && e.seq < o.seq)
}

func (e *events) push(atMs int64, who worker) {
	e.seq++
	next := event{atMs, e.seq, who}
	if e.hole {
		e.hole = false
		e.down(next)
		return
	}
	e.heap = append(e.heap, next)
	i := len(e.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !next.before(&e.heap[up]) {
			break
		}
		e.heap[i] = e.heap[up]
		i = up
	}
	e.heap[i] = next
}

// take returns the first event, which is to be handled and then dropped.
func (e *events) take() event {
	e.hole = true
	return e.heap[0]
}

// drop removes what was taken, unless something took its place.
func (e *events) drop() {
	if !e.hole {
		return
	}
	e.hole = false
	last := len(e.heap) - 1
	moved := e.heap[last]
	e.heap[last] = event{}
	e.heap = e.heap[:last]
	if last > 0 {
		e.down(moved)
	}
}

// down puts an event at the top and lets it sink to its place.
func (e *events) down(x event) {
	i := 0
	for {
		least := 2*i + 1
		if least >= len(e.heap) {
			break
		}
		if right := least + 1; right < len(e.heap) && e.heap[right].before(&e.heap[least]) {
			least = right
		}
		if !e.heap[least].before(&x) {
			break
		}
		e.heap[i] = e.heap[least]
		i = least
	}
	e.heap[i] = x
}
