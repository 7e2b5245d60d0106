package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"assay/schemas"
)

// Wall is the clock on the wall: time 0 of the system is Origin, and Scale
// milliseconds of the system pass in one. A Scale of 0 is 1.
type Wall struct {
	Origin time.Time
	Scale  float64
}

// At is when the clock stands at ms.
func (w Wall) At(ms int64) time.Time {
	return w.Origin.Add(time.Duration(min(float64(ms)*1e6/cmp.Or(w.Scale, 1), math.MaxInt64/4)))
}

// Ms is the system's time at t, to the nearest millisecond.
func (w Wall) Ms(t time.Time) int64 {
	return int64(math.Round(min(float64(t.Sub(w.Origin))*cmp.Or(w.Scale, 1)/1e6, float64(maxMs))))
}

// Until waits.
func (w Wall) Until(ctx context.Context, atMs int64) error {
	timer := time.NewTimer(time.Until(w.At(atMs)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ErrStopped says that a live system serves no more.
var ErrStopped = errors.New("the serving system has stopped")

// Live is a system on the wall clock: requests come while it runs, tokens are
// handed out when they are due, and a request may be cancelled. It decides by the
// same code as a simulation; one goroutine, that of Run, owns it.
type Live struct {
	wall    Wall
	system  *System
	calls   chan func()
	stopped chan struct{}
	tickets map[int]*Ticket
	under   map[int]*request
	next    int
	firedMs int64 // time of the last event that was handled
}

// NewLive makes a live system whose time begins now and passes scale times as fast
// as the wall's.
func NewLive(cfg Config, scale float64) (*Live, error) {
	if !(scale > 0) || math.IsInf(scale, 0) {
		return nil, fmt.Errorf("serving: time scale %s: want more than 0", schemas.Decimal(scale))
	}
	l := &Live{wall: Wall{Origin: time.Now(), Scale: scale}, calls: make(chan func()), stopped: make(chan struct{}), tickets: map[int]*Ticket{}, under: map[int]*request{}, firedMs: -1}
	s, err := NewOn(l.wall, cfg)
	if err != nil {
		return nil, err
	}
	l.system = s
	s.each = func(r Request, timesMs ...int64) {
		if t := l.tickets[r.Index]; t != nil {
			t.made(l.wall, timesMs)
		}
	}
	s.sink = func(o Outcome) error {
		if t := l.tickets[o.Index]; t != nil {
			t.finish(o.Why)
		}
		delete(l.tickets, o.Index)
		delete(l.under, o.Index)
		return nil
	}
	return l, nil
}

// Wall is the system's clock.
func (l *Live) Wall() Wall { return l.wall }

// Observe hands every event to f, in order. It is called before Run.
func (l *Live) Observe(f func(Event)) { l.system.Observe(f) }

// Run serves until ctx ends, when every request that is left fails with ErrStopped.
func (l *Live) Run(ctx context.Context) {
	defer func() {
		close(l.stopped)
		for _, t := range l.tickets {
			t.stop()
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if at, ok := l.system.nextMs(); ok {
			wait := time.Until(l.wall.At(at))
			if wait <= 0 { // calls come first: whoever is late must not keep them out
				select {
				case <-ctx.Done():
					return
				case f := <-l.calls:
					f()
				default:
					l.fire()
				}
				continue
			}
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
			l.fire()
		case f := <-l.calls:
			f()
		}
	}
}

// Do runs f while nothing else touches the system. It returns ErrStopped once the
// system serves no more.
func (l *Live) Do(f func(*System)) error {
	done := make(chan struct{})
	call := func() {
		defer close(done)
		f(l.system)
	}
	select {
	case l.calls <- call:
		<-done
		return nil
	case <-l.stopped:
		return ErrStopped
	}
}

// DoNow is Do once everything that is due has been handled, so that what f begins
// begins now.
func (l *Live) DoNow(f func(*System)) error {
	return l.Do(func(s *System) {
		s.nowMs = l.catchUp(min(l.wall.Ms(time.Now()), maxMs))
		f(s)
	})
}

// Stopped is closed when the system serves no more.
func (l *Live) Stopped() <-chan struct{} { return l.stopped }

func (l *Live) fire() {
	l.system.fire()
	l.firedMs = l.system.nowMs
}

// catchUp handles what was due before atMs, so that a call sees the system as it
// is then, and returns the time of an arrival. That of one that comes late is moved
// behind what has been handled: what was served is then, to the millisecond, what a
// simulation of the arrivals as they were taken in gives.
func (l *Live) catchUp(atMs int64) int64 {
	for {
		next, ok := l.system.nextMs()
		if !ok || next >= atMs {
			break
		}
		l.fire()
	}
	return max(atMs, l.system.nowMs, l.firedMs+1)
}

// Submit takes in a request that arrived at the given time. A request that cannot
// be served comes back with a failed ticket. The ticket's request carries the time
// of the system at which it came.
func (l *Live) Submit(model, inputTokens, outputTokens int, arrived time.Time) (*Ticket, error) {
	t := &Ticket{live: l, wake: make(chan struct{}, 1)}
	var err error
	stopped := l.Do(func(s *System) {
		t.Request = Request{Index: l.next, Model: model, AtMs: l.catchUp(l.wall.Ms(arrived)), InputTokens: inputTokens, OutputTokens: outputTokens}
		l.next++
		l.tickets[t.Index] = t
		var r *request
		if r, err = s.arrive(t.Request); err != nil || r.done {
			delete(l.tickets, t.Index)
			return
		}
		l.under[t.Index] = r
	})
	if stopped != nil {
		return nil, stopped
	}
	if err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	return t, nil
}

// Ticket is a request of a live system, for whoever waits for its tokens.
type Ticket struct {
	Request
	live *Live

	mu   sync.Mutex
	due  []time.Time
	end  error // why no more tokens come
	wake chan struct{}
}

// Failed is a request that ended without its tokens.
type Failed struct{ Why Failure }

func (f *Failed) Error() string { return "the request failed: " + string(f.Why) }

var errFinished = errors.New("there is no such token: the request has finished")

func (t *Ticket) made(w Wall, timesMs []int64) {
	t.mu.Lock()
	for _, ms := range timesMs {
		t.due = append(t.due, w.At(ms))
	}
	t.mu.Unlock()
	t.signal()
}

func (t *Ticket) finish(why Failure) {
	end := errFinished
	if why != "" {
		end = &Failed{Why: why}
	}
	t.close(end)
}

func (t *Ticket) stop() { t.close(ErrStopped) }

func (t *Ticket) close(end error) {
	t.mu.Lock()
	t.end = end
	t.mu.Unlock()
	t.signal()
}

func (t *Ticket) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Token waits until token i, from 0, has been made and returns the time at which it
// was due. The error is *Failed, ErrStopped or ctx's cause. One goroutine at a time
// may wait.
func (t *Ticket) Token(ctx context.Context, i int) (time.Time, error) {
	for {
		t.mu.Lock()
		n, end := len(t.due), t.end
		if i < n {
			at := t.due[i]
			t.mu.Unlock()
			return at, nil
		}
		t.mu.Unlock()
		if end != nil {
			return time.Time{}, end
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}

// Err is why no more tokens come, if it has been decided: nil while the request is
// under way or after its last token.
func (t *Ticket) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(t.end, errFinished) {
		return nil
	}
	return t.end
}

// Cancel ends a request whose client has gone. It is no error if it has ended.
func (t *Ticket) Cancel() {
	_ = t.live.Do(func(s *System) { // a system that has stopped has cancelled all
		t.live.catchUp(min(t.live.wall.Ms(time.Now()), maxMs))
		if r := t.live.under[t.Index]; r != nil {
			s.cancel(r)
		}
	})
}

// cancel ends a request that is under way.
func (s *System) cancel(r *request) {
	if r.done {
		return
	}
	s.fail(r, FailedCancelled)
	if r.home != nil {
		r.home.lost(r)
	}
}

// Cancelled is how many requests were cancelled.
func (s *System) Cancelled() int { return s.cancelled }
