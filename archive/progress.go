package archive

import (
	"context"
	"sync/atomic"
	"time"
)

// Phases of long operations.
const (
	PhaseScan    = "scan"    // listing a folder; its total is not known
	PhaseStore   = "store"   // reading files into the store
	PhaseVerify  = "verify"  // reading blobs, or an extracted run's files
	PhaseExtract = "extract" // writing files
	PhaseExport  = "export"  // writing a tar
	PhaseSync    = "sync"    // waiting for the disk; it has no length
	PhaseMark    = "mark"    // reading what runs need
	PhaseCheck   = "check"   // reading what is remembered of blobs
	PhaseDelete  = "delete"  // deleting blobs
)

// Progress says how far a long operation is. Total is 0 when it is not known.
type Progress struct {
	Phase       string
	Done, Total int64 // bytes; entries for PhaseScan, runs for PhaseMark
}

// Counts says that Done and Total are no bytes.
func (p Progress) Counts() bool { return p.Phase == PhaseScan || p.Phase == PhaseMark }

type progressKey struct{}

// WithProgress lets PutTree, CheckTree, Materialize, Verify, Extract, SaveTar,
// Fsck, Collect, Usage and Remove called with the returned context report to fn: at most ten times a second, at the
// beginning and the end of each phase, from any goroutine but never twice at
// once. fn must return quickly.
func WithProgress(ctx context.Context, fn func(Progress)) context.Context {
	return context.WithValue(ctx, progressKey{}, fn)
}

// meter counts for one phase. A nil meter counts nothing.
type meter struct {
	fn    func(Progress)
	phase string
	total int64
	done  atomic.Int64
	next  atomic.Int64 // when to report again, in Unix nanoseconds
	busy  atomic.Bool
}

const progressEvery = 100 * time.Millisecond

func newMeter(ctx context.Context, phase string, total int64) *meter {
	fn, _ := ctx.Value(progressKey{}).(func(Progress))
	if fn == nil {
		return nil
	}
	m := &meter{fn: fn, phase: phase, total: total}
	m.next.Store(time.Now().Add(progressEvery).UnixNano())
	fn(Progress{phase, 0, total})
	return m
}

func (m *meter) add(n int64) {
	if m == nil {
		return
	}
	done, now := m.done.Add(n), time.Now().UnixNano()
	if now < m.next.Load() || !m.busy.CompareAndSwap(false, true) {
		return
	}
	m.next.Store(now + int64(progressEvery))
	m.fn(Progress{m.phase, done, m.total})
	m.busy.Store(false)
}

// end reports the last state. All adding must be over.
func (m *meter) end() {
	if m != nil {
		m.fn(Progress{m.phase, m.done.Load(), m.total})
	}
}

// Write lets a meter stand among the writers of a copy.
func (m *meter) Write(b []byte) (int, error) {
	m.add(int64(len(b)))
	return len(b), nil
}
