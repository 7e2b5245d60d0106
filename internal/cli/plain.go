package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"assay/archive"
	"assay/schemas"
)

// plainEvery is how often a long operation says how far it is where no bar can be
// drawn.
const plainEvery = 10 * time.Second

// plainProgress writes a line now and then, also while nothing moves.
type plainProgress struct {
	out  io.Writer
	stop chan struct{}
	end  sync.WaitGroup

	mu   sync.Mutex
	last archive.Progress
	seen bool
}

func newPlainProgress(out io.Writer, every time.Duration) *plainProgress {
	p := &plainProgress{out: out, stop: make(chan struct{})}
	tick := time.NewTicker(every)
	p.end.Go(func() {
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.tell()
			}
		}
	})
	return p
}

func (p *plainProgress) show(now archive.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.seen = now, true
}

func (p *plainProgress) tell() {
	p.mu.Lock()
	now, seen := p.last, p.seen
	p.mu.Unlock()
	if seen && (now.Total == 0 || now.Done < now.Total) {
		fmt.Fprintln(p.out, plainText(now))
	}
}

// close ends it; nothing is written afterwards.
func (p *plainProgress) close() {
	close(p.stop)
	p.end.Wait()
}

func plainText(p archive.Progress) string {
	amount := func(n int64) string { return schemas.Size(n).String() }
	if p.Counts() {
		amount = func(n int64) string { return fmt.Sprint(n) }
	}
	switch {
	case p.Phase == archive.PhaseSync:
		return p.Phase + ": waiting for the disk"
	case p.Total == 0:
		return p.Phase + ": " + amount(p.Done)
	}
	return fmt.Sprintf("%s: %s of %s (%d%%)", p.Phase, amount(p.Done), amount(p.Total), 100*p.Done/max(p.Total, 1))
}
