package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"assay/archive"
)

// barDelay is how long an operation goes on before it is worth a bar.
const barDelay = time.Second

// byteProgress shows how far a long operation is, how fast it goes, and how long
// the rest takes: a bar on a terminal once it has gone on for a second, elsewhere a
// line now and then. done ends it.
func (c *call) byteProgress() (show func(archive.Progress), done func()) {
	if c.quiet {
		return nil, func() {}
	}
	if !drawsOn(c.stderr) {
		p := newPlainProgress(c.stderr, plainEvery)
		return p.show, p.close
	}
	b := newByteBar(c.stderr, time.Now().Add(barDelay))
	c.bar = b
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

// storing is showing for a run, among whose bars that of the store appears.
func (c *call) storing(shown progress) (ctx context.Context, done func()) {
	if _, ok := shown.(*lines); ok {
		return c.showing()
	}
	b, ok := shown.(*bars)
	if !ok {
		return c.ctx, func() {}
	}
	x := &byteBar{pool: b.pool, shared: true}
	return archive.WithProgress(c.ctx, x.show), x.drop
}

// byteBar has one bar for the phase that goes on.
type byteBar struct {
	out    io.Writer
	after  time.Time // no bar is shown before
	shared bool      // the pool is another's: a phase has a bar once it has gone on for long

	mu    sync.Mutex
	pool  *mpb.Progress
	bar   *mpb.Bar
	phase string
	began time.Time // of the phase
}

func newByteBar(out io.Writer, after time.Time) *byteBar { return &byteBar{out: out, after: after} }

func (b *byteBar) show(p archive.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.phase != p.Phase || p.Done == 0 {
		b.end()
		b.phase, b.began = p.Phase, now
	}
	if b.shared {
		b.after = b.began.Add(barDelay)
		if p.Total > 0 && p.Done >= p.Total {
			b.end()
			return
		}
	}
	if now.Before(b.after) {
		return
	}
	if b.bar == nil {
		b.begin(p)
	}
	b.bar.SetTotal(p.Total, false)
	b.bar.SetCurrent(p.Done)
}

func (b *byteBar) begin(p archive.Progress) {
	if b.pool == nil {
		b.pool = newPool(b.out)
	}
	counts, unit, format := decor.CountersKibiByte("% .1f/% .1f"), any(decor.SizeB1024(0)), "% .1f"
	if p.Counts() {
		counts, unit, format = decor.CountersNoUnit("%d/%d"), 0, "%.0f/s"
	}
	ends := []decor.Decorator{counts, decor.Name("  "), decor.NewAverageSpeed(unit, format, b.began)}
	if p.Phase == archive.PhaseSync { // it has no length: only time passes
		ends = []decor.Decorator{decor.Any(func(decor.Statistics) string { return short(time.Since(b.began)).String() })}
	}
	if p.Total > 0 {
		ends = append(ends, decor.Name("  "), decor.NewAverageETA(decor.ET_STYLE_GO, b.began, nil), decor.Name(" left"))
	}
	b.bar = b.pool.AddBar(p.Total, mpb.PrependDecorators(decor.Name(p.Phase, decor.WC{W: 8, C: decor.DindentRight})), mpb.AppendDecorators(ends...))
}

func (b *byteBar) end() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.bar = nil
	}
}

// say writes a line, above the bar if there is one.
func (b *byteBar) say(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar == nil {
		fmt.Fprintln(b.out, text)
		return
	}
	fmt.Fprintln(b.pool, text)
}

// drop takes the bar away.
func (b *byteBar) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end()
}

func (b *byteBar) close() {
	b.drop()
	if b.pool != nil {
		b.pool.Wait()
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
