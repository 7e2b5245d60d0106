package pipeline

import (
	"fmt"
	"sort"

	"assay/schemas"
)

// units groups the nodes that use a service into lifetimes: one per trial, one
// per stretch of trials with the same definition, or one for the run.
func (p *planner) units() []schemas.PlanUnit {
	b := &unitBuilder{p: p, open: map[string]*schemas.PlanUnit{}, count: map[string]int{}}
	for _, n := range b.byTrial() {
		for i, svc := range servicesOf(p.exp, p.exp.Stage[n.Stage]) {
			u := b.unit(svc, n)
			u.Nodes = append(u.Nodes, n.ID)
			if i == 0 && p.exp.Stage[n.Stage].Service == svc {
				n.Unit = u.ID
			} else {
				n.UsesUnits = append(n.UsesUnits, u.ID)
			}
		}
	}
	units := make([]schemas.PlanUnit, len(b.all))
	for i, u := range b.all {
		units[i] = *u
	}
	return units
}

type unitBuilder struct {
	p     *planner
	all   []*schemas.PlanUnit
	open  map[string]*schemas.PlanUnit // service -> its newest lifetime
	count map[string]int
}

// byTrial orders nodes by trial, run-scoped ones where the plan has them.
func (b *unitBuilder) byTrial() []*schemas.Node {
	nodes := append([]*schemas.Node(nil), b.p.ordered...)
	pos := map[string]int{"": -1}
	for _, t := range b.p.trials {
		pos[t.ID] = t.Position
	}
	sort.SliceStable(nodes, func(i, j int) bool { return pos[nodes[i].Trial] < pos[nodes[j].Trial] })
	return nodes
}

func (b *unitBuilder) unit(svc string, n *schemas.Node) *schemas.PlanUnit {
	def := b.p.exp.Service[svc]
	key := b.serviceKey(def, n)
	u := b.open[svc]
	if u == nil || !b.continues(def, u, n, key) {
		b.count[svc]++
		u = &schemas.PlanUnit{ID: fmt.Sprintf("%s-%d", svc, b.count[svc]), Service: svc, Engine: def.Engine, Key: key, Devices: def.Devices, Nodes: []string{}}
		for _, need := range def.Needs {
			u.Needs = append(u.Needs, b.unit(need, n).ID)
		}
		b.open[svc] = u
		b.all = append(b.all, u)
	}
	if n.Trial != "" && (len(u.Trials) == 0 || u.Trials[len(u.Trials)-1] != n.Trial) {
		u.Trials = append(u.Trials, n.Trial)
	}
	return u
}

func (b *unitBuilder) continues(def schemas.Service, u *schemas.PlanUnit, n *schemas.Node, key schemas.Key) bool {
	switch def.Restart {
	case "run":
		return u.Key == key
	case "change":
		return u.Key == key
	}
	if n.Trial == "" {
		return len(u.Trials) == 0
	}
	return len(u.Trials) > 0 && u.Trials[len(u.Trials)-1] == n.Trial
}

func (b *unitBuilder) serviceKey(def schemas.Service, n *schemas.Node) schemas.Key {
	var trial *schemas.Trial
	for i := range b.p.trials {
		if b.p.trials[i].ID == n.Trial {
			trial = &b.p.trials[i]
		}
	}
	params := trialParams(b.p.exp, pointOf(trial))
	key, _, err := schemas.KeyOf(map[string]any{"service": serviceDefinition(def), "params": referredParams(def.Config, params)})
	if err != nil {
		return ""
	}
	return key
}

// servicesOf lists every service a stage needs up: its own first, then those it
// refers to by URL, then what those need.
func servicesOf(exp schemas.Experiment, def schemas.StageDef) []string {
	var list []string
	seen := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		svc, ok := exp.Service[name]
		if !ok || seen[name] {
			return
		}
		seen[name] = true
		list = append(list, name)
		for _, need := range svc.Needs {
			add(need)
		}
	}
	add(def.Service)
	for _, ref := range schemas.References(def.Config) {
		if ref.Namespace == "service" && len(ref.Names) > 0 {
			add(ref.Names[0])
		}
	}
	return list
}
