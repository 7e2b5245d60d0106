package archive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"assay/schemas"
)

// consistency compares the documents of a run with each other. Digests say that
// nothing was changed after sealing; this says that what was sealed can have
// come from one run: a document that was rewritten, and hashed anew, contradicts
// what others say of the same thing.
type consistency struct {
	v       *verifier
	run     *schemas.Run
	exp     schemas.Experiment
	nodes   map[string]schemas.Node
	trials  map[string]schemas.Trial
	records map[string]schemas.RunRecord // by node
}

// checkConsistency needs config, report and experiment; without one of them there
// is a finding already.
func (v *verifier) checkConsistency(experiment []byte) {
	if v.config == nil || v.report == nil || experiment == nil {
		return
	}
	c := &consistency{v: v, run: v.config, nodes: map[string]schemas.Node{}, trials: map[string]schemas.Trial{}, records: map[string]schemas.RunRecord{}}
	if err := json.Unmarshal(experiment, &c.exp); err != nil {
		v.add(schemas.Finding{ID: "archive.experiment", Subject: nameExperiment, Path: nameExperiment, Message: err.Error()})
		return
	}
	c.same(where{topic: "experiment", doc: nameConfig}, "plan.experiment_digest", c.run.Plan.Digest, "the SHA-256 of "+nameExperiment, schemas.DigestOf(experiment))
	for _, t := range c.run.Plan.Trials {
		c.trials[t.ID] = t
	}
	c.plan()
	if !c.nodeRecords() {
		return // what follows asks for the record of each node
	}
	for _, n := range c.run.Plan.Nodes {
		c.record(n, c.records[n.ID])
		c.outcome(n, c.records[n.ID])
		c.key(n, c.records[n.ID])
	}
	c.services()
	c.status()
	c.report()
	c.stageTable()
	c.findings()
	c.results()
	c.claims()
}

// where is the place of a contradiction: its rule, the document that is held
// against the others, and the node, if it is about one.
type where struct {
	topic string
	doc   string
	node  *schemas.Node
}

func (c *consistency) fail(w where, format string, args ...any) {
	f := schemas.Finding{ID: "archive.contradiction." + w.topic, Subject: w.doc, Path: w.doc, Message: fmt.Sprintf(format, args...),
		Remedy: "do not rely on this run: its documents were not sealed together, or were rewritten"}
	if w.node != nil {
		f.Subject, f.Stage, f.Trial = w.node.ID, w.node.Stage, w.node.Trial
		f.Message = w.doc + ": " + f.Message
	}
	c.v.add(f)
}

// same adds a finding when a field is not what another document says of it.
func (c *consistency) same(w where, field string, got any, other string, want any) bool {
	if sameValue(got, want) {
		return true
	}
	c.fail(w, "%s is %s, %s gives %s", field, valueText(got), other, valueText(want))
	return false
}

// sameValue compares as documents do: what is absent and what is empty are equal.
func sameValue(a, b any) bool {
	if t := reflect.TypeOf(a); t != nil && t == reflect.TypeOf(b) && t.Kind() == reflect.String {
		return a == b // most are: no need to encode them
	}
	x, errX := schemas.Encode(a)
	y, errY := schemas.Encode(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// maxValueText keeps a message readable when a value is a whole document.
const maxValueText = 300

func valueText(v any) string {
	b, err := schemas.Encode(v)
	if err != nil {
		return fmt.Sprintf("%v", v)
	}
	if len(b) > maxValueText {
		return string(bytes.ToValidUTF8(b[:maxValueText], nil)) + "..."
	}
	return string(b)
}

// nodeRecords pairs nodes with records: each has exactly one of the other.
func (c *consistency) nodeRecords() bool {
	w := where{topic: "record", doc: nameConfig}
	whole := true
	for _, r := range c.run.Records {
		if _, ok := c.nodes[r.Node]; !ok {
			c.fail(w, "it has a record of node %q, which its plan does not have", r.Node)
			whole = false
		}
		if _, twice := c.records[r.Node]; twice {
			c.fail(w, "it has two records of node %q", r.Node)
			whole = false
		}
		c.records[r.Node] = r
	}
	for _, n := range c.run.Plan.Nodes {
		if _, ok := c.records[n.ID]; !ok {
			w.node = &n
			c.fail(w, "the plan has node %q, and there is no record of it", n.ID)
			whole = false
		}
	}
	return whole
}

// status follows from records and services: pipeline seals by the same rule. An
// interruption after the last stage leaves no other trace than the status.
func (c *consistency) status() {
	status, cause := schemas.RunPassed, "every record"
	for _, r := range c.run.Records {
		switch s := r.Record.Status; {
		case s == schemas.StageAborted:
			status, cause = schemas.RunAborted, "the record of "+r.Node
		case status == schemas.RunAborted, s == schemas.StagePassed:
		case s == schemas.StageTainted:
			status, cause = schemas.RunTainted, "the record of "+r.Node
		case status == schemas.RunPassed:
			status, cause = schemas.RunFailed, "the record of "+r.Node
		}
	}
	for _, s := range c.run.Services {
		if (s.Status == "died" || s.Status == "failed_to_start") && status == schemas.RunPassed {
			status, cause = schemas.RunFailed, "service "+s.Unit+", which "+s.Status
		}
	}
	if c.run.Status != schemas.RunAborted {
		c.same(where{topic: "status", doc: nameConfig}, "status", c.run.Status, cause, status)
	}
}

// services belong to units of the plan, and what passed on a service has an
// account of its lifetime.
func (c *consistency) services() {
	units := map[string]schemas.PlanUnit{}
	for _, u := range c.run.Plan.Services {
		units[u.ID] = u
	}
	lived := map[string]bool{}
	for _, s := range c.run.Services {
		w := where{topic: "service", doc: nameConfig}
		u, ok := units[s.Unit]
		if !ok {
			c.fail(w, "it has an account of service lifetime %q, which its plan does not have", s.Unit)
			continue
		}
		lived[s.Unit] = true
		c.same(w, "service of "+s.Unit, s.Service, "the plan", u.Service)
		c.same(w, "engine of "+s.Unit, s.Engine, "the plan", u.Engine)
	}
	for _, n := range c.run.Plan.Nodes {
		r := c.records[n.ID]
		if r.ReusedFrom != "" || r.Record.Status != schemas.StagePassed {
			continue
		}
		for _, id := range append([]string{n.Unit}, n.UsesUnits...) {
			if id != "" && !lived[id] {
				c.fail(where{"service", nameConfig, &n}, "it passed on service lifetime %q, of which there is no account", id)
			}
		}
	}
}
