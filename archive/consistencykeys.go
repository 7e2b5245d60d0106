package archive

import (
	"slices"
	"strings"

	"assay/schemas"
)

// kindPreflight is the kind whose findings are a gate, not an input: they enter
// no key but that of a stage that names them.
const kindPreflight = "preflight"

// key compares the preimage of a record's key with the record, the experiment
// and the records of what the node needs.
func (c *consistency) key(n schemas.Node, r schemas.RunRecord) {
	d := r.Record.Key.Preimage()
	if r.Record.Key == "" || c.v.bad[d] {
		return
	}
	doc := dirPreimages + "/" + d.Hex() + ".json"
	b, err := c.v.doc(d, doc)
	if err != nil {
		return // has a finding of its own
	}
	w := where{"key", doc, &n}
	var pre schemas.Preimage
	if err := decodeStrict(b, &pre); err != nil || pre.Schema != schemas.KeyV1 {
		c.fail(w, "it is no preimage of a key: schema %q, %v", pre.Schema, err)
		return
	}
	c.same(w, "kind", pre.Kind, "the record", r.Record.Kind)
	c.same(w, "kind_version", pre.KindVersion, "the record", r.Record.KindVersion)
	c.same(w, "scope", pre.Scope, "the plan", n.Scope)
	c.same(w, "seed", pre.Seed, "the record", r.Record.Seed)
	c.definition(w, n, pre)
	c.keyParams(w, n, r, pre)
	c.keyUpstream(w, n, pre)
	c.keyInputs(w, r, pre)
}

// definition compares what was keyed with the stage in the experiment, and the
// plan's definition key with both.
func (c *consistency) definition(w where, n schemas.Node, pre schemas.Preimage) {
	def := c.exp.Stage[n.Stage]
	definition, known := schemas.KeyedDefinition(def)
	var service map[string]any
	if svc, ok := c.exp.Service[def.Service]; ok {
		var engine bool
		service, engine = schemas.KeyedService(svc)
		known = known && engine
	}
	if !known {
		c.v.add(schemas.Finding{ID: "archive.contradiction.key", Severity: schemas.SeverityUnknown, Subject: n.ID, Stage: n.Stage, Trial: n.Trial, Path: w.doc,
			Message: "this version does not know kind " + def.Kind + " or the engine of its service, and cannot compare its key with the experiment", Remedy: "verify with the version that made the run, or a later one"})
		return
	}
	c.same(w, "definition", pre.Definition, nameExperiment, definition)
	c.same(w, "service", pre.Service, nameExperiment, service)
	key, _, err := schemas.KeyOf(schemas.Preimage{Schema: schemas.KeyV1, Kind: def.Kind, KindVersion: pre.KindVersion, Scope: def.Scope, Definition: definition,
		Params: c.referred(n), Service: service, Seed: pre.Seed})
	if err != nil {
		c.fail(w, "definition key: %v", err)
		return
	}
	c.same(where{"key", nameConfig, &n}, "definition_key in the plan", n.Key, nameExperiment, key)
}

// referred are the parameters that a node's stage and its service refer to, as
// its trial sees them.
func (c *consistency) referred(n schemas.Node) map[string]any {
	def, params := c.exp.Stage[n.Stage], schemas.TrialParams(c.exp.Params, c.trials[n.Trial].Point)
	used := schemas.ReferredParams(def.Config, params)
	for k, v := range schemas.ReferredParams(c.exp.Service[def.Service].Config, params) {
		used[k] = v
	}
	return used
}

// keyParams compares the parameters in the key with those of the node's trial. A
// path parameter stands there as the digest of what was read.
func (c *consistency) keyParams(w where, n schemas.Node, r schemas.RunRecord, pre schemas.Preimage) {
	want := c.referred(n)
	c.same(w, "the number of parameters", len(pre.Params), nameExperiment, len(want))
	for name, v := range want {
		if _, isPath := schemas.ParamPath(v); isPath {
			if d, _ := pre.Params[name].(string); !hasInput(r.Record, "param."+name, d) && (n.Kind != kindPreflight || d != unreadablePath) {
				c.fail(w, "params.%s is %s, which is the digest of no input of the record", name, valueText(pre.Params[name]))
			}
			continue
		}
		c.same(w, "params."+name, pre.Params[name], "the trial", v)
	}
}

// unreadablePath stands in a check's key for a path that could not be read.
const unreadablePath = "unreadable"

// hasInput says whether a record has an input that stands in a key by an identity:
// its digest, and whether it may be run, which the record does not say.
func hasInput(rec schemas.StageRecord, name, identity string) bool {
	digest := strings.TrimSuffix(identity, " executable")
	for _, in := range rec.Inputs {
		if in.Name == name && string(in.Digest) == digest {
			return true
		}
	}
	return false
}

// keyUpstream compares the upstream digests in the key with the outputs of the
// nodes that are needed, both ways. Outputs of several trials have a label after
// "@" that says which.
func (c *consistency) keyUpstream(w where, n schemas.Node, pre schemas.Preimage) {
	keyed := map[[2]string]bool{} // stage/output, digest
	for name, d := range pre.Upstream {
		base, label, labelled := strings.Cut(name, "@")
		if labelled && (n.Scope != schemas.ScopeRun || label == "") {
			c.fail(w, "upstream %q has a label, and the node is of %s scope", name, n.Scope)
		}
		keyed[[2]string{base, d}] = true
	}
	recorded, named := map[[2]string]bool{}, stageReferences(c.exp.Stage[n.Stage].Config)
	for _, id := range n.Needs {
		need := c.nodes[id]
		if need.Kind == kindPreflight && !slices.Contains(named, need.Stage) {
			continue
		}
		for _, o := range c.records[id].Record.Outputs {
			name := need.Stage + "/" + o.Name
			pair := [2]string{name, string(o.Digest)}
			recorded[pair] = true
			if !keyed[pair] {
				c.fail(w, "upstream %s is %s in the record of %s, the key has %s", name, o.Digest, id, valueText(pre.Upstream))
			}
		}
	}
	for pair := range keyed {
		if !recorded[pair] {
			c.fail(w, "upstream %s is %s, which no node it needs has as that output", pair[0], pair[1])
		}
	}
}

// keyInputs compares the inputs in the key with those of the record, both ways.
func (c *consistency) keyInputs(w where, r schemas.RunRecord, pre schemas.Preimage) {
	keyed := map[string]bool{}
	check := func(group, name, identity string) {
		keyed[name] = true
		if !hasInput(r.Record, name, identity) {
			c.fail(w, "%s.%s is %s, which is no input of the record", group, name, identity)
		}
	}
	for name, d := range pre.Inputs {
		check("inputs", name, d)
	}
	for name, d := range pre.Tools {
		check("tools", name, d)
	}
	for name, d := range pre.Sources {
		check("sources", "source."+name, d)
	}
	for name, d := range pre.Upstream {
		check("upstream", name, d)
	}
	for name := range pre.Params {
		keyed["param."+name] = true
	}
	for _, in := range r.Record.Inputs {
		if !keyed[in.Name] {
			c.fail(w, "it has no %s, which is input %s of the record", in.Name, in.Digest)
		}
	}
	if len(pre.Sources) > 0 && len(c.run.Sources) == 0 {
		c.fail(w, "it has inputs of a source run, and the config names none")
	}
}
