package measure

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"assay/internal/loadgen"
	"assay/pipeline"
	"assay/schemas"
)

// client judges the client that measures: it watches the process while it sends,
// and the records when they are folded.
type client struct {
	watch  *loadgen.Watch
	said   schemas.ClientVerdict
	tally  loadgen.StampTally
	shape  loadgen.Shape
	pool   *loadgen.Pool
	unwind func()
	issued int // records written
	// observed is what was seen of the service meanwhile.
	observed *observation
}

// prepare makes the connections and keeps the collector away, before the anchor is
// set.
func prepare(ctx context.Context, task *pipeline.Task, set schemas.Settings, p plan) *client {
	c := &client{}
	n := max(set.Int("predial"), p.header.Concurrency)
	if n = min(n, len(p.requests), set.Int("max_connections")); n > 0 && set.Int("predial") > 0 {
		var err error
		if c.pool, err = loadgen.Predial(ctx, task.Service.URL, n, 0); err != nil {
			fmt.Fprintf(task.Log, "%v; requests make their connections themselves\n", err)
		}
		c.said.Predialled = c.pool.Len()
	}
	c.unwind = loadgen.QuietCollector()
	c.watch = loadgen.NewWatch()
	return c
}

// sent ends what prepare began.
func (c *client) sent() {
	c.watch.Stop(&c.said)
	c.unwind()
	c.pool.Close()
}

func (c *client) observe(recs iter.Seq2[schemas.RequestRecord, error]) iter.Seq2[schemas.RequestRecord, error] {
	return func(yield func(schemas.RequestRecord, error) bool) {
		for rec, err := range recs {
			if err == nil {
				c.tally.Add(&rec)
				c.shape.Add(&rec)
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// judge calibrates, if that is wanted, and adds the verdict to a result.
func (c *client) judge(ctx context.Context, task *pipeline.Task, set schemas.Settings, res *schemas.Result) {
	c.calibrate(ctx, set, res.StampSource == loadgen.StampUser)
	c.tally.Judge(&c.said)
	res.Client = &c.said
	if c.said.OK != loadgen.ClientNotOK {
		return
	}
	res.Findings = append(res.Findings, schemas.Finding{
		ID: "client.not-ok", Severity: schemas.SeverityWarning, Subject: "stage " + task.Node.ID,
		Message: "the client cannot be believed to the millisecond: " + strings.Join(c.said.Reasons, "; "),
		Remedy:  "use a machine with less to do, or offer less; a service or proxy that writes several events at once has the same effect; require_client_ok = true makes this fail the stage",
	})
}

func (c *client) calibrate(ctx context.Context, set schemas.Settings, user bool) {
	if !set.Bool("calibrate") {
		c.said.Uncalibrated = "calibrate = false"
		return
	}
	plan, why := c.shape.Plan()
	if why != "" {
		c.said.Uncalibrated = why
		return
	}
	plan.UserStamps = user
	defer loadgen.QuietCollector()()
	found, err := loadgen.Calibrate(ctx, plan)
	if err != nil {
		c.said.Uncalibrated = err.Error()
		return
	}
	c.said.Calibration = found
}

// believed is the error of a stage that asks for a client that is ok.
func believed(set schemas.Settings, res schemas.Result) error {
	if !set.Bool("require_client_ok") || res.Client == nil || res.Client.OK == loadgen.ClientOK {
		return nil
	}
	return fmt.Errorf("require_client_ok: client_ok is %s: %s", res.Client.OK, strings.Join(res.Client.Reasons, "; "))
}
