package archive

import (
	"assay/schemas"
)

// record compares a record with its node. One that was reused keeps what it was
// made as: an equal key may come from another run, stage or trial.
func (c *consistency) record(n schemas.Node, r schemas.RunRecord) {
	w := where{"record", nameConfig, &n}
	rec := r.Record
	c.same(w, "trials", r.Trials, "the plan", n.Trials)
	c.same(w, "kind", rec.Kind, "the plan", n.Kind)
	if r.ReusedFrom != "" {
		c.same(w, "reused_from", r.ReusedFrom, "the record", rec.Run)
		c.same(w, "status of a reused record", rec.Status, "the rule of reuse", schemas.StagePassed)
		c.same(w, "pure, of a reused record's node", n.Pure, "the rule of reuse", true)
		c.same(w, "pure, of a reused record", rec.Pure, "the rule of reuse", true)
		if !c.refersToPath(n) {
			c.same(w, "definition_key", rec.DefinitionKey, "the plan", n.Key)
		}
		return
	}
	c.same(w, "run", rec.Run, "the config", c.run.ID)
	c.same(w, "experiment", rec.Experiment, "the config", c.run.Experiment)
	c.same(w, "node", rec.Node, "the plan", n.ID)
	c.same(w, "stage", rec.Stage, "the plan", n.Stage)
	c.same(w, "trial", rec.Trial, "the plan", n.Trial)
	c.same(w, "unit", rec.Unit, "the plan", n.Unit)
	c.same(w, "pure", rec.Pure, "the plan", n.Pure)
	c.same(w, "definition_key", rec.DefinitionKey, "the plan", n.Key)
}

// refersToPath says whether a path parameter stands in the node's definition: as
// written in the definition key, as a digest in the action key, so that records
// of one action key may have different definition keys.
func (c *consistency) refersToPath(n schemas.Node) bool {
	for _, v := range c.referred(n) {
		if _, ok := schemas.ParamPath(v); ok {
			return true
		}
	}
	return false
}

// outcome compares a record's status with the ones it needs and with itself.
func (c *consistency) outcome(n schemas.Node, r schemas.RunRecord) {
	w := where{"outcome", nameConfig, &n}
	rec := r.Record
	causes, broken := c.rootCauses(n), ""
	for _, id := range n.Needs {
		if s := c.records[id].Record.Status; s != schemas.StagePassed {
			broken = id
		}
	}
	switch rec.Status {
	case schemas.StageSkipped:
		if !causes[rec.RootCause] {
			c.fail(w, "it was skipped because of %q, and what it needs did not fail for that cause", rec.RootCause)
		}
	case schemas.StagePassed, schemas.StageFailed, schemas.StageTainted:
		if broken != "" {
			c.fail(w, "its status is %s, and %s, which it needs, is %s", rec.Status, broken, c.records[broken].Record.Status)
		}
	}
	if s, ok := c.records[rec.RootCause]; rec.RootCause != "" && (!ok || s.Record.Status == schemas.StagePassed) {
		c.fail(w, "its root cause is %q, which is no node that did not pass", rec.RootCause)
	}
	if rec.Status == schemas.StagePassed {
		if rec.Error != "" || rec.RootCause != "" {
			c.fail(w, "its status is passed, and it has the error %q and the root cause %q", rec.Error, rec.RootCause)
		}
		if rec.Key == "" || rec.Tree == "" {
			c.fail(w, "its status is passed, and its key is %q and its tree %q", rec.Key, rec.Tree)
		}
	} else if rec.Error == "" {
		c.fail(w, "its status is %s, and it has no error", rec.Status)
	}
	if rec.Status == schemas.StageSkipped && (rec.Key != "" || rec.Tree != "" || len(rec.Outputs) > 0) {
		c.fail(w, "its status is skipped, and it has a key, a tree or outputs")
	}
}

// rootCauses lists what a node may have been skipped for.
func (c *consistency) rootCauses(n schemas.Node) map[string]bool {
	causes := map[string]bool{}
	for _, id := range n.Needs {
		switch rec := c.records[id].Record; {
		case rec.Status == schemas.StagePassed:
		case rec.RootCause != "":
			causes[rec.RootCause] = true
		default:
			causes[id] = true
		}
	}
	return causes
}
