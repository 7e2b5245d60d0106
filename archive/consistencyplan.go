package archive

import (
	"slices"

	"assay/schemas"
)

// plan compares the plan with the experiment it was made from.
func (c *consistency) plan() {
	w := where{topic: "experiment", doc: nameConfig}
	c.same(w, "experiment", c.run.Experiment, nameExperiment, c.exp.Name)
	c.same(w, "plan.experiment", c.run.Plan.Experiment, nameExperiment, c.exp.Name)
	c.planTrials()
	c.planUnits()
	shared := map[string]map[string]int{} // stage -> trial -> nodes
	for _, n := range c.run.Plan.Nodes {
		if _, twice := c.nodes[n.ID]; twice {
			c.fail(where{"plan", nameConfig, &n}, "the plan has two nodes %q", n.ID)
		}
		c.nodes[n.ID] = n
		if shared[n.Stage] == nil {
			shared[n.Stage] = map[string]int{}
		}
		for _, t := range trialsOf(n) {
			shared[n.Stage][t]++
		}
	}
	c.planStages()
	for _, n := range c.run.Plan.Nodes {
		c.node(n)
	}
	for name, def := range c.exp.Stage {
		if def.Scope == schemas.ScopeRun {
			c.same(where{topic: "plan", doc: nameConfig}, "the number of nodes of stage "+name, shared[name][""], "its scope", 1)
			continue
		}
		for t := range c.trials {
			if n := shared[name][t]; n != 1 {
				c.fail(where{topic: "plan", doc: nameConfig}, "trial %s has %d nodes of stage %s, want 1", t, n, name)
			}
		}
	}
}

// trialsOf lists the trials that a node stands for; "" for a node of run scope.
func trialsOf(n schemas.Node) []string {
	if n.Trial == "" {
		return []string{""}
	}
	return n.Trials
}

// planTrials compares the trials with the matrix: as many, and of its values.
func (c *consistency) planTrials() {
	w := where{topic: "plan", doc: nameConfig}
	want, values := max(c.exp.Trials.Repeat, 1), map[string]bool{}
	for name, axis := range c.exp.Matrix {
		if want <= len(c.run.Plan.Trials) { // else it is too many already
			want *= len(axis)
		}
		for _, v := range axis {
			values[name+"="+valueText(v)] = true
		}
	}
	c.same(w, "the number of trials", len(c.run.Plan.Trials), "the matrix", want)
	c.same(w, "the number of different trials", len(c.trials), "the plan", len(c.run.Plan.Trials))
	for i, t := range c.run.Plan.Trials {
		c.same(w, "position of trial "+t.ID, t.Position, "the plan", i)
		if t.Repetition < 0 || t.Repetition >= max(c.exp.Trials.Repeat, 1) {
			c.fail(w, "repetition of trial %s is %d, the experiment has %d", t.ID, t.Repetition, c.exp.Trials.Repeat)
		}
		c.same(w, "number of matrix parameters of trial "+t.ID, len(t.Point), nameExperiment, len(c.exp.Matrix))
		for name, v := range t.Point {
			if !values[name+"="+valueText(v)] {
				c.fail(w, "%s of trial %s is %s, which is not in the matrix: %s", name, t.ID, valueText(v), valueText(c.exp.Matrix[name]))
			}
		}
	}
}

func (c *consistency) planStages() {
	w := where{topic: "plan", doc: nameConfig}
	c.same(w, "the number of stages", len(c.run.Plan.Stages), nameExperiment, len(c.exp.Stage))
	stages := map[string]schemas.PlanStage{}
	for _, s := range c.run.Plan.Stages {
		stages[s.Stage] = s
	}
	nodes := map[string]int{}
	for _, n := range c.run.Plan.Nodes {
		nodes[n.Stage]++
		c.nodeNeeds(n, stages[n.Stage])
	}
	for name, def := range c.exp.Stage {
		s, ok := stages[name]
		if !ok {
			c.fail(w, "the plan's list of stages does not have %q, %s has it", name, nameExperiment)
			continue
		}
		c.same(w, "kind of stage "+name, s.Kind, nameExperiment, def.Kind)
		c.same(w, "the number of nodes of stage "+name, s.Nodes, "the plan", nodes[name])
	}
}

// nodeNeeds compares the stages that a node needs with what its definition names.
func (c *consistency) nodeNeeds(n schemas.Node, s schemas.PlanStage) {
	needed := map[string]bool{}
	for _, id := range n.Needs {
		needed[c.nodes[id].Stage] = true
	}
	def := c.exp.Stage[n.Stage]
	w := where{"plan", nameConfig, &n}
	c.same(w, "the number of stages it needs", len(needed), "the plan's list of stages", len(s.Needs))
	for _, name := range s.Needs {
		if !needed[name] {
			c.fail(w, "it needs no node of stage %s, which the plan's list of stages says it needs", name)
		}
	}
	for _, name := range append(stageReferences(def.Config), def.Needs...) {
		if !needed[name] {
			c.fail(w, "it needs no node of stage %s, which %s says it needs", name, nameExperiment)
		}
	}
}

func stageReferences(config map[string]any) []string {
	var names []string
	for _, ref := range schemas.References(config) {
		if ref.Namespace == schemas.RefStage && len(ref.Names) > 0 {
			names = append(names, ref.Names[0])
		}
	}
	return names
}

// node compares a node with its stage's definition and the nodes it needs.
func (c *consistency) node(n schemas.Node) {
	w := where{"plan", nameConfig, &n}
	def, ok := c.exp.Stage[n.Stage]
	if !ok {
		c.fail(w, "its stage is %q, which %s does not have", n.Stage, nameExperiment)
		return
	}
	c.same(w, "kind", n.Kind, nameExperiment, def.Kind)
	c.same(w, "scope", n.Scope, nameExperiment, def.Scope)
	if n.Kind == kindMeasure {
		c.same(w, "measured", n.Measured, "its kind", true)
	}
	id := n.Stage
	if n.Trial != "" {
		id += "@" + n.Trial
	}
	c.same(w, "id", n.ID, "stage and trial", id)
	c.same(w, "whether it has a trial", n.Trial != "", "its scope", n.Scope == schemas.ScopeTrial)
	if n.Trial != "" && !slices.Contains(n.Trials, n.Trial) {
		c.fail(w, "its trial is %s, which is not among the trials it stands for: %v", n.Trial, n.Trials)
	}
	for _, t := range n.Trials {
		if _, ok := c.trials[t]; !ok {
			c.fail(w, "it stands for trial %q, which the plan does not have", t)
		}
	}
	for _, id := range n.Needs {
		need, ok := c.nodes[id]
		switch {
		case !ok:
			c.fail(w, "it needs node %q, which the plan does not have", id)
		case n.Trial != "" && need.Trial != "" && !slices.Contains(need.Trials, n.Trial):
			c.fail(w, "it belongs to trial %s and needs %s, which stands for %v", n.Trial, id, need.Trials)
		}
	}
}

// kindMeasure is the kind whose results stand in the report.
const kindMeasure = "measure"

// planUnits compares service lifetimes with the services of the experiment, and
// with the nodes that use them.
func (c *consistency) planUnits() {
	members := map[string]map[string]bool{}
	for _, u := range c.run.Plan.Services {
		w := where{topic: "plan", doc: nameConfig}
		svc, ok := c.exp.Service[u.Service]
		if !ok {
			c.fail(w, "service lifetime %s is of service %q, which %s does not have", u.ID, u.Service, nameExperiment)
			continue
		}
		c.same(w, "engine of service lifetime "+u.ID, u.Engine, nameExperiment, svc.Engine)
		members[u.ID] = map[string]bool{}
		for _, id := range u.Nodes {
			members[u.ID][id] = true
		}
		if def := c.exp.Service[u.Service]; len(u.Devices) > 0 || len(def.Devices) > 0 {
			c.same(w, "devices of service lifetime "+u.ID, u.Devices, nameExperiment, def.Devices)
		}
	}
	for _, n := range c.run.Plan.Nodes {
		def := c.exp.Stage[n.Stage]
		w := where{"plan", nameConfig, &n}
		if (def.Service != "") != (n.Unit != "") {
			c.fail(w, "its service lifetime is %q, its service in %s is %q", n.Unit, nameExperiment, def.Service)
		}
		for _, id := range append([]string{n.Unit}, n.UsesUnits...) {
			if id != "" && !members[id][n.ID] {
				c.fail(w, "it uses service lifetime %q, which does not list it", id)
			}
		}
	}
}
