package pipeline

import (
	"fmt"
	"slices"
	"sort"

	"assay/schemas"
)

// units groups the nodes that use a service into lifetimes: one per trial, one
// per stretch of trials with the same definition, or one for the run.
func (p *planner) units() ([]schemas.PlanUnit, error) {
	if err := p.checkLifetimes(); err != nil {
		return nil, err
	}
	b := &unitBuilder{p: p, open: map[string]*schemas.PlanUnit{}, count: map[string]int{}, position: map[string]int{}}
	for _, t := range p.trials {
		b.position[t.ID] = t.Position
	}
	for _, n := range b.byTrial() {
		for i, svc := range servicesOf(p.exp, p.exp.Stage[n.Stage]) {
			u, err := b.unit(svc, n)
			if err != nil {
				return nil, err
			}
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
	return units, nil
}

// checkLifetimes refuses a service that would outlive one it needs.
func (p *planner) checkLifetimes() error {
	rank := map[string]int{"trial": 0, "change": 1, "run": 2}
	for name, svc := range p.exp.Service {
		for _, need := range svc.Needs {
			if other := p.exp.Service[need]; rank[other.Restart] < rank[svc.Restart] {
				return fmt.Errorf("service %s (restart = %q) needs service %s, which is restarted more often (restart = %q): give %s a restart that is at least as long", name, svc.Restart, need, other.Restart, need)
			}
		}
	}
	return nil
}

type unitBuilder struct {
	p     *planner
	all   []*schemas.PlanUnit
	open  map[string]*schemas.PlanUnit // service -> its newest lifetime
	count map[string]int
	// position of each trial by its id.
	position map[string]int
}

// byTrial orders nodes by trial. A run-scoped node that depends on trials comes
// after all of them, any other before.
func (b *unitBuilder) byTrial() []*schemas.Node {
	nodes := append([]*schemas.Node(nil), b.p.ordered...)
	pos := map[string]int{}
	for _, n := range b.p.ordered { // needs stand before
		pos[n.ID] = -1
		if n.Scope == schemas.ScopeTrial {
			pos[n.ID] = b.position[n.Trial]
			continue
		}
		for _, need := range n.Needs {
			if pos[need] >= 0 {
				pos[n.ID] = len(b.position)
			}
		}
	}
	sort.SliceStable(nodes, func(i, j int) bool { return pos[nodes[i].ID] < pos[nodes[j].ID] })
	return nodes
}

// unit is the lifetime of a service that a node uses: the open one where it may
// go on, a new one else.
func (b *unitBuilder) unit(svc string, n *schemas.Node) (*schemas.PlanUnit, error) {
	def := b.p.exp.Service[svc]
	key, err := b.serviceKey(def, n)
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", svc, err)
	}
	var needs []string
	for _, need := range def.Needs {
		u, err := b.unit(need, n)
		if err != nil {
			return nil, err
		}
		needs = append(needs, u.ID)
	}
	u := b.open[svc]
	if u == nil || !b.continues(def, u, n, key) || !slices.Equal(needs, u.Needs) {
		if u != nil && def.Restart == "run" {
			return nil, fmt.Errorf("service %s has restart = \"run\", yet what it is started with differs between stages or trials (node %s): use restart = \"change\"", svc, n.ID)
		}
		b.count[svc]++
		u = &schemas.PlanUnit{ID: fmt.Sprintf("%s-%d", svc, b.count[svc]), Service: svc, Engine: def.Engine, Key: key, Devices: def.Devices, Nodes: []string{}, Needs: needs}
		b.open[svc] = u
		b.all = append(b.all, u)
	}
	if n.Trial != "" && (len(u.Trials) == 0 || u.Trials[len(u.Trials)-1] != n.Trial) {
		u.Trials = append(u.Trials, n.Trial)
	}
	return u, nil
}

func (b *unitBuilder) continues(def schemas.Service, u *schemas.PlanUnit, n *schemas.Node, key schemas.Key) bool {
	if def.Restart != "trial" {
		return u.Key == key
	}
	if n.Trial == "" {
		return len(u.Trials) == 0
	}
	return len(u.Trials) > 0 && u.Trials[len(u.Trials)-1] == n.Trial
}

// serviceKey tells what a service is started with: its keys, the parameters and
// the nodes whose outputs they refer to.
func (b *unitBuilder) serviceKey(def schemas.Service, n *schemas.Node) (schemas.Key, error) {
	var trial *schemas.Trial
	if i, ok := b.position[n.Trial]; ok {
		trial = &b.p.trials[i]
	}
	var inputs []string
	for _, ref := range schemas.References(def.Config) {
		if ref.Namespace == schemas.RefStage {
			inputs = append(inputs, b.p.needed(ref.Names[0], trial)...)
		}
	}
	params := trialParams(b.p.exp, pointOf(trial))
	key, _, err := schemas.KeyOf(map[string]any{"service": serviceDefinition(def), "params": schemas.ReferredParams(def.Config, params), "inputs": inputs})
	return key, err
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
