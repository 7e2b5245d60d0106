package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"assay/internal/durable"
	"assay/schemas"
)

// copies are the stored trees that one reader uses, written out for it alone: what
// it does to them reaches nobody else. Where a tree will lie is known before it is
// written, so that a key can be made, and an earlier result used, without a copy.
type copies struct {
	store TreeStore
	dir   string

	mu    sync.Mutex
	made  map[schemas.Digest]bool
	wants map[schemas.Digest]bool
	fans  map[string][]fanEntry // folders of one output over all trials
}

// fanEntry is one trial's output in such a folder.
type fanEntry struct {
	Trial      string         `json:"trial"` // its entry in the folder
	Point      map[string]any `json:"point"` // a path among them by its content
	Repetition int            `json:"repetition"`
	position   int
	target     string
}

func newCopies(store TreeStore, dir string) *copies {
	return &copies{store: store, dir: dir, made: map[schemas.Digest]bool{}, wants: map[schemas.Digest]bool{}, fans: map[string][]fanEntry{}}
}

// want says where sub of a tree will lie once fill has run.
func (c *copies) want(tree schemas.Digest, sub string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wants[tree] = true
	return filepath.Join(c.dir, tree.Hex(), filepath.FromSlash(sub))
}

// fill writes out every tree that is wanted.
func (c *copies) fill(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tree := range c.wants {
		if c.made[tree] {
			continue
		}
		if err := durable.MkdirAll(c.dir); err != nil {
			return &InfraError{"make a folder for stored results", err}
		}
		if err := c.store.Materialize(ctx, tree, "", filepath.Join(c.dir, tree.Hex())); err != nil {
			return fmt.Errorf("read a stored result: %w", err)
		}
		c.made[tree] = true
	}
	for name, list := range c.fans {
		if err := c.fillFan(name, list); err != nil {
			return &InfraError{"make the folder of all trials' " + name, err}
		}
		delete(c.fans, name)
	}
	return nil
}

// fan says where the folder of all trials' outputs will lie.
func (c *copies) fan(name string, list []fanEntry) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fans[name] = list
	return filepath.Join(c.dir, "all", name)
}

func (c *copies) fillFan(name string, list []fanEntry) error {
	dir := filepath.Join(c.dir, "all", name)
	if err := durable.MkdirAll(dir); err != nil {
		return err
	}
	for _, e := range list {
		if err := durable.Symlink(e.target, filepath.Join(dir, e.Trial)); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, "trials.json"), append(b, '\n'), 0o644)
}

// holds says whether path lies in one of the copies.
func (c *copies) holds(path string) bool {
	return strings.HasPrefix(path, c.dir+string(filepath.Separator))
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
				Path: func(ctx context.Context) (string, error) {
					path := e.copies.want(rec.Tree, o.Path)
					return path, e.copies.fill(ctx)
				}})
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
		if err := e.checkStored(ctx, rec.Record); err != nil {
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
	return *found, true, nil
}

// checkStored reads everything that reusing a record would rest on: its tree, and
// the preimage of its key, which verify asks for.
func (e *execution) checkStored(ctx context.Context, rec schemas.StageRecord) error {
	if _, err := e.Store.Preimage(ctx, rec.Key); err != nil {
		return err
	}
	return e.Store.CheckTree(ctx, rec.Tree)
}

func outputsText(rec schemas.StageRecord) string {
	var b strings.Builder
	for _, o := range rec.Outputs {
		fmt.Fprintf(&b, "%s=%s;", o.Name, o.Digest)
	}
	return b.String()
}
