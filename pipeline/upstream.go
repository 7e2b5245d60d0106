package pipeline

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"assay/schemas"
)

// materialized is one stored tree written out once, for all who read it.
type materialized struct {
	once sync.Once
	dir  string
	err  error
}

func (r *runner) materialize(ctx context.Context, tree schemas.Digest, sub string) (string, error) {
	r.mu.Lock()
	m := r.mat[tree]
	if m == nil {
		m = &materialized{dir: filepath.Join(r.workDir, "inputs", tree.Hex())}
		r.mat[tree] = m
	}
	r.mu.Unlock()
	m.once.Do(func() {
		if m.err = r.Store.Materialize(ctx, tree, "", m.dir); m.err != nil {
			m.err = fmt.Errorf("read a stored result: %w", m.err)
		}
	})
	return filepath.Join(m.dir, filepath.FromSlash(sub)), m.err
}

func (r *runner) setRecord(node string, rec schemas.RunRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[node] = rec
}

func (r *runner) recordOf(node string) schemas.StageRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[node].Record
}

// upstream lists the outputs of the stages that this one needs, in plan order.
func (e *execution) upstream() []UpstreamOutput {
	var list []UpstreamOutput
	for _, n := range e.Plan.Nodes {
		if !contains(e.node.Needs, n.ID) {
			continue
		}
		rec := e.recordOf(n.ID)
		for _, o := range rec.Outputs {
			list = append(list, UpstreamOutput{Stage: n.Stage, Kind: n.Kind, Trial: e.trials[n.Trial], Name: o.Name, Digest: o.Digest,
				Path: func(ctx context.Context) (string, error) { return e.materialize(ctx, rec.Tree, o.Path) }})
		}
	}
	return list
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// earlier looks for a result of the same key that may be used: the oldest that
// passed, made by a sealed run or this one, whose bytes are whole. Several
// different results of one key are evidence that the stage is not pure.
func (e *execution) earlier(ctx context.Context, key schemas.Key) (schemas.StoredRecord, bool, error) {
	list, err := e.Store.RecordsByKey(ctx, key)
	if err != nil {
		return schemas.StoredRecord{}, false, err
	}
	var found *schemas.StoredRecord
	different := map[string]bool{}
	for i, rec := range list {
		if rec.Record.Status != schemas.StagePassed {
			continue
		}
		different[outputsText(rec.Record)] = true
		if found != nil || (!rec.Sealed && rec.Record.Run != e.RunID) {
			continue
		}
		if err := e.Store.CheckTree(ctx, rec.Record.Tree); err != nil {
			e.report(schemas.Finding{ID: "reuse.damaged", Severity: schemas.SeverityWarning, Subject: "stage " + e.node.ID,
				Message: fmt.Sprintf("an earlier result (run %s) is damaged and is not used: %v", rec.Record.Run, err), Remedy: "assay verify that run"})
			continue
		}
		found = &list[i]
	}
	if len(different) > 1 {
		e.report(schemas.Finding{ID: "reuse.nondeterminism", Severity: schemas.SeverityWarning, Subject: "stage " + e.node.ID,
			Message: fmt.Sprintf("key %s has %d different results on record; the stage is not as pure as it says", key.Short(), len(different)), Remedy: "set reuse = false, or find what makes it vary"})
	}
	if found == nil {
		return schemas.StoredRecord{}, false, nil
	}
	found.Record.Findings = append(found.Record.Findings, e.finding...)
	return *found, true, nil
}

func outputsText(rec schemas.StageRecord) string {
	var b strings.Builder
	for _, o := range rec.Outputs {
		fmt.Fprintf(&b, "%s=%s;", o.Name, o.Digest)
	}
	return b.String()
}
