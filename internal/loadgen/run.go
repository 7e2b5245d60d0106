package loadgen

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"assay/schemas"

	"golang.org/x/sync/semaphore"
)

const (
	// Bodies are built ahead of their time, as many as these allow.
	lookaheadRequests = 1024
	lookaheadBytes    = 64 << 20
	// The last stretch before a deadline is spent spinning: a timer alone is
	// late by about this much.
	spin = 60 * time.Microsecond
	// longestSleep is how long the end of a run may go unseen.
	longestSleep = 20 * time.Millisecond
	// serviceGrace is how long requests in flight have to fail by themselves
	// after the service is gone.
	serviceGrace = 2 * time.Second

	progressEvery = 200 * time.Millisecond
)

// Run sends opts.Requests, each at its AtNs after opts.Anchor (zero: a moment from
// now), and hands one record of each to sink, which is called from one goroutine
// in the order of their ends. It returns when every request has its record. When
// ctx ends, requests in flight are cancelled and the rest is not_sent; Run then
// returns ctx's cause. An error of sink stops the run in the same way and is
// returned.
//
// With opts.Concurrency the load is a closed loop instead: a request is sent as
// soon as fewer than that many are in flight, in the order given, and its
// scheduled time is that moment. With opts.MaxInFlight the loop is open, but a
// request that is due waits until fewer are in flight; its record says since when.
// With opts.Until a closed loop ends at a time.
//
// Requests of conversations are sent turn by turn, each after the answer to the one
// before it and its ThinkNs; its scheduled time is then. AtNs says when a
// conversation begins, and a limit counts conversations. A turn that was not
// answered ends its conversation.
func Run(ctx context.Context, opts Options, sink func(schemas.RequestRecord) error) error {
	if opts.Anchor.IsZero() {
		opts.Anchor = time.Now().Add(50 * time.Millisecond)
	}
	c, err := New(opts)
	if err != nil {
		return err
	}
	defer c.Close()
	r := &run{client: c, sink: sink, out: newOutbox(), hungry: make(chan struct{}, 1)}
	if n := max(opts.Concurrency, opts.MaxInFlight); n > 0 {
		r.slots = make(chan struct{}, n)
	}
	r.requests = slices.Clone(opts.Requests)
	slices.SortStableFunc(r.requests, func(a, b Request) int { return int(min(max(a.AtNs-b.AtNs, -1), 1)) })
	if err := checkRequests(r.requests); err != nil {
		return err
	}
	return r.all(ctx)
}

func checkRequests(reqs []Request) error {
	seen := make(map[int]bool, len(reqs))
	for _, q := range reqs {
		switch {
		case seen[q.Index]:
			return fmt.Errorf("schedule: index %d appears twice", q.Index)
		case q.AtNs < 0 || (q.InputTokens < 1 && q.Text == "") || q.OutputTokens < 1 || q.Model == "":
			return fmt.Errorf("schedule: request %s (index %d) has no model, or a negative time, or a length below 1", q.ID, q.Index)
		}
		seen[q.Index] = true
	}
	return nil
}

type run struct {
	client   *Client
	requests []Request
	sink     func(schemas.RequestRecord) error
	out      *outbox
	flight   sync.WaitGroup
	sent     atomic.Int64
	slots    chan struct{} // one value for each request in flight; nil without a limit
	freeNs   int64         // when the newest slot was got

	hungry   chan struct{} // has a value when half of what was built is taken
	pulling  sync.Mutex    // held by who takes the next request of a closed loop
	followUp func() bool   // starts the next request on the slot of one that ended; may be nil
}

func (r *run) all(ctx context.Context) error {
	// Two contexts: sending ends when either the caller or the service does,
	// what is in flight may go on for a moment after the service is gone.
	flight, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sending, stopSending := context.WithCancelCause(flight)
	defer stopSending(nil)
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { r.watchService(ended, stopSending, stop) })

	if until := r.client.opts.Until; until > 0 {
		over := time.AfterFunc(until-time.Duration(r.client.now()), func() {
			stopSending(errTimeOver)
			if r.client.opts.CutAtEnd {
				stop(errTimeOver)
			}
		})
		defer over.Stop()
	}
	var sinkErr error
	var collect sync.WaitGroup
	collect.Go(func() { sinkErr = r.collect(func() { stop(errStopped) }) })

	if r.client.wired() {
		r.client.lanes() //nolint:errcheck // before the first request's time; a request's record has the error
	}
	r.flight.Go(func() { r.dispatch(sending, flight) })
	r.flight.Wait()
	r.out.close()
	collect.Wait()
	close(ended)
	watch.Wait()
	if sinkErr != nil {
		return fmt.Errorf("request record: %w", sinkErr)
	}
	return context.Cause(ctx)
}

func (r *run) watchService(ended <-chan struct{}, stopSending, stop context.CancelCauseFunc) {
	select {
	case <-ended:
		return
	case <-r.client.opts.ServiceDone: // nil blocks for ever
	}
	stopSending(errServiceGone)
	grace := time.NewTimer(serviceGrace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		stop(errServiceGone)
	}
}

// collect hands the records on and tells the progress. After an error of sink it
// only drains.
func (r *run) collect(stop func()) error {
	progress := Progress{Total: len(r.requests)}
	tell := func() {
		if r.client.opts.Progress != nil {
			progress.Sent = int(r.sent.Load())
			r.client.opts.Progress(progress)
		}
	}
	tick := time.NewTicker(outboxDelay)
	defer tick.Stop()
	var err error
	told := time.Now()
	for {
		select {
		case <-tick.C:
		case <-r.out.some:
		}
		recs, more := r.out.take()
		for _, rec := range recs {
			progress.Done++
			if rec.Outcome != schemas.OutcomeOK {
				progress.Failed++
			}
			if err != nil {
				continue
			}
			if err = r.sink(*rec); err != nil {
				stop()
			}
		}
		if !more {
			tell()
			return err
		}
		if time.Since(told) >= progressEvery {
			told = time.Now()
			tell()
		}
	}
}

// dispatch starts each request at its turn, and accounts for those whose turn never
// came.
func (r *run) dispatch(sending, flight context.Context) {
	defer moreProcs(3)()
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	r.client.priority.Store(hotThread(!r.client.opts.NormalPriority))
	if talks := conversations(r.requests); talks != nil {
		r.converse(sending, flight, talks)
		return
	}
	ahead := semaphore.NewWeighted(lookaheadBytes)
	ready := make(chan prepared, lookaheadRequests)
	var build sync.WaitGroup
	build.Go(func() { r.build(sending, ahead, ready) })
	taken := func(p prepared) {
		ahead.Release(p.weight)
		if len(ready) <= lookaheadRequests/2 {
			select {
			case r.hungry <- struct{}{}:
			default:
			}
		}
	}
	if r.client.opts.Concurrency > 0 && r.client.wired() && r.requests[len(r.requests)-1].AtNs == 0 {
		r.circulate(sending, flight, ready, taken)
	} else {
		r.inTurn(sending, flight, ready, taken)
	}
	for range ready { // the builder ends by itself, its context has
	}
	build.Wait()
	if r.client.opts.Until > 0 {
		return // what is left was only prepared, its turn never came
	}
	why := r.whyNot(sending)
	for _, req := range r.requests[r.sent.Load():] {
		rec := r.newRecord(req)
		if r.client.opts.Concurrency > 0 {
			rec.ScheduledNs = r.client.now() // its turn never came
		}
		rec = r.client.notSent(rec, why)
		r.out.put(&rec)
	}
}

// inTurn starts each request at its turn. Without a limit it waits for nothing but
// time and the next body.
func (r *run) inTurn(sending, flight context.Context, ready <-chan prepared, taken func(prepared)) {
	for p := range ready {
		taken(p)
		if !r.turn(sending, p.rec) {
			return
		}
		r.start(flight, p)
	}
}

// markEnd says what became of a request that was in flight when the time was over.
func (r *run) markEnd(rec *schemas.RequestRecord) {
	until := int64(r.client.opts.Until)
	if until == 0 || rec.EndNs <= until {
		return
	}
	rec.AtEnd = schemas.AtEndDrained
	if r.client.opts.CutAtEnd && rec.Outcome == schemas.OutcomeCancelled {
		rec.AtEnd = schemas.AtEndCut
	}
}

func (r *run) newRecord(req Request) schemas.RequestRecord {
	rec := r.client.newRecord(req)
	rec.SwitchFrom, rec.Phase = req.SwitchFrom, req.Phase
	rec.Conversation, rec.Turn = req.Conversation, req.Turn
	return rec
}

// turn returns when a request is to be sent, or earlier with false when ctx ends.
func (r *run) turn(ctx context.Context, rec *schemas.RequestRecord) bool {
	if !r.waitUntil(ctx, rec.ScheduledNs) {
		return false
	}
	if r.slots == nil {
		return true
	}
	queued := r.client.now()
	if rec.ScheduledNs < r.freeNs {
		queued = rec.ScheduledNs // it came due while the one before it waited
	}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	r.freeNs = r.client.now()
	if until := int64(r.client.opts.Until); until > 0 && r.freeNs >= until {
		<-ctx.Done() // the timer is about to say so
		return false
	}
	if r.client.opts.Concurrency > 0 {
		rec.ScheduledNs = r.freeNs
	} else {
		rec.QueuedNs = &queued
	}
	return true
}

func (r *run) build(ctx context.Context, ahead *semaphore.Weighted, ready chan<- prepared) {
	defer close(ready)
	for _, req := range r.requests {
		rec := r.newRecord(req)
		p := r.client.prepare(&rec, r.client.body(req))
		if ahead.Acquire(ctx, p.weight) != nil {
			return
		}
		if len(ready) == cap(ready) { // woken for half of them at once, not for each
			select {
			case <-r.hungry:
			case <-ctx.Done():
				return
			}
		}
		select {
		case ready <- p:
		case <-ctx.Done():
			return
		}
	}
}

// waitUntil returns at the stamp, or earlier with false when ctx ends. It sleeps
// on its thread, and spins through the last stretch.
func (r *run) waitUntil(ctx context.Context, ns int64) bool {
	for ctx.Err() == nil {
		left := time.Duration(ns - r.client.now())
		switch {
		case left <= 0:
			return true
		case left > spin:
			threadSleep(min(left-spin, longestSleep))
		}
	}
	return false
}
