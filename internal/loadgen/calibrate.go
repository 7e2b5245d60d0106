package loadgen

import (
	"context"
	"fmt"
	"slices"
	"time"

	"assay/schemas"
)

// outsideTolerance is what reading two clocks may cost.
const outsideTolerance = 50 * time.Microsecond

// StampErrors compare a client's stamps with the server's account of what it
// wrote. Errors are in ns and against the start of the write, so that they hold
// the server's own time in it.
type StampErrors struct {
	TTFT   []int64 // stamp of the first token, less its write
	Gaps   []int64 // absolute, between stamps that are not shared
	Stamps int64
	Shared int64
	// Held counts writes that the server's kernel did not send at once; they are
	// left out of what follows, as nobody knows when it did.
	Held int64
	// Outside counts writes that lie outside their stamp's interval, Early those
	// among them that came after it.
	Outside, Early int64
	Missing        int // records without an account, or with another number of tokens
}

// Compare holds records against accounts of the same ids, both on one clock.
func Compare(recs []schemas.RequestRecord, truth []*FixedStream) StampErrors {
	byID := make(map[string]*FixedStream, len(truth))
	for _, t := range truth {
		byID[t.ID] = t
	}
	var out StampErrors
	for i := range recs {
		t := byID[recs[i].ID]
		if t == nil || len(t.Before) != len(recs[i].Chunks) || len(t.Before) == 0 {
			out.Missing++
			continue
		}
		out.add(recs[i].Chunks, t)
	}
	return out
}

func (e *StampErrors) add(chunks []schemas.Chunk, t *FixedStream) {
	tolerance := int64(outsideTolerance)
	for i, c := range chunks {
		e.Stamps++
		since := c.AtNs
		if c.SinceNs != nil {
			e.Shared++
			since = *c.SinceNs
		}
		if held(t, i) {
			e.Held++
			continue
		}
		if t.After[i] < since-tolerance || t.Before[i] > c.AtNs+tolerance {
			e.Outside++
			if t.Before[i] > c.AtNs+tolerance {
				e.Early++
			}
		}
		switch {
		case i == 0:
			e.TTFT = append(e.TTFT, c.AtNs-t.Before[0])
		case c.SinceNs == nil && !held(t, i-1) && chunks[i-1].SinceNs == nil:
			gap := (c.AtNs - chunks[i-1].AtNs) - (t.Before[i] - t.Before[i-1])
			e.Gaps = append(e.Gaps, max(gap, -gap))
		}
	}
}

func held(t *FixedStream, i int) bool { return i < len(t.Held) && t.Held[i] }

// CalibrationPlan is the shape of a calibration.
type CalibrationPlan struct {
	FixedPlan
	Streams int
	// Spread is the time over which the streams start.
	Spread time.Duration
	// UserStamps as in Options.
	UserStamps bool
}

// Calibrate measures a server of its own, in this process, that sends at fixed
// times, and tells how far the stamps are off. Server and client share the
// process's processors, so the errors are no smaller than in use.
func Calibrate(ctx context.Context, plan CalibrationPlan) (*schemas.Calibration, error) {
	if plan.Streams < 1 {
		return nil, fmt.Errorf("calibrate: want at least one stream, have %d", plan.Streams)
	}
	anchor := time.Now()
	server, err := NewFixedServer(plan.FixedPlan, anchor)
	if err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	defer server.Close()
	pool, err := Predial(ctx, server.URL(), plan.Streams, 0)
	if err != nil {
		pool.Close() // what was dialled before the error
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	defer pool.Close()
	recs := make([]schemas.RequestRecord, 0, plan.Streams)
	opts := Options{BaseURL: server.URL(), Pool: pool, Anchor: anchor, UserStamps: plan.UserStamps, RequestIDs: true, MaxConnections: plan.Streams}
	opts.Requests = fixedRequests(plan, int64(time.Since(anchor)+20*time.Millisecond))
	err = Run(ctx, opts, func(r schemas.RequestRecord) error {
		recs = append(recs, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	if err := server.Close(); err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	return calibration(plan, recs, Compare(recs, server.Streams()))
}

// fixedRequests start streams evenly over the plan's spread.
func fixedRequests(plan CalibrationPlan, from int64) []Request {
	out := make([]Request, plan.Streams)
	for i := range out {
		out[i] = Request{ScheduledRequest: schemas.ScheduledRequest{
			Index: i, ID: fmt.Sprintf("s%d", i), Model: "fixed", InputTokens: 1, OutputTokens: plan.Tokens,
			AtNs: from + int64(plan.Spread)*int64(i)/int64(plan.Streams),
		}}
	}
	return out
}

func calibration(plan CalibrationPlan, recs []schemas.RequestRecord, e StampErrors) (*schemas.Calibration, error) {
	if e.Missing > 0 {
		return nil, fmt.Errorf("calibrate: %d of %d streams did not come whole", e.Missing, len(recs))
	}
	out := &schemas.Calibration{
		Streams: plan.Streams, Tokens: plan.Tokens, Stamps: e.Stamps, Shared: e.Shared, Outside: e.Outside,
		TTFTMs: spreadOf(e.TTFT), GapMs: spreadOf(e.Gaps), StampSource: recs[0].StampSource,
	}
	for _, r := range recs {
		if r.StampSource != out.StampSource {
			out.StampSource = "mixed"
		}
	}
	return out, nil
}

// spreadOf sorts ns and tells its spread by nearest rank.
func spreadOf(ns []int64) schemas.Spread {
	slices.Sort(ns)
	n := len(ns)
	if n == 0 {
		return schemas.Spread{}
	}
	rank := func(percent int) float64 { return ms(ns[max(0, (n*percent+99)/100-1)]) }
	return schemas.Spread{N: int64(n), P50: rank(50), P99: rank(99), Max: ms(ns[n-1])}
}
