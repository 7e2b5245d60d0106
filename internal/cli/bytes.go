package cli

import (
	"context"
	"fmt"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"assay/archive"
)

// byteProgress shows how many bytes were moved, how fast, and how long the rest
// takes: a bar on a terminal, nothing elsewhere. done ends it.
func (c *call) byteProgress() (show func(archive.Progress), done func()) {
	if c.quiet || !isTerminal(c.stderr) {
		return nil, func() {}
	}
	b := &byteBar{pool: mpb.New(mpb.WithOutput(c.stderr), mpb.WithWidth(48), mpb.WithAutoRefresh())}
	return b.show, b.close
}

// showing is the command's context; long operations of the archive under it show
// how far they are. done ends that.
func (c *call) showing() (ctx context.Context, done func()) {
	show, done := c.byteProgress()
	if show == nil {
		return c.ctx, done
	}
	return archive.WithProgress(c.ctx, show), done
}

// byteBar has one bar for the phase that goes on.
type byteBar struct {
	pool  *mpb.Progress
	mu    sync.Mutex
	bar   *mpb.Bar
	phase string
}

func (b *byteBar) show(p archive.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar == nil || b.phase != p.Phase {
		if b.bar != nil {
			b.bar.Abort(true)
		}
		b.phase = p.Phase
		b.bar = b.pool.AddBar(p.Total, mpb.PrependDecorators(decor.Name(p.Phase, decor.WC{W: 8, C: decor.DindentRight})),
			mpb.AppendDecorators(decor.CountersKibiByte("% .1f/% .1f"), decor.Name("  "), decor.AverageSpeed(decor.SizeB1024(0), "% .1f"), decor.Name("  "), decor.AverageETA(decor.ET_STYLE_GO), decor.Name(" left")))
	}
	b.bar.SetTotal(p.Total, false)
	b.bar.SetCurrent(p.Done)
}

func (b *byteBar) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil {
		b.bar.Abort(false)
	}
	b.pool.Wait()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
