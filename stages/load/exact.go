package load

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"assay/internal/loadgen"
	"assay/internal/metrics"
	"assay/internal/observe"
	"assay/pipeline"
	"assay/schemas"
)

// served is a request that was answered, and where as far as it is known.
type served struct {
	node string
	rec  schemas.RequestRecord
}

// order says where a request stands among those of its model.
type order int

const (
	orderFirst order = iota
	orderRepeat
	orderSwitch
)

// pass asks every ready replica of a model for one exact answer, and returns the
// first of each node. Which node answered is told by the service's counts; with
// several nodes requests overlap, so that each policy of routing reaches all.
func (l *load) pass(ctx context.Context, model string, nodes []string, o order) ([]schemas.LoadRequest, []string, error) {
	before := l.glance(ctx)
	var done []served
	var err error
	if len(nodes) > 1 && before.Assigned != nil {
		done, err = l.spread(ctx, model, nodes, before, o)
	} else {
		var rec schemas.RequestRecord
		rec, err = l.one(ctx, model, o, l.last)
		done = []served{{"", rec}}
		if len(nodes) == 1 {
			done[0].node = nodes[0]
		}
	}
	after := l.glance(ctx)
	hits := map[string]int{}
	for _, d := range done {
		hits[d.node]++
	}
	var out []schemas.LoadRequest
	var on []string
	for _, d := range done {
		if slices.Contains(on, d.node) {
			continue
		}
		count := switchesOf(before, after, d.node, len(done), hits[d.node])
		out, on = append(out, l.met(d, o, count)), append(on, d.node)
	}
	for _, d := range done {
		l.lastOn[d.node] = model
	}
	l.last = model
	return out, on, l.failedRequest(ctx, err)
}

// glance is a snapshot where the service has one; what it fails to tell is not told.
func (l *load) glance(ctx context.Context) observe.Runtime {
	if !l.sum.Snapshot {
		return observe.Runtime{}
	}
	s, _, err := l.talk.look(ctx, "")
	if err != nil {
		return observe.Runtime{}
	}
	return s
}

// spread sends requests that overlap until each node has answered one, or for three
// times as many.
func (l *load) spread(ctx context.Context, model string, nodes []string, before observe.Runtime, o order) ([]served, error) {
	type ended struct {
		i   int
		rec schemas.RequestRecord
	}
	ends := make(chan ended)
	var out []served
	under := 0
	take := func(e ended) {
		out[e.i].rec = e.rec
		under--
	}
	seen := before.Assigned[model]
	reached := map[string]bool{}
	for len(out) < 3*len(nodes) && len(reached) < len(nodes) && ctx.Err() == nil {
		if under == len(nodes) {
			take(<-ends)
		}
		i, req := len(out), l.request(model)
		out = append(out, served{})
		under++
		go func() { ends <- ended{i, l.client.Do(ctx, req)} }()
		node, now := l.routed(ctx, model, seen)
		seen = now
		out[i].node = node
		if node != "" {
			reached[node] = true
		}
	}
	for under > 0 {
		take(<-ends)
	}
	var err error
	for i := range out {
		if e := l.settle(&out[i].rec, model, o, firstText(l.lastOn[out[i].node], l.last)); e != nil && err == nil {
			err = e
		}
	}
	return out, err
}

// routeLimit is for how long the count of a request that was sent is looked for.
const routeLimit = 5 * time.Second

// routed waits until the service has counted one more request of a model, and says
// on which node.
func (l *load) routed(ctx context.Context, model string, seen map[string]float64) (string, map[string]float64) {
	end := time.Now().Add(routeLimit)
	for pause := time.Millisecond; time.Now().Before(end) && ctx.Err() == nil; pause = min(2*pause, 50*time.Millisecond) {
		now := l.glance(ctx).Assigned[model]
		more := ""
		for _, node := range slices.Sorted(maps.Keys(now)) {
			if now[node] > seen[node] {
				more = node
			}
		}
		if more != "" {
			return more, now
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return "", seen
}

func (l *load) request(model string) loadgen.Request {
	req := schemas.ScheduledRequest{Index: l.index, ID: fmt.Sprintf("load-%d", l.index), Model: model, InputTokens: l.sum.InputTokens, OutputTokens: l.sum.OutputTokens}
	if l.task.Service.Asking.TextPrompts {
		req.PromptWords = req.InputTokens
	}
	l.index++
	return loadgen.Request{ScheduledRequest: req}
}

// one sends a request. Without a snapshot a model that was listed may still load: it
// is asked again as long as it answers 503.
func (l *load) one(ctx context.Context, model string, o order, after string) (schemas.RequestRecord, error) {
	wait, cancel := context.WithTimeoutCause(ctx, l.set.Duration("ready_timeout"), errLate)
	defer cancel()
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		rec := l.client.Do(ctx, l.request(model))
		err := l.settle(&rec, model, o, after)
		if err == nil || l.sum.Snapshot || o != orderFirst || rec.HTTPStatus != http.StatusServiceUnavailable {
			return rec, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-wait.Done():
			timer.Stop()
			return rec, err
		}
	}
}

// settle writes a record and says what is wrong with it.
func (l *load) settle(rec *schemas.RequestRecord, model string, o order, after string) error {
	switch o {
	case orderFirst:
		rec.Phase = schemas.PhaseCold
	case orderRepeat:
		rec.Phase = schemas.PhaseSteady
	case orderSwitch:
		if rec.Phase = schemas.PhaseSteady; after != model {
			rec.Phase, rec.SwitchFrom = schemas.PhaseSwitch, after
		}
	}
	rec.Error, rec.FinishReason = l.talk.clean(rec.Error), l.talk.clean(rec.FinishReason) // a service may answer with what it was sent
	if err := l.log.Write(*rec); err != nil {
		return &pipeline.InfraError{Op: "write the request log", Err: err}
	}
	if err := l.log.Flush(); err != nil {
		return &pipeline.InfraError{Op: "write the request log", Err: err}
	}
	l.task.Progress(int64(l.index), l.expected(), model)
	if rec.InputTokens != nil && rec.InputTokensSource == "usage" && rec.API == loadgen.APICompletions && *rec.InputTokens != rec.AskedInputTokens {
		l.prompts[model] = *rec.InputTokens
	}
	if rec.Outcome == schemas.OutcomeOK {
		return nil
	}
	return &requestError{*rec}
}

// requestError is a request that was not answered as it was asked to be.
type requestError struct{ rec schemas.RequestRecord }

func (e *requestError) Error() string {
	r := e.rec
	text := fmt.Sprintf("model %s: request %d ended with %s", r.Model, r.Index, r.Outcome)
	if r.Error != "" {
		text += ": " + r.Error
	}
	return text
}

// met says what a request found, by its order and by the service's counter.
func (l *load) met(d served, o order, count *float64) schemas.LoadRequest {
	r := d.rec
	out := schemas.LoadRequest{Index: r.Index, After: firstText(l.lastOn[d.node], r.SwitchFrom), ToldBy: "order", Outcome: r.Outcome, OutputTokens: r.OutputTokens, ModelSwitches: count}
	if v, ok := metrics.TTFTMs(&r); ok {
		out.TTFTMs = &v
	}
	if v, ok := metrics.E2EMs(&r); ok {
		out.E2EMs = &v
	}
	switch {
	case o == orderFirst:
		out.Met = schemas.LoadCPUCacheHit
	case o == orderSwitch && out.After != "" && out.After != r.Model:
		out.Met = schemas.LoadSwitch
	default:
		out.Met = schemas.LoadResident
	}
	if count == nil {
		return out
	}
	out.ToldBy = "order and counter"
	switch {
	case *count == 0 && out.Met != schemas.LoadResident:
		l.surprises[r.Model+" was expected to be off the device, and no switch was counted"]++
		out.Met = schemas.LoadResident
	case *count > 0 && out.Met == schemas.LoadResident:
		l.surprises[r.Model+" was expected on the device, and a switch was counted: another engine may have taken the request"]++
		out.Met = schemas.LoadSwitch
	}
	return out
}

// switchesOf is the rise of a node's count of switches, where it belongs to one
// request.
func switchesOf(before, after observe.Runtime, node string, all, onNode int) *float64 {
	if before.Switches == nil || after.Switches == nil {
		return nil
	}
	from, byNode := before.Switches[node]
	to := after.Switches[node]
	if !byNode || node == "" {
		if all != 1 {
			return nil
		}
		from, to = 0, 0
		for _, n := range before.Switches {
			from += n
		}
		for _, n := range after.Switches {
			to += n
		}
	} else if onNode != 1 {
		return nil
	}
	n := to - from
	if n < 0 {
		return nil // the service began to count anew
	}
	return &n
}
