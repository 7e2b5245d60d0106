package loadgen

import "context"

// circulate is the closed loop of requests that are due as soon as there is room:
// what ends a request sends the next one at once, without waking another thread for
// it. Only what nothing was ready for is left to this loop.
func (r *run) circulate(sending, flight context.Context, ready <-chan prepared, taken func(prepared)) {
	r.followUp = func() bool {
		if !r.pulling.TryLock() { // the loop waits for a body, and will be next
			return false
		}
		defer r.pulling.Unlock()
		now, may := r.mayStart(sending)
		if !may {
			return false
		}
		select {
		case p, more := <-ready:
			if !more {
				return false
			}
			taken(p)
			p.rec.ScheduledNs = now
			r.start(flight, p)
			return true
		default:
			return false
		}
	}
	for r.waitUntil(sending, 0) {
		select {
		case r.slots <- struct{}{}:
		case <-sending.Done():
			return
		}
		if !r.pull(sending, flight, ready, taken) {
			return
		}
	}
}

// pull starts one request on a slot that was got.
func (r *run) pull(sending, flight context.Context, ready <-chan prepared, taken func(prepared)) bool {
	r.pulling.Lock()
	defer r.pulling.Unlock()
	p, more := <-ready
	now, may := r.mayStart(sending)
	if !more || !may {
		return false
	}
	taken(p)
	p.rec.ScheduledNs = now
	r.start(flight, p)
	return true
}

// mayStart says whether the time to begin requests is not over, and at which moment
// that is so: a request that begins is scheduled for that one. A later reading may be
// after the end, however soon it is taken.
func (r *run) mayStart(sending context.Context) (now int64, may bool) {
	until := int64(r.client.opts.Until)
	now = r.client.now()
	return now, sending.Err() == nil && (until == 0 || now < until)
}

// start sends a request that is due.
func (r *run) start(flight context.Context, p prepared) {
	r.sent.Add(1)
	r.flight.Add(1)
	r.client.launch(flight, p, func() {
		r.markEnd(p.rec)
		if r.slots != nil && (r.followUp == nil || !r.followUp()) {
			<-r.slots
		}
		r.out.put(p.rec)
		r.flight.Done()
	})
}
