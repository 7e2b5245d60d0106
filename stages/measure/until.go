package measure

import (
	"fmt"
	"time"

	"assay/pipeline"
	"assay/schemas"
)

// What becomes of requests in flight when a closed loop's time is over.
const (
	atEndDrain = "drain"
	atEndCut   = "cut"
)

// A closed loop of a stated duration sends as many requests as it comes to, but all
// that it may send are decided before. Without a stated number this is how many.
const (
	preparedPerS     = 20 // and slot
	preparedAtLeast  = 1000
	preparedAtMost   = 200_000
	exhaustedFinding = "measure.exhausted"
)

func prepared(slots int, d time.Duration) int {
	return int(min(max(d.Seconds()*float64(slots)*preparedPerS, preparedAtLeast), preparedAtMost))
}

// until is how long a closed loop lasts, 0 when its number of requests says so.
func (p *plan) until() time.Duration {
	return time.Duration(p.header.DurationMs * float64(time.Millisecond))
}

// expected is how many records there must be: one for every planned request, or
// for every one that was begun.
func (p *plan) expected(issued int) int {
	if p.until() > 0 {
		return issued
	}
	return len(p.requests)
}

// exhausted adds a finding when all that was prepared was begun before the time was
// over: fewer than the stated number were in flight from then on.
func (p *plan) exhausted(task *pipeline.Task, res *schemas.Result) {
	if p.until() == 0 || res.Counts.Issued < len(p.requests) {
		return
	}
	res.Findings = append(res.Findings, schemas.Finding{
		ID: exhaustedFinding, Severity: schemas.SeverityWarning, Subject: "stage " + task.Node.ID,
		Message: fmt.Sprintf("all %d prepared requests were begun before the %s asked for were over: the loop could not go on", len(p.requests), p.until()),
		Remedy:  "prepare more with requests = N, or give a longer file",
	})
}

// stopText says what ends the load.
func (p *plan) stopText() string {
	h := p.header
	switch {
	case h.AtEnd == atEndCut:
		return fmt.Sprintf("%s after the first arrival no request is begun, and those in flight are cancelled; at most the %d prepared requests", p.until(), h.Requests)
	case h.DurationMs > 0:
		return fmt.Sprintf("%s after the first arrival no request is begun, and those in flight are waited for; at most the %d prepared requests", p.until(), h.Requests)
	}
	return fmt.Sprintf("all %d planned requests have ended", h.Requests)
}
