package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"assay/internal/durable"
	"assay/internal/redact"
	"assay/schemas"
)

// runner executes one plan. Its maps belong to the scheduling loop; mu guards
// what stages call back into.
type runner struct {
	Options
	kinds    map[string]Kind
	nodes    map[string]schemas.Node
	trials   map[string]schemas.Trial
	journal  *journal
	kept     kept
	token    string
	workDir  string
	started  time.Time
	records  map[string]schemas.RunRecord
	services []schemas.ServiceRecord
	findings []schemas.Finding
	units    map[string]*unitState
	preimage map[schemas.Digest]bool

	dry         bool // explain: nothing is written, stored results are not read out
	inputCache  func() *inputCache
	seenSecrets map[string]string // name -> value, of every secret that was given out
	redactor    *redact.Secrets   // of them; nil when it has to be made anew

	mu         sync.Mutex
	flights    flights
	seenInputs map[string]string // path -> identity it had when a stage of this run first read it
	prints     map[string]ModelIdentity
	evLock     sync.Mutex
}

// NewRunID names a run: its start and eight random digits.
func NewRunID(now time.Time) (string, error) {
	b := make([]byte, 4)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("run id: %w", err)
	}
	return now.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(b), nil
}

// Run executes the plan and seals the run. A failed experiment is an outcome, not
// an error; an error means that nothing was published and, unless it is a
// ResumeError, that the run can be resumed.
func Run(ctx context.Context, opts Options) (Outcome, error) {
	r := newRunner(opts)
	closed := false
	defer func() {
		if !closed && r.journal != nil {
			_ = r.journal.close() // the lock goes with the file; the first error is already on its way
		}
	}()
	if err := r.open(ctx); err != nil {
		return Outcome{}, err
	}
	refused, err := r.early(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if refused != nil || r.PreflightOnly {
		closed = true
		return r.unpublished(refused)
	}
	if err := r.schedule(ctx); err != nil {
		return Outcome{}, err
	}
	out, err := r.seal(ctx.Err() != nil)
	if err != nil {
		return out, err
	}
	closed = true
	if err := errors.Join(r.journal.discard(), removeAll(r.workDir)); err != nil {
		return out, &InfraError{"clean up after the run", err}
	}
	return out, nil
}

func newRunner(opts Options) *runner {
	r := &runner{
		Options: opts, kinds: map[string]Kind{}, nodes: map[string]schemas.Node{}, trials: map[string]schemas.Trial{},
		records: map[string]schemas.RunRecord{}, units: map[string]*unitState{}, preimage: map[schemas.Digest]bool{},
		seenInputs: map[string]string{}, prints: map[string]ModelIdentity{}, kept: kept{attempts: map[string]int{}},
	}
	r.inputCache = sync.OnceValue(func() *inputCache { return newInputCache(opts, !r.dry) })
	for _, k := range opts.Kinds {
		r.kinds[k.Name] = k
	}
	for _, n := range opts.Plan.Nodes {
		r.nodes[n.ID] = n
	}
	for _, t := range opts.Plan.Trials {
		r.trials[t.ID] = t
	}
	for _, u := range opts.Plan.Services {
		r.units[u.ID] = &unitState{plan: u, left: len(u.Nodes)}
	}
	if r.Parallel <= 0 {
		r.Parallel = 2
	}
	r.findings = append(r.findings, opts.SourceFindings...)
	return r
}

// open starts the journal, or goes on with an interrupted one: survivors of the
// interrupted process are ended and its half-done work is thrown away first.
func (r *runner) open(ctx context.Context) error {
	r.started = r.Now()
	if r.Resume != nil {
		r.RunID, r.started = r.Resume.RunID, r.Resume.StartedAt
	}
	r.workDir = filepath.Join(r.StoreDir, "assay", "work", r.RunID)
	if r.PreflightOnly {
		dir, err := os.MkdirTemp("", "assay-preflight-")
		r.workDir = dir
		return err
	}
	j, err := openJournal(r.StoreDir, r.RunID)
	if err != nil {
		return err
	}
	r.journal = j
	if r.Sealed != nil {
		if err := tidy(r.StoreDir, r.Sealed, r.Sweep); err != nil {
			return &InfraError{"clean up after earlier runs", err}
		}
	}
	if r.Resume != nil {
		if r.Resume.alive() {
			return &ResumeError{fmt.Sprintf("the process that executes run %s still lives (this store may be a copy of its own)", r.RunID)}
		}
		if r.Sweep != nil {
			if err := r.Sweep(r.Resume.Token); err != nil {
				return &InfraError{"end processes of the interrupted run", err}
			}
		}
		r.kept = keep(r.Plan, *r.Resume, func(what string, tree schemas.Digest) bool { return r.whole(ctx, what, tree) })
		r.kept.resumed++
		r.services = append(r.services, r.kept.services...)
	}
	if err := removeAll(r.workDir); err != nil {
		return &InfraError{"remove half-done work", err}
	}
	if err := durable.MkdirAll(r.workDir); err != nil {
		return &InfraError{"make work folder", err}
	}
	r.token = r.RunID + "-" + fmt.Sprint(r.kept.resumed)
	return r.journal.write(journalEvent{Event: "start", Time: r.Now(), Start: &journalStart{
		RunID: r.RunID, Experiment: r.Experiment.Name, Digest: r.Plan.Digest, StartedAt: r.started, PID: os.Getpid(), Holder: durable.Self(), Token: r.token, Resume: r.kept.resumed}})
}

// early runs the checks that need nothing, before everything else.
func (r *runner) early(ctx context.Context) (*RefusedError, error) {
	refused := &RefusedError{}
	for _, n := range r.Plan.Nodes {
		if !r.kinds[n.Kind].Early || len(n.Needs) > 0 || n.Unit != "" || len(n.UsesUnits) > 0 {
			continue
		}
		res := r.execute(ctx, n, nil)
		if res.err != nil {
			return nil, res.err
		}
		if err := r.commit(n, res); err != nil {
			return nil, err
		}
		var re *RefusedError
		if errors.As(res.cause, &re) {
			refused.Findings = append(refused.Findings, re.Findings...)
		} else if res.record.Record.Status != schemas.StagePassed && ctx.Err() == nil {
			refused.Findings = append(refused.Findings, schemas.Finding{ID: "preflight.stage", Severity: schemas.SeverityError, Subject: "stage " + n.ID, Message: res.record.Record.Error, Stage: n.Stage})
		}
	}
	if len(refused.Findings) == 0 {
		return nil, nil
	}
	return refused, nil
}

// unpublished ends a run that publishes nothing: preflight alone, or refused.
func (r *runner) unpublished(refused *RefusedError) (Outcome, error) {
	out := Outcome{RunID: r.RunID, Status: schemas.RunPassed, Refused: refused, Findings: r.findings}
	if refused != nil {
		out.Status = schemas.RunFailed
	}
	var err error
	if r.journal != nil {
		err = r.journal.discard()
	}
	if err = errors.Join(err, removeAll(r.workDir)); err != nil {
		return out, &InfraError{"clean up after preflight", err}
	}
	return out, nil
}

func (r *runner) event(ev Event) {
	if r.Events == nil {
		return
	}
	r.evLock.Lock()
	defer r.evLock.Unlock()
	r.Events(ev)
}

// removeAll deletes a folder of ours whose parts may have been made read-only.
func removeAll(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return durable.RemoveAll(dir)
}
