package measure

import (
	"fmt"
	"sync"

	"assay/internal/loadgen"
	"assay/pipeline"
)

// progress keeps the newest state of the load, to be told at a pace for people.
type progress struct {
	mu   sync.Mutex
	last loadgen.Progress
}

func (p *progress) set(now loadgen.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = now
}

func (p *progress) tell(task *pipeline.Task) {
	p.mu.Lock()
	now := p.last
	p.mu.Unlock()
	note := fmt.Sprintf("%d in flight", now.Sent-now.Done)
	if now.Sent < now.Done { // what was never sent has a record too
		note = "ended early"
	}
	if now.Failed > 0 {
		note += fmt.Sprintf(", %d failed", now.Failed)
	}
	task.Progress(int64(now.Done), int64(now.Total), note)
}
