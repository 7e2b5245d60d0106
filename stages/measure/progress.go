package measure

import (
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
