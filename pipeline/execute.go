package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"assay/internal/durable"
	"assay/schemas"
)

// execution is one node on its way through the protocol.
type execution struct {
	*runner
	node    schemas.Node
	def     schemas.StageDef
	kind    Kind
	trial   schemas.Trial
	params  map[string]any
	config  map[string]any
	views   map[string]ServiceView
	inputs  []*input
	paths   map[string]string // logical name -> absolute path
	passed  map[string]string // variables passed through
	record  schemas.StageRecord
	pre     schemas.Preimage
	task    *Task
	dryURLs bool // services need not be up: only the key is wanted
	models  []ModelIdentity
	copies  *copies
	base    string // everything of this execution on disk
	dir     string // what of it is archived
	findMu  sync.Mutex
	finding []schemas.Finding
}

// execute takes a node through the whole protocol: hash inputs, look for an
// earlier result, run in a private folder, check the inputs again, store outputs
// and record.
func (r *runner) execute(ctx context.Context, n schemas.Node, views map[string]ServiceView) result {
	e := r.newExecution(n, views)
	e.record.StartedAt = r.Now()
	r.event(Event{Type: "start", Node: n.ID, Kind: n.Kind})
	if err := e.prepare(ctx); err != nil {
		return e.end(ctx, err, nil)
	}
	key, preimage, err := schemas.KeyOf(e.pre)
	if err != nil {
		return e.end(ctx, err, nil)
	}
	e.record.Key = key
	if n.Pure {
		leave, err := r.flights.enter(ctx, key)
		if err != nil {
			return e.end(ctx, err, preimage)
		}
		defer leave()
		rec, ok, err := e.earlier(ctx, key)
		if err != nil {
			return result{node: n.ID, err: &InfraError{"look for an earlier result", err}}
		}
		if ok {
			return e.reuse(rec)
		}
	}
	return e.end(ctx, e.run(ctx), preimage)
}

func (r *runner) newExecution(n schemas.Node, views map[string]ServiceView) *execution {
	e := &execution{runner: r, node: n, def: r.Experiment.Stage[n.Stage], kind: r.kinds[n.Kind], trial: r.trials[n.Trial], views: views, paths: map[string]string{}}
	e.params = trialParams(r.Experiment, e.trial.Point)
	e.record = r.baseRecord(n)
	e.base = filepath.Join(r.workDir, "nodes", strings.ReplaceAll(n.ID, "@", "-"))
	e.copies = newCopies(r.Store, filepath.Join(e.base, "inputs"))
	return e
}

func (r *runner) baseRecord(n schemas.Node) schemas.StageRecord {
	return schemas.StageRecord{
		Schema: schemas.StageRecordV1, Node: n.ID, Stage: n.Stage, Kind: n.Kind, KindVersion: r.kinds[n.Kind].Version, Experiment: r.Experiment.Name,
		Run: r.RunID, Trial: n.Trial, Unit: n.Unit, Attempt: r.kept.attempts[n.ID] + 1, DefinitionKey: n.Key, Pure: n.Pure,
		Inputs: []schemas.Input{}, Outputs: []schemas.Output{},
	}
}

// reuse uses an earlier record as this node's.
func (e *execution) reuse(rec schemas.StoredRecord) result {
	findings := append(append([]schemas.Finding{}, rec.Record.Findings...), e.finding...)
	return result{node: e.node.ID, preimage: rec.Record.Key.Preimage(), findings: findings,
		record: schemas.RunRecord{Record: rec.Record, Digest: rec.Digest, ReusedFrom: rec.Record.Run, Node: e.node.ID, Trials: e.node.Trials, Path: nodePath(e.node)}}
}

// run executes the kind and publishes what it made.
func (e *execution) run(ctx context.Context) error {
	if err := e.makeTask(ctx); err != nil {
		return err
	}
	defer func() { _ = removeAll(e.base) }() // what matters is stored by then; the run removes the rest
	log, err := os.OpenFile(filepath.Join(e.dir, "logs", "stage.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	filter := e.filter(log)
	e.task.Log = filter
	if err := e.copies.fill(ctx); err != nil {
		return errors.Join(err, log.Close())
	}
	runCtx, cancel := ctx, context.CancelFunc(func() {})
	if e.def.Timeout > 0 {
		runCtx, cancel = context.WithTimeoutCause(ctx, e.def.Timeout.Std(), fmt.Errorf("timeout of %s passed", e.def.Timeout))
	}
	if err = e.kind.Run(runCtx, e.task); err == nil {
		err = e.serviceDied()
	}
	if cause := context.Cause(runCtx); err != nil && cause != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	cancel()
	if err != nil {
		fmt.Fprintf(filter, "stage failed: %v\n", err)
	}
	err = errors.Join(err, filter.Close(), log.Close())
	if changed := e.changedInputs(ctx); len(changed) > 0 {
		err = &TaintedError{Inputs: changed}
	}
	return e.publish(ctx, err)
}

// publish stores logs and outputs. A stage that failed keeps what it published:
// it is evidence, and never reused.
func (e *execution) publish(ctx context.Context, cause error) error {
	ctx = context.WithoutCancel(ctx)
	if err := e.redact(filepath.Join(e.dir, "logs")); err != nil {
		return &InfraError{"redact logs of " + e.node.ID, err}
	}
	if err := e.refuseSecrets(filepath.Join(e.dir, "outputs")); err != nil {
		if rm := removeAll(filepath.Join(e.dir, "outputs")); rm != nil {
			return &InfraError{"remove outputs that hold a secret", rm}
		}
		e.task.outputs = nil
		cause = errors.Join(cause, err)
	}
	if e.PreflightOnly {
		return cause // nothing is written outside the temporary folder
	}
	tree, blob, err := e.Store.PutTree(ctx, e.dir)
	if err != nil && infrastructure(e.node, err) == nil {
		// What it published cannot be archived, and never will be: the stage failed.
		cause = errors.Join(cause, fmt.Errorf("outputs cannot be archived, nothing of them was: %w", err))
		if err := errors.Join(removeAll(filepath.Join(e.dir, "outputs")), durable.MkdirAll(filepath.Join(e.dir, "outputs"))); err != nil {
			return &InfraError{"remove outputs that cannot be archived", err}
		}
		e.task.outputs = nil
		tree, blob, err = e.Store.PutTree(ctx, e.dir)
	}
	if err != nil {
		return &InfraError{"store outputs of " + e.node.ID, err}
	}
	e.record.Tree = blob
	names := slices.Sorted(maps.Keys(e.task.outputs))
	for _, name := range names {
		out, err := outputOf(tree, name, e.task.outputs[name])
		if err != nil {
			cause = errors.Join(cause, err)
			continue
		}
		e.record.Outputs = append(e.record.Outputs, out)
	}
	if cause == nil {
		cause = e.missingOutputs()
	}
	return cause
}

func outputOf(tree schemas.Tree, name, rel string) (schemas.Output, error) {
	found := false
	for _, en := range tree.Entries {
		found = found || en.Path == rel
	}
	if !found {
		return schemas.Output{}, fmt.Errorf("output %s was declared but never written", name)
	}
	d, files, bytes, err := schemas.SubTreeSums(tree.Entries, path.Join("outputs", name))
	if err != nil {
		return schemas.Output{}, err
	}
	return schemas.Output{Name: name, Digest: d, Path: rel, Bytes: bytes, Files: files}, nil
}

func (e *execution) missingOutputs() error {
	if e.kind.Outputs == nil {
		return nil
	}
	for _, name := range e.kind.Outputs(e.config) {
		if _, ok := e.task.outputs[name]; !ok {
			return fmt.Errorf("output %s was not published", name)
		}
	}
	return nil
}

// end writes the record of an executed stage.
func (e *execution) end(ctx context.Context, cause error, preimage []byte) result {
	if infra := infrastructure(e.node, cause); infra != nil {
		return result{node: e.node.ID, err: infra}
	}
	e.record.EndedAt = e.Now()
	e.record.Status = statusOf(ctx, cause)
	if cause != nil {
		e.record.Error = e.hideSecrets(cause.Error())
	}
	e.record.Findings = e.finding
	res := result{node: e.node.ID, cause: cause, findings: e.finding}
	if err := e.storeRecord(e.node, e.record, preimage, &res); err != nil {
		res.err = err
	}
	return res
}

// infrastructure tells a broken disk from a failed stage: the first leaves the
// run open to be resumed, the second is a result.
func infrastructure(n schemas.Node, cause error) error {
	var infra *InfraError
	if errors.As(cause, &infra) {
		return infra
	}
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EROFS, syscall.EIO} {
		if errors.Is(cause, errno) {
			return &InfraError{"stage " + n.ID, cause}
		}
	}
	return nil
}

func statusOf(ctx context.Context, cause error) schemas.StageStatus {
	var tainted *TaintedError
	switch {
	case cause == nil:
		return schemas.StagePassed
	case errors.As(cause, &tainted):
		return schemas.StageTainted
	case ctx.Err() != nil:
		return schemas.StageAborted
	}
	return schemas.StageFailed
}

// store writes and commits a record made by the scheduling loop itself.
func (r *runner) store(n schemas.Node, rec schemas.StageRecord, preimage []byte, res result) error {
	res.node = n.ID
	if err := r.storeRecord(n, rec, preimage, &res); err != nil {
		return err
	}
	return r.commit(n, res)
}

func (r *runner) storeRecord(n schemas.Node, rec schemas.StageRecord, preimage []byte, res *result) error {
	rec.DurationMs = float64(rec.EndedAt.Sub(rec.StartedAt)) / 1e6
	res.record = schemas.RunRecord{Record: rec, Node: n.ID, Trials: n.Trials}
	if rec.Tree != "" {
		res.record.Path = nodePath(n)
	}
	if r.PreflightOnly {
		return nil
	}
	d, err := r.Store.PutRecord(context.Background(), rec, preimage)
	if err != nil {
		return &InfraError{"store the record of " + n.ID, err}
	}
	res.record.Digest = d
	if rec.Key.Valid() {
		res.preimage = rec.Key.Preimage()
	}
	return nil
}

// nodePath is where a node's tree stands in the run's file list.
func nodePath(n schemas.Node) string {
	if n.Scope == schemas.ScopeRun {
		return "run/" + n.Stage
	}
	return "trials/" + n.Trial + "/" + n.Stage
}

func (e *execution) makeTask(ctx context.Context) error {
	e.dir = filepath.Join(e.base, "archive")
	work := filepath.Join(e.base, "work")
	if err := removeAll(e.base); err != nil {
		return err
	}
	for _, d := range []string{filepath.Join(e.dir, "logs"), filepath.Join(e.dir, "outputs"), work} {
		if err := durable.MkdirAll(d); err != nil {
			return &InfraError{"make the folder of " + e.node.ID, err}
		}
	}
	env, err := e.environment(ctx)
	if err != nil {
		return err
	}
	e.task = &Task{
		Node: e.node, Trial: e.trial, Config: e.config, Work: work, Dir: e.dir, Log: io.Discard, Inputs: e.paths, Env: env, Upstream: e.upstream(),
		Models: e.models, Experiment: e.Experiment, StoreDir: e.StoreDir, Supervise: marked{e.Supervise, e.token}, Report: e.report, Filter: e.filter, Hide: e.hideSecrets,
		Trials: e.Plan.Trials, Resolve: e.resolveEarly, Abs: e.abs, Fingerprint: e.fingerprint, ServiceEnv: e.Machine.ServiceEnv, Checkpoints: e.Machine.Checkpoints, Facts: e.Machine.Facts, Host: e.Machine.Host, Exited: func(code int) { e.record.ExitCode = &code },
		Progress: func(done, total int64, note string) {
			e.event(Event{Type: "progress", Node: e.node.ID, Kind: e.node.Kind, Done: done, Total: total, Text: note})
		},
	}
	if e.record.Seed != nil {
		e.task.Seed = *e.record.Seed
	}
	if view, ok := e.views[e.def.Service]; ok {
		e.task.Service = &view
	}
	return nil
}

// marked hands every command the token of its run.
type marked struct {
	inner Supervisor
	token string
}

// Run implements Supervisor.
func (m marked) Run(ctx context.Context, cmd Command) (int, error) {
	cmd.Token = m.token
	return m.inner.Run(ctx, cmd)
}

// serviceDied is an error when a service that the stage used is gone at its end:
// what it did from then on was not what it says.
func (e *execution) serviceDied() error {
	for _, name := range slices.Sorted(maps.Keys(e.views)) {
		if why := e.views[name].Dead(); why != "" {
			return fmt.Errorf("service %s died while the stage used it: %s", name, why)
		}
	}
	return nil
}

func (e *execution) report(f schemas.Finding) {
	if f.Stage == "" {
		f.Stage, f.Trial = e.node.Stage, e.node.Trial
	}
	f.Message = e.hideSecrets(f.Message)
	e.findMu.Lock()
	e.finding = append(e.finding, f)
	e.findMu.Unlock()
	if f.Severity != schemas.SeverityPass {
		e.event(Event{Type: "finding", Node: e.node.ID, Finding: &f})
	}
}
