package experiments

import (
	"slices"
	"strings"

	"assay/schemas"
)

// checkReference checks one ${...} where it stands and reports whether it may
// be used. It adds the need it implies.
func (c *checker) checkReference(l leaf, r schemas.Reference) bool {
	before := len(c.list)
	switch r.Namespace {
	case schemas.RefParam:
		c.checkParamRef(l, r)
	case schemas.RefStage:
		c.checkStageRef(l, r)
	case schemas.RefSource:
		if !l.paths || l.owner.kind == "params" {
			c.misplaced(l, r, "a path, argument or environment variable")
		}
	case schemas.RefService:
		c.checkServiceRef(l, r)
	case schemas.RefMachine:
		if !l.machine {
			c.misplaced(l, r, "a path, URL, port or device")
		} else if c.machine.File != "" {
			c.known(l, r, "machine value", "[values]", sortedKeys(c.machine.Values))
		}
	case schemas.RefSecret:
		if !l.secret {
			c.misplaced(l, r, "an environment variable")
		} else if c.machine.File != "" {
			c.known(l, r, "secret", "[secrets]", sortedKeys(c.machine.Secrets))
		}
	}
	return len(c.list) == before
}

func (c *checker) misplaced(l leaf, r schemas.Reference, where string) {
	c.at(l.at, "", "%s: %s may stand only in %s", l.field.Name, r.Text, where)
}

// known checks a name against the machine file.
func (c *checker) known(l leaf, r schemas.Reference, what, section string, names []string) {
	if !slices.Contains(names, r.Names[0]) {
		c.at(l.at, schemas.Nearest(r.Names[0], names), "%s: there is no %s %q in %s of %s", l.field.Name, what, r.Names[0], section, c.machine.File)
	}
}

func (c *checker) checkParamRef(l leaf, r schemas.Reference) {
	name := r.Names[0]
	params := c.sub("params")
	switch _, ok := params[name]; {
	case l.owner.kind == "params":
		c.misplaced(l, r, "a stage, service or model")
	case !ok:
		c.at(l.at, schemas.Nearest(name, sortedKeys(params)), "%s: there is no parameter %q", l.field.Name, name)
	case c.isPath(name) && !l.paths:
		c.at(l.at, "", "%s: %s is a path: it may stand only in a path, argument or environment variable", l.field.Name, r.Text)
	case c.varies(name) && c.once(l.owner):
		c.at(l.at, "", "%s: %s varies over the matrix, but %s %s runs once for all trials", l.field.Name, r.Text, l.owner.kind, l.owner.name)
	}
}

// once reports whether a table stands for one execution shared by all trials.
func (c *checker) once(o owner) bool {
	switch o.kind {
	case "stage":
		return c.scope(o.table) == schemas.ScopeRun
	case "service":
		return o.table["restart"] == "run"
	}
	return false
}

// scope is a stage's own or its kind's.
func (c *checker) scope(stage table) string {
	if s, ok := stage["scope"].(string); ok {
		return s
	}
	kind, _ := stage["kind"].(string)
	spec, _ := schemas.KindOf(kind)
	return spec.Scope
}

func (c *checker) checkStageRef(l leaf, r schemas.Reference) {
	name, output := r.Names[0], r.Names[1]
	if !l.paths || l.owner.kind == "params" || l.owner.kind == "model" {
		c.misplaced(l, r, "a path, argument or environment variable of a stage or service")
		return
	}
	stage, ok := c.sub("stage")[name].(table)
	if !ok {
		c.at(l.at, schemas.Nearest(name, sortedKeys(c.sub("stage"))), "%s: there is no stage %q", l.field.Name, name)
		return
	}
	outputs := publishedBy(stage)
	if !slices.Contains(outputs, output) {
		has := "none"
		if len(outputs) > 0 {
			has = strings.Join(outputs, ", ")
		}
		c.at(l.at, schemas.Nearest(output, outputs), "%s: stage %s publishes no output %q; its outputs: %s", l.field.Name, name, output, has)
		return
	}
	if l.owner.kind == "stage" {
		imply(l.owner.table, name)
	}
}

// publishedBy lists the outputs a stage publishes.
func publishedBy(stage table) []string {
	kind, _ := stage["kind"].(string)
	spec, _ := schemas.KindOf(kind)
	if slices.Contains(spec.Outputs, "*") {
		outputs, _ := stage["outputs"].(table)
		return sortedKeys(outputs)
	}
	return spec.Outputs
}

// imply adds a need, after those that are written.
func imply(t table, name string) {
	list, _ := t["needs"].([]any)
	for _, n := range list {
		if n == name {
			return
		}
	}
	t["needs"] = append(list, name)
}

func (c *checker) checkServiceRef(l leaf, r schemas.Reference) {
	name := r.Names[0]
	if !l.service {
		c.misplaced(l, r, "a URL, argument or environment variable")
		return
	}
	if _, ok := c.sub("service")[name]; !ok {
		c.at(l.at, schemas.Nearest(name, sortedKeys(c.sub("service"))), "%s: there is no service %q", l.field.Name, name)
		return
	}
	if l.owner.kind == "service" {
		imply(l.owner.table, name)
		return
	}
	own, _ := l.owner.table["service"].(string)
	if !slices.Contains(c.serviceClosure(own), name) {
		c.at(l.at, "", "%s: stage %s does not use service %s: add service = %q", l.field.Name, l.owner.name, name, name)
	}
}

// serviceClosure lists a service and all it needs.
func (c *checker) serviceClosure(name string) []string {
	var out []string
	var visit func(string)
	visit = func(n string) {
		t, ok := c.sub("service")[n].(table)
		if !ok || slices.Contains(out, n) {
			return
		}
		out = append(out, n)
		for _, need := range stringList(t["needs"]) {
			visit(need)
		}
	}
	visit(name)
	return out
}
