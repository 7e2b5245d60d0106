package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"assay/internal/observe"
	"assay/schemas"
)

// Between two looks at a service that loads.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

var errLate = errors.New("ready_timeout is over")

// replica is what looks saw of a model on a node. Times are since the call.
type replica struct {
	before   string // its state before the call
	state    string
	err      string
	loading  bool
	notReady time.Duration // the last look that saw it so
	ready    *time.Duration
}

// bringing is one model on its way.
type bringing struct {
	l        *load
	spec     spec
	out      schemas.LoadModel
	began    time.Time
	replicas map[string]*replica
	pending  chan reply // a call under way
	answer   *answer
	partial  bool
	last     observe.Runtime
	lastErr  error
}

// reply is how a call ended.
type reply struct {
	status int
	body   []byte
	err    error
	took   time.Duration
}

// bring deploys a model, or waits for it, and returns once it is ready.
func (l *load) bring(ctx context.Context, s spec) (*bringing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.set.Duration("ready_timeout"), errLate)
	defer cancel()
	b := &bringing{l: l, spec: s, began: time.Now(), replicas: map[string]*replica{}, out: schemas.LoadModel{Model: s.model, Replicas: []schemas.LoadReplica{}}}
	if l.sum.Snapshot {
		b.look(ctx)
		for _, r := range b.replicas {
			r.before = r.state
		}
	}
	evicted := b.last
	b.began = time.Now()
	if l.sum.Via == schemas.LoadByDeploy {
		b.call(ctx)
	}
	err := b.await(ctx)
	b.finish()
	l.noteEvictions(b, evicted)
	return b, err
}

// call begins a deploy call; its end is told by pending.
func (b *bringing) call(ctx context.Context) {
	if b.out.Deploy == nil {
		b.out.Deploy = &schemas.LoadDeploy{ReadyNodes: []string{}, Failed: []schemas.LoadFailure{}}
	}
	b.out.Deploy.Calls++
	done, began := make(chan reply, 1), time.Now()
	b.pending = done
	go func() {
		status, body, err := b.l.talk.call(ctx, http.MethodPost, deployPath, b.spec.body())
		done <- reply{status, body, err, time.Since(began)}
	}()
}

// await looks until the model is ready, the service refuses, or time is over.
func (b *bringing) await(ctx context.Context) error {
	pause := firstPause
	for {
		again, err := b.step(ctx)
		if err != nil {
			return err
		}
		if b.pending == nil && !again && b.ready(ctx) {
			took := ms(time.Since(b.began))
			b.out.ReadyMs = &took
			return nil
		}
		if err := b.failed(); err != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			b.drop()
			return b.late(ctx)
		case r := <-b.pending: // nil blocks
			timer.Stop()
			if again, err = b.take(r); err != nil {
				return err
			}
			pause = firstPause
		}
		if again && b.pending == nil {
			b.call(ctx)
		}
		pause = min(pause*3/2, lastPause)
	}
}

// drop waits for a call that is under way to end with its context.
func (b *bringing) drop() {
	if b.pending != nil {
		<-b.pending
		b.pending = nil
	}
}

// step looks once and takes an answer that is there.
func (b *bringing) step(ctx context.Context) (again bool, err error) {
	select {
	case r := <-b.pending:
		if again, err = b.take(r); err != nil {
			return false, err
		}
	default:
	}
	if b.l.sum.Snapshot {
		b.look(ctx)
	}
	return again, nil
}

// look notes the states of the model's replicas.
func (b *bringing) look(ctx context.Context) {
	at := time.Since(b.began)
	s, told, err := b.l.talk.look(ctx, "")
	if err != nil || !told {
		b.lastErr = err
		return
	}
	b.last, b.lastErr = s, nil
	for node, p := range s.Placements[b.spec.model] {
		if b.replicas[node] == nil {
			b.replicas[node] = &replica{before: observe.ReplicaAbsent}
		}
		b.replicas[node].note(p, at, time.Since(b.began))
	}
	for node, r := range b.replicas {
		if _, there := s.Placements[b.spec.model][node]; !there {
			r.note(observe.Placement{State: observe.ReplicaAbsent}, at, time.Since(b.began))
		}
	}
}

func (r *replica) note(p observe.Placement, from, to time.Duration) {
	r.state, r.err = p.State, p.Error
	r.loading = r.loading || p.State == observe.ReplicaLoading
	if p.State != observe.ReplicaReady {
		r.notReady, r.ready = from, nil
	} else if r.ready == nil {
		r.ready = &to
	}
}

// take reads the answer of a call; again says that it is to be made once more.
func (b *bringing) take(r reply) (again bool, err error) {
	b.pending = nil
	d := b.out.Deploy
	d.HTTPStatus, d.CallMs = r.status, ms(r.took)
	if err := b.l.talk.archive("deploy", b.spec.model, r.status, r.body, r.err); err != nil {
		return false, err
	}
	if r.err != nil {
		d.Error = b.l.talk.short(r.err.Error())
		return false, b.l.refused(b.spec.model, d)
	}
	if r.status != http.StatusOK {
		d.Error = b.l.talk.short(refusal(r.body))
		return false, b.l.refused(b.spec.model, d)
	}
	a, err := parseAnswer(r.body)
	if err != nil {
		d.Error = b.l.talk.short(err.Error())
		return false, b.l.refused(b.spec.model, d)
	}
	b.answer = &a
	d.Status, d.ReadyNodes, d.Failed = b.l.talk.short(a.status), a.ready, b.l.cleanFailures(a.failed)
	if a.status == "ok" && len(a.failed) == 0 {
		return false, nil
	}
	if draining(a.failed) {
		fmt.Fprintf(b.l.task.Log, "model %s: %s; the call is made again\n", b.spec.model, failureText(d.Failed))
		return true, nil
	}
	b.partial = true
	return false, b.l.partial(b.spec.model, d)
}

// ready says whether what was asked for is there.
func (b *bringing) ready(ctx context.Context) bool {
	if !b.l.sum.Snapshot {
		names, err := b.l.talk.listed(ctx)
		b.lastErr = err
		return err == nil && slices.Contains(names, b.spec.model)
	}
	if b.lastErr != nil {
		return false
	}
	on := b.last.ReadyOn(b.spec.model)
	if b.partial {
		return len(on) > 0
	}
	for _, n := range b.spec.nodes {
		if !slices.Contains(on, n) {
			return false
		}
	}
	if b.answer != nil {
		for _, n := range b.answer.ready {
			if !slices.Contains(on, n) {
				return false
			}
		}
	}
	return len(on) >= b.spec.replicas
}

// failed is an error once no call is under way and a replica that is wanted has
// failed: waiting would not help.
func (b *bringing) failed() error {
	if b.pending != nil || b.partial || !b.l.sum.Snapshot {
		return nil
	}
	for node, r := range b.replicas {
		if r.state == observe.ReplicaFailed && (len(b.spec.nodes) == 0 || slices.Contains(b.spec.nodes, node)) {
			return b.l.fail(schemas.Finding{ID: "load.not-ready", Subject: "model " + b.spec.model,
				Message: fmt.Sprintf("it failed on %s: %s", node, b.l.talk.short(firstText(r.err, "the service does not say why"))),
				Remedy:  "read the service's log; too little host memory for weights is the usual cause"})
		}
	}
	return nil
}

// late is the error of a model that did not become ready in time.
func (b *bringing) late(ctx context.Context) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, errLate) {
		return fmt.Errorf("model %s: %w", b.spec.model, cause)
	}
	var seen []string
	for node, r := range b.replicas {
		s := node + " " + r.state
		if r.err != "" {
			s += ": " + b.l.talk.short(r.err)
		}
		seen = append(seen, s)
	}
	slices.Sort(seen)
	text := strings.Join(seen, ", ")
	switch {
	case b.lastErr != nil:
		text = "the last look failed: " + b.l.talk.short(b.lastErr.Error())
	case !b.l.sum.Snapshot:
		text = "it is not listed, or answers 503"
	case text == "":
		text = "it is on no node"
	}
	want := fmt.Sprintf("%d replica", b.spec.replicas)
	if b.spec.replicas != 1 {
		want += "s"
	}
	return b.l.fail(schemas.Finding{ID: "load.not-ready", Subject: "model " + b.spec.model,
		Message: fmt.Sprintf("not ready within %s: want %s, the service has %s", b.l.set.Text("ready_timeout"), want, text),
		Remedy:  "look at the service's log, name fewer replicas, or raise ready_timeout"})
}

// finish fills in the replicas.
func (b *bringing) finish() {
	for node, r := range b.replicas {
		row := schemas.LoadReplica{Node: node, State: r.state, Switches: []schemas.LoadRequest{}}
		switch {
		case r.before == observe.ReplicaReady:
			row.Unknown = "it was ready before"
		case r.ready == nil:
			row.Unknown = "it did not become ready"
		case b.l.sum.Via == schemas.LoadByStartup:
			row.Unknown = "the start-up list brings it: when its load began is not known"
		default:
			row.ColdLoad = &schemas.LoadSpan{AboveMs: max(0, ms(r.notReady)), AtMostMs: ms(*r.ready), Loading: r.loading}
		}
		if r.state != observe.ReplicaAbsent || r.before != observe.ReplicaAbsent {
			b.out.Replicas = append(b.out.Replicas, row)
		}
	}
	slices.SortFunc(b.out.Replicas, func(x, y schemas.LoadReplica) int { return strings.Compare(x.Node, y.Node) })
	if !b.l.sum.Snapshot {
		b.out.Replicas = []schemas.LoadReplica{{Unknown: "the service has no snapshot of its replicas", Switches: []schemas.LoadRequest{}}}
	}
}

func firstText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
