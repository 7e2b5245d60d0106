package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"assay/schemas"
)

// Explanation says whether a node would be reused or run, and why.
type Explanation struct {
	Node     string `json:"node"`
	Stage    string `json:"stage"`
	Kind     string `json:"kind"`
	Decision string `json:"decision"` // reuse, run, cannot
	Reason   string `json:"reason"`
	// Key is absent while an upstream result is not known yet.
	Key           schemas.Key    `json:"key,omitempty"`
	DefinitionKey schemas.Key    `json:"definition_key"`
	From          string         `json:"from_run,omitempty"` // the run a reused result comes from
	Record        schemas.Digest `json:"record,omitempty"`
	// NearestRun and Differences compare with the most similar earlier record.
	NearestRun  string       `json:"nearest_run,omitempty"`
	Differences []Difference `json:"differences"`
}

// Difference is one field of two preimages that is not equal. A side without the
// field is null.
type Difference struct {
	Field  string `json:"field"`
	Before any    `json:"before"`
	After  any    `json:"after"`
}

// Explain says what a run of the plan would do now. It starts nothing and writes
// nothing; of Options it needs what tells about the experiment and the store.
func Explain(ctx context.Context, opts Options) ([]Explanation, error) {
	r := newRunner(opts)
	r.dry = true
	list := make([]Explanation, 0, len(r.Plan.Nodes))
	for _, n := range r.Plan.Nodes {
		x, err := r.explain(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("explain %s: %w", n.ID, err)
		}
		list = append(list, x)
	}
	return list, nil
}

func (r *runner) explain(ctx context.Context, n schemas.Node) (Explanation, error) {
	x := Explanation{Node: n.ID, Stage: n.Stage, Kind: n.Kind, DefinitionKey: n.Key, Decision: "run", Differences: []Difference{}}
	e := r.newExecution(n, nil)
	if err := e.prepare(ctx); err != nil {
		x.Decision, x.Reason = "cannot", err.Error()
		return x, nil
	}
	unknown := r.unknownUpstream(n)
	if len(unknown) == 0 {
		key, _, err := schemas.KeyOf(e.pre)
		if err != nil {
			return x, err
		}
		x.Key = key
		if n.Pure {
			rec, ok, err := e.earlier(ctx, key)
			if err != nil {
				return x, err
			}
			if ok {
				r.setRecord(n.ID, schemas.RunRecord{Record: rec.Record, Digest: rec.Digest, Node: n.ID})
				x.Decision, x.Reason, x.From, x.Record = "reuse", "an equal key has a whole result", rec.Record.Run, rec.Digest
				return x, nil
			}
		}
	}
	if err := r.nearest(ctx, e, unknown, &x); err != nil {
		return x, err
	}
	x.Reason = reasonToRun(n, unknown, x)
	return x, nil
}

func (r *runner) unknownUpstream(n schemas.Node) []string {
	var stages []string
	for _, id := range n.Needs {
		if r.isGate(n, r.nodes[id]) {
			continue // its findings enter no key
		}
		if _, ok := r.records[id]; !ok && !contains(stages, r.nodes[id].Stage) {
			stages = append(stages, r.nodes[id].Stage)
		}
	}
	return stages
}

func reasonToRun(n schemas.Node, unknown []string, x Explanation) string {
	var why []string
	if !n.Pure {
		why = append(why, "a "+n.Kind+" stage always runs")
	}
	if len(x.Differences) > 0 {
		why = append(why, fmt.Sprintf("%d difference(s) from run %s", len(x.Differences), x.NearestRun))
	}
	if len(unknown) > 0 && n.Pure {
		why = append(why, "its key depends on what "+strings.Join(unknown, ", ")+" will give")
	}
	if x.NearestRun == "" {
		why = append(why, "no earlier record of it in this store")
	}
	if len(why) == 0 {
		why = append(why, "the earlier result of this key did not pass, is damaged, or belongs to a run that is not sealed")
	}
	return strings.Join(why, "; ")
}

// nearest finds the earlier record whose preimage differs least; of equals, the
// newest. Upstream results that are not known yet are left out on both sides.
func (r *runner) nearest(ctx context.Context, e *execution, unknown []string, x *Explanation) error {
	records, err := r.Store.RecordsByStage(ctx, r.Experiment.Name, e.node.Stage)
	if err != nil {
		return err
	}
	mine, err := flatten(e.pre)
	if err != nil {
		return err
	}
	found := false
	for _, rec := range records {
		if !rec.Record.Key.Valid() {
			continue
		}
		b, err := r.Store.Preimage(ctx, rec.Record.Key)
		if err != nil {
			continue // a damaged preimage explains nothing; verify reports it
		}
		var pre schemas.Preimage
		if err := json.Unmarshal(b, &pre); err != nil {
			continue
		}
		theirs, err := flatten(pre)
		if err != nil {
			return err
		}
		if diffs := difference(theirs, mine, unknown); !found || len(diffs) < len(x.Differences) {
			found, x.Differences, x.NearestRun = true, diffs, rec.Record.Run
		}
	}
	return nil
}

// flatten turns a preimage into field -> scalar.
func flatten(pre schemas.Preimage) (map[string]any, error) {
	v, err := schemas.Normalize(pre)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch t := v.(type) {
		case map[string]any:
			for k, sub := range t {
				walk(strings.TrimPrefix(name+"."+k, "."), sub)
			}
		case []any:
			for i, sub := range t {
				walk(fmt.Sprintf("%s[%d]", name, i), sub)
			}
		case nil:
		default:
			out[name] = v
		}
	}
	walk("", v)
	return out, nil
}

func difference(before, after map[string]any, unknown []string) []Difference {
	fields := map[string]bool{}
	for f := range before {
		fields[f] = true
	}
	for f := range after {
		fields[f] = true
	}
	list := []Difference{}
	for f := range fields {
		if before[f] == after[f] || isUnknown(f, unknown) {
			continue
		}
		list = append(list, Difference{f, before[f], after[f]})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Field < list[j].Field })
	return list
}

func isUnknown(field string, stages []string) bool {
	for _, s := range stages {
		if strings.HasPrefix(field, "upstream."+s+"/") {
			return true
		}
	}
	return false
}
