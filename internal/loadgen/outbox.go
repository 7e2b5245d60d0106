package loadgen

import (
	"sync"
	"time"

	"assay/schemas"
)

// outboxLimit is how many complete records may wait for the sink before they hold
// up what completes them.
const outboxLimit = 1 << 16

// A sink is told at once of this many records, and after outboxDelay of fewer: a
// goroutine that is woken for each costs more than the request.
const (
	outboxBatch = 256
	outboxDelay = 20 * time.Millisecond
)

// outbox hands complete records on without holding up the thread that completed
// them.
type outbox struct {
	some chan struct{} // has a value when there is much to take, or all of it

	mu     sync.Mutex
	room   sync.Cond
	recs   []*schemas.RequestRecord
	closed bool
}

func newOutbox() *outbox {
	o := &outbox{some: make(chan struct{}, 1)}
	o.room.L = &o.mu
	return o
}

func (o *outbox) put(rec *schemas.RequestRecord) {
	o.mu.Lock()
	for len(o.recs) >= outboxLimit {
		o.room.Wait()
	}
	o.recs = append(o.recs, rec)
	many := len(o.recs) == outboxBatch
	o.mu.Unlock()
	if many {
		o.tell()
	}
}

func (o *outbox) tell() {
	select {
	case o.some <- struct{}{}:
	default:
	}
}

// close says that nothing more comes.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.tell()
}

// take returns what there is; more is false once all was taken.
func (o *outbox) take() (recs []*schemas.RequestRecord, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	recs, o.recs = o.recs, nil
	o.room.Broadcast()
	return recs, !o.closed
}
