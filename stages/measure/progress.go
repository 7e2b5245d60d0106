package measure

import (
	"context"
	"fmt"
	"time"

	"assay/internal/loadgen"
	"assay/pipeline"
	"assay/schemas"
)

// progress keeps the newest state of the load, to be told at a pace for people.
type progress struct {
	meter  loadgen.Meter
	anchor time.Time
}

// newProgress follows the load that opts describe.
func newProgress(opts loadgen.Options) *progress {
	p := &progress{anchor: opts.Anchor}
	p.meter.Until, p.meter.Timed = opts.Until, opts.Until > 0
	for _, r := range opts.Requests {
		p.meter.Until = max(p.meter.Until, time.Duration(r.AtNs))
	}
	return p
}

func (p *progress) set(now loadgen.Progress) { p.meter.Set(p.anchor, time.Now(), now) }

func (p *progress) add(rec *schemas.RequestRecord) { p.meter.Add(rec) }

// tell gives how far it is: in requests, or in seconds where time says when a loop
// ends.
func (p *progress) tell(task *pipeline.Task) {
	now := time.Now()
	counts := p.meter.Counts()
	done, total := int64(counts.Done), int64(counts.Total)
	if p.meter.Timed {
		total = int64(p.meter.Until.Seconds() + 0.5)
		done = min(total, max(0, int64(now.Sub(p.anchor).Seconds())))
	}
	task.Progress(done, total, p.meter.Text(now))
}

// paceEvery is the least time between two words about how far a preparation is.
const paceEvery = 200 * time.Millisecond

// pace tells how far something is that comes before the first request.
type pace struct {
	task  *pipeline.Task
	what  string
	total int
	next  time.Time
}

func newPace(task *pipeline.Task, what string, total int) *pace {
	return &pace{task: task, what: what, total: total, next: time.Now().Add(paceEvery)}
}

// at tells that done are done, now and then. The error is the end of ctx.
func (p *pace) at(ctx context.Context, done int) error {
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(paceEvery)
		p.task.Progress(int64(done), int64(p.total), fmt.Sprintf("%s: %d of %d", p.what, done, p.total))
	}
	return context.Cause(ctx)
}
