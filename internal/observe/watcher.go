package observe

import (
	"context"
	"errors"
	"runtime"
	"time"

	"assay/schemas"

	"golang.org/x/sys/unix"
)

// looker is a source that is looked at again and again.
type looker interface {
	// before makes the look before the first request. Its error says why the
	// source is unknown.
	before(ctx context.Context) error
	// look makes one meanwhile, after the one after the last answer.
	look(ctx context.Context, w when) error
	after(ctx context.Context) error
	// finish closes files; it is called even if before failed.
	finish() error
	// summarize adds what was seen.
	summarize(out *schemas.Observed)
}

// writeError says that a file could not be written: the fault of this machine.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// watcher runs a looker on a goroutine and thread of its own.
type watcher struct {
	looker
	st       *schemas.ObservedSource
	interval time.Duration

	ready chan error     // one value: what before said
	zero  chan time.Time // one value: the clock's zero
	end   chan context.Context
	done  chan struct{}
	cpu   time.Duration // valid once done is closed
	ended error         // likewise: of after
}

func watch(ctx context.Context, l looker, st *schemas.ObservedSource, interval time.Duration) *watcher {
	w := &watcher{looker: l, st: st, interval: interval,
		ready: make(chan error, 1), zero: make(chan time.Time, 1), end: make(chan context.Context, 1), done: make(chan struct{})}
	go w.run(ctx)
	return w
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	defer lockThread(&w.cpu)()
	err := w.before(ctx)
	w.note(err)
	w.ready <- err
	if err != nil {
		return
	}
	var last context.Context
	select {
	case zero := <-w.zero:
		last = w.loop(ctx, zero)
	case last = <-w.end: // abandoned (nil), or ended before this goroutine ran again
	}
	if last != nil {
		w.ended = w.after(last)
		w.note(w.ended)
	}
}

// loop looks half an interval off the clock's zero and then at every interval,
// until it is told to end; it returns the context of the last look. Looks are
// never made up for, and come at ever longer distances while they fail.
func (w *watcher) loop(ctx context.Context, zero time.Time) context.Context {
	next, failed := zero.Add(w.interval/2), 0
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case last := <-w.end:
			return last
		case <-timer.C:
		}
		err := w.look(ctx, meanwhile)
		if w.note(err); err != nil {
			failed = min(failed+1, 5)
		} else {
			failed = 0
		}
		step := w.interval << max(0, failed-1) // one failure delays nothing
		for next = next.Add(step); time.Until(next) <= 0; next = next.Add(w.interval) {
			w.st.Skipped++
		}
		w.st.Skipped += int64(step/w.interval) - 1
		timer.Reset(time.Until(next))
	}
}

// note counts a look.
func (w *watcher) note(err error) {
	if err == nil {
		w.st.Looks++
		return
	}
	if errors.Is(err, errFull) {
		w.st.Looks++
	} else {
		w.st.Errors++
	}
	w.st.LastError = err.Error()
}

// threadTime is the processor time of the calling thread, 0 where it is not told.
func threadTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(rusageThread, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lockThread keeps the calling goroutine on its thread until the function it
// returns is called, which adds the thread's processor time.
func lockThread(cpu *time.Duration) func() {
	runtime.LockOSThread()
	from := threadTime()
	return func() {
		*cpu += threadTime() - from
		runtime.UnlockOSThread()
	}
}
