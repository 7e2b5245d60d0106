package pipeline

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"assay/schemas"
)

// The scheduling loop: one goroutine owns all state, stages and service starts
// run in their own and report back over one channel. A stage starts when
// everything it needs has passed, its services are up, and no measured stage
// runs; a measured stage starts alone.

// result is what one goroutine reports.
type result struct {
	node     string // a stage ended
	unit     string // a service started, or ended
	ended    bool
	record   schemas.RunRecord
	service  schemas.ServiceRecord
	findings []schemas.Finding
	preimage schemas.Digest
	cause    error // why the stage did not pass
	err      error // infrastructure: the run cannot go on
}

type unitState struct {
	plan    schemas.PlanUnit
	state   unitPhase
	left    int // nodes not yet finished
	uses    int // nodes that have begun to use it
	attempt int
	live    Service
	record  schemas.ServiceRecord
	logDir  string
	failure string
}

type unitPhase int

const (
	unitIdle unitPhase = iota
	unitStarting
	unitUp
	unitStopping
	unitDone
)

type loop struct {
	*runner
	ctx      context.Context
	results  chan result
	state    map[string]nodePhase
	running  int
	measured bool // a measured stage runs
	pending  int  // goroutines that will report
	lowest   int  // position of the trial whose turn it is
	fatal    error
}

type nodePhase int

const (
	nodeWaiting nodePhase = iota
	nodeRunning
	nodeDone
)

func (r *runner) schedule(ctx context.Context) error {
	l := &loop{runner: r, ctx: ctx, results: make(chan result), state: map[string]nodePhase{}}
	for id := range r.records {
		l.finishNode(r.nodes[id])
	}
	for {
		before := l.doneCount()
		l.start()
		if l.doneCount() > before {
			continue // what was skipped or kept may let others start
		}
		if l.pending == 0 {
			if l.fatal != nil {
				return l.fatal
			}
			if l.allDone() {
				return nil
			}
			if ctx.Err() == nil {
				return &InfraError{"schedule", fmt.Errorf("nothing can start: %s", l.stuck())}
			}
			l.skipRest()
			continue
		}
		l.take(<-l.results)
	}
}

// start launches everything that may start now, in plan order.
func (l *loop) start() {
	if l.fatal == nil && l.ctx.Err() == nil {
		l.lowest = l.lowestTrial()
		for _, n := range l.Plan.Nodes {
			if l.state[n.ID] == nodeWaiting {
				l.tryNode(n)
			}
		}
	}
	l.stopUnits()
}

func (l *loop) tryNode(n schemas.Node) {
	for _, need := range n.Needs {
		if l.state[need] != nodeDone {
			return
		}
	}
	if cause := l.brokenNeed(n); cause != "" {
		l.skip(n, cause)
		return
	}
	if rec, ok := l.kept.records[n.ID]; ok {
		l.takeKept(n, rec)
		return
	}
	if !l.turn(n) || !l.servicesUp(n) {
		return
	}
	if l.state[n.ID] != nodeWaiting || l.measured || (n.Measured && l.running > 0) || l.running >= l.Parallel || l.unitBusy() && n.Measured {
		return
	}
	l.state[n.ID] = nodeRunning
	l.running++
	l.measured = n.Measured
	l.pending++
	views := l.views(unitsOf(n))
	for _, id := range unitsOf(n) {
		l.units[id].uses++
	}
	go func() { l.results <- l.execute(l.ctx, n, views) }()
}

// unitBusy says whether a service is starting or stopping: nothing is measured
// beside that.
func (l *loop) unitBusy() bool {
	for _, u := range l.units {
		if u.state == unitStarting || u.state == unitStopping {
			return true
		}
	}
	return false
}

// takeKept accepts a record of the interrupted run, unless what it was made from
// is no longer what it was: results of two versions of an input are not one run.
func (l *loop) takeKept(n schemas.Node, rec schemas.RunRecord) {
	e := l.newExecution(n, nil)
	e.dryURLs = true
	err := e.prepare(l.ctx)
	if err == nil {
		var key schemas.Key
		if key, _, err = schemas.KeyOf(e.pre); err == nil && key != rec.Record.Key {
			err = fmt.Errorf("its key is %s now and was %s", key.Short(), rec.Record.Key.Short())
		}
	}
	if err != nil {
		l.fatal = firstErr(l.fatal, &ResumeError{fmt.Sprintf("what stage %s was made from has changed since the run was interrupted (%v): put it back, or start a new run", n.ID, err)})
		return
	}
	l.setRecord(n.ID, rec)
	if rec.Record.Key.Valid() {
		l.preimage[rec.Record.Key.Preimage()] = true
	}
	l.findings = append(l.findings, rec.Record.Findings...)
	l.finishNode(n)
	l.event(Event{Type: "reuse", Node: n.ID, Kind: n.Kind, Text: "kept from before the interruption", Status: rec.Record.Status, NodesDone: l.doneCount(), NodesTotal: len(l.Plan.Nodes)})
}

// turn keeps trials that use services from overlapping: stages with a service
// run in the order of their trials.
func (l *loop) turn(n schemas.Node) bool {
	if n.Trial == "" || (n.Unit == "" && len(n.UsesUnits) == 0) {
		return true
	}
	return l.trials[n.Trial].Position <= l.lowest
}

// lowestTrial is the first trial that still has a stage with a service to run.
func (l *loop) lowestTrial() int {
	lowest := len(l.Plan.Trials)
	for _, n := range l.Plan.Nodes {
		if n.Trial == "" || (n.Unit == "" && len(n.UsesUnits) == 0) || l.state[n.ID] == nodeDone {
			continue
		}
		lowest = min(lowest, l.trials[n.Trial].Position)
	}
	return lowest
}

func (l *loop) take(res result) {
	l.pending--
	if res.unit != "" {
		l.takeUnit(res)
		return
	}
	n := l.nodes[res.node]
	l.running--
	if n.Measured {
		l.measured = false
	}
	if res.err == nil {
		res.err = l.commit(n, res)
	}
	if res.err != nil {
		l.fatal = firstErr(l.fatal, res.err)
	}
	l.finishNode(n)
}

// commit makes a stage's end durable and visible.
func (r *runner) commit(n schemas.Node, res result) error {
	r.setRecord(n.ID, res.record)
	r.findings = append(r.findings, res.findings...)
	if res.preimage != "" {
		r.preimage[res.preimage] = true
	}
	if r.journal != nil {
		if err := r.journal.write(journalEvent{Event: "record", Time: r.Now(), Record: &res.record}); err != nil {
			return err
		}
	}
	typ := "end"
	if res.record.ReusedFrom != "" {
		typ = "reuse"
	}
	rec := res.record.Record
	r.event(Event{Type: typ, Node: n.ID, Kind: n.Kind, Status: rec.Status, Text: firstText(rec.Error, res.record.ReusedFrom), NodesDone: len(r.records), NodesTotal: len(r.Plan.Nodes), Duration: rec.EndedAt.Sub(rec.StartedAt)})
	return nil
}

func (l *loop) finishNode(n schemas.Node) {
	l.state[n.ID] = nodeDone
	for _, id := range unitsOf(n) {
		l.units[id].left--
	}
}

func unitsOf(n schemas.Node) []string {
	if n.Unit == "" {
		return n.UsesUnits
	}
	return append([]string{n.Unit}, n.UsesUnits...)
}

// brokenNeed returns the root cause when a stage that n needs did not pass.
func (l *loop) brokenNeed(n schemas.Node) string {
	for _, need := range n.Needs {
		rec := l.records[need].Record
		if rec.Status == schemas.StagePassed {
			continue
		}
		if rec.RootCause != "" {
			return rec.RootCause
		}
		return need
	}
	return ""
}

func (l *loop) skip(n schemas.Node, cause string) {
	now := l.Now()
	rec := l.baseRecord(n)
	rec.Status, rec.RootCause, rec.StartedAt, rec.EndedAt = schemas.StageSkipped, cause, now, now
	rec.Error = "not run: stage " + cause + " did not pass"
	if err := l.store(n, rec, nil, result{}); err != nil {
		l.fatal = firstErr(l.fatal, err)
	}
	l.finishNode(n)
}

// skipRest marks what an interruption left undone.
func (l *loop) skipRest() {
	for _, n := range l.Plan.Nodes {
		if l.state[n.ID] != nodeWaiting {
			continue
		}
		now := l.Now()
		rec := l.baseRecord(n)
		rec.Status, rec.StartedAt, rec.EndedAt, rec.Error = schemas.StageAborted, now, now, "not run: the run was interrupted"
		if err := l.store(n, rec, nil, result{}); err != nil {
			l.fatal = firstErr(l.fatal, err)
		}
		l.finishNode(n)
	}
}

func (l *loop) allDone() bool {
	for _, n := range l.Plan.Nodes {
		if l.state[n.ID] != nodeDone {
			return false
		}
	}
	return true
}

func (l *loop) doneCount() int {
	c := 0
	for _, s := range l.state {
		if s == nodeDone {
			c++
		}
	}
	return c
}

func (l *loop) stuck() string {
	var names []string
	for _, n := range l.Plan.Nodes {
		if l.state[n.ID] != nodeDone {
			names = append(names, n.ID)
		}
	}
	sort.Strings(names)
	return strings.Join(names, ", ") + " wait for services that share a device with one still in use"
}

func firstErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func firstText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
