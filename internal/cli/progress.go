package cli

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"assay/pipeline"
	"assay/schemas"
)

// progress shows what a run does while it does it: bars on a terminal that can draw
// them, short lines elsewhere, nothing with --quiet.
type progress interface {
	event(pipeline.Event)
	close()
}

func (c *call) progress() progress {
	switch {
	case c.quiet:
		return silent{}
	case drawsOn(c.stderr):
		return newBars(c.stderr)
	}
	return newLines(c.stderr, time.Now)
}

type silent struct{}

func (silent) event(pipeline.Event) {}
func (silent) close()               {}

// linesEvery is the least time between two lines about how far a stage is.
const linesEvery = 5 * time.Second

// lines writes one line for each thing that happened, and now and then one about
// how far a stage is that takes its time.
type lines struct {
	w    io.Writer
	now  func() time.Time
	told map[string]time.Time // node -> its start, or the last line about it
}

func newLines(w io.Writer, now func() time.Time) *lines {
	return &lines{w: w, now: now, told: map[string]time.Time{}}
}

func (l *lines) event(ev pipeline.Event) {
	switch ev.Type {
	case "progress":
		l.far(ev)
	case "end":
		delete(l.told, ev.Node)
	}
	if s := eventLine(ev); s != "" {
		fmt.Fprintln(l.w, safeText(s))
	}
}

func (l *lines) far(ev pipeline.Event) {
	now := l.now()
	if last, known := l.told[ev.Node]; known && now.Sub(last) < linesEvery {
		return
	} else if known && ev.Text != "" {
		fmt.Fprintln(l.w, safeText(ev.Node+": "+ev.Text))
	}
	l.told[ev.Node] = now
}

func (*lines) close() {}

// eventLine is an event as one line, "" for one that is not worth it.
func eventLine(ev pipeline.Event) string {
	count := ""
	if ev.NodesTotal > 0 {
		count = fmt.Sprintf("[%d/%d] ", ev.NodesDone, ev.NodesTotal)
	}
	switch ev.Type {
	case "end":
		if ev.Status != schemas.StagePassed && ev.Text != "" {
			return fmt.Sprintf("%s%s %s after %s: %s", count, ev.Node, ev.Status, short(ev.Duration), firstLine(ev.Text))
		}
		return fmt.Sprintf("%s%s %s in %s", count, ev.Node, ev.Status, short(ev.Duration))
	case "reuse":
		return fmt.Sprintf("%s%s reused (%s)", count, ev.Node, ev.Text)
	case "service_ready":
		return fmt.Sprintf("%s is up at %s", ev.Unit, ev.Text)
	case "service_end":
		return fmt.Sprintf("%s %s", ev.Unit, ev.Text)
	case "finding":
		if ev.Finding != nil && (ev.Finding.Severity == schemas.SeverityError || ev.Finding.Severity == schemas.SeverityUnknown || ev.Finding.Severity == schemas.SeverityWarning) {
			return fmt.Sprintf("%s: %s: %s", ev.Finding.Severity, ev.Finding.Subject, ev.Finding.Message)
		}
	}
	return ""
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// short rounds a duration to what a person reads.
func short(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// bars shows the whole run and, while a stage reports how far it is, that stage.
type bars struct {
	pool  *mpb.Progress
	whole *mpb.Bar
	stage *mpb.Bar
	node  string
	began time.Time
	note  atomic.Pointer[string] // what the stage says of itself; read while the bar is drawn
}

func newBars(w io.Writer) *bars {
	return &bars{began: time.Now(), pool: newPool(w)}
}

func (b *bars) event(ev pipeline.Event) {
	if ev.NodesTotal > 0 {
		b.run(ev)
	}
	switch ev.Type {
	case "progress":
		b.advance(ev)
	case "end", "reuse":
		if ev.Node == b.node {
			b.drop()
		}
	case "finding":
		if s := eventLine(ev); s != "" {
			fmt.Fprintln(b.pool, safeText(s))
		}
	}
}

// run shows the whole run, which a single load is not.
func (b *bars) run(ev pipeline.Event) {
	if b.whole == nil && time.Since(b.began) < barDelay {
		return
	}
	if b.whole == nil {
		b.whole = b.pool.AddBar(0, mpb.PrependDecorators(decor.Name("run", decor.WC{W: 24, C: decor.DindentRight})), mpb.AppendDecorators(decor.CountersNoUnit("%d/%d")))
	}
	b.whole.SetTotal(int64(ev.NodesTotal), false)
	b.whole.SetCurrent(int64(ev.NodesDone))
}

func (b *bars) advance(ev pipeline.Event) {
	if ev.Total <= 0 || time.Since(b.began) < barDelay {
		return
	}
	b.note.Store(&ev.Text)
	if b.node != ev.Node {
		b.drop()
		b.node = ev.Node
		b.stage = b.pool.AddBar(ev.Total, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name(ev.Node+" ")), mpb.AppendDecorators(decor.Any(b.state)))
	}
	b.stage.SetTotal(ev.Total, false)
	b.stage.SetCurrent(ev.Done)
}

// state is what a stage says of itself, or its counts.
func (b *bars) state(s decor.Statistics) string {
	if note := b.note.Load(); note != nil && *note != "" {
		return *note
	}
	return fmt.Sprintf("%d/%d", s.Current, s.Total)
}

func (b *bars) drop() {
	if b.stage != nil {
		b.stage.Abort(true)
	}
	b.stage, b.node = nil, ""
}

func (b *bars) close() {
	b.drop()
	if b.whole != nil {
		b.whole.Abort(false)
	}
	b.pool.Wait()
}
