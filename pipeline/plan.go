package pipeline

import (
	"fmt"
	"sort"

	"assay/schemas"
)

// NewPlan expands an experiment into its DAG. It touches nothing: equal
// experiments give equal plans, byte for byte.
func NewPlan(exp schemas.Experiment, kinds []Kind) (schemas.Plan, error) {
	canon, err := schemas.Canonical(exp)
	if err != nil {
		return schemas.Plan{}, fmt.Errorf("plan %s: %w", exp.Name, err)
	}
	p := &planner{exp: exp, kinds: map[string]Kind{}, trials: expandTrials(exp), nodes: map[string][]*schemas.Node{}, shared: map[string]*schemas.Node{}}
	for _, k := range kinds {
		p.kinds[k.Name] = k
	}
	order, err := stageOrder(exp)
	if err != nil {
		return schemas.Plan{}, err
	}
	for _, stage := range order {
		if err := p.addStage(stage); err != nil {
			return schemas.Plan{}, err
		}
	}
	units, err := p.units()
	if err != nil {
		return schemas.Plan{}, err
	}
	plan := schemas.Plan{Schema: schemas.PlanV1, Experiment: exp.Name, Digest: schemas.DigestOf(canon), Trials: p.trials, Services: units}
	for _, n := range p.ordered {
		plan.Nodes = append(plan.Nodes, *n)
	}
	for _, stage := range order {
		def := exp.Stage[stage]
		plan.Stages = append(plan.Stages, schemas.PlanStage{Stage: stage, Kind: def.Kind, Needs: stageNeeds(exp, def), Nodes: len(p.unique[stage])})
	}
	return plan, nil
}

type planner struct {
	exp     schemas.Experiment
	kinds   map[string]Kind
	trials  []schemas.Trial
	nodes   map[string][]*schemas.Node // stage -> node per trial, or one for run scope
	unique  map[string][]*schemas.Node
	shared  map[string]*schemas.Node // identity of a pure unseeded node -> node
	ordered []*schemas.Node
}

// stageNeeds are the stages a definition names in needs or through ${stage...},
// in its own keys or in those of the services it uses.
func stageNeeds(exp schemas.Experiment, def schemas.StageDef) []string {
	set := map[string]bool{}
	for _, n := range def.Needs {
		set[n] = true
	}
	refs := schemas.References(def.Config)
	for _, svc := range servicesOf(exp, def) {
		refs = append(refs, schemas.References(exp.Service[svc].Config)...)
	}
	for _, ref := range refs {
		if ref.Namespace == schemas.RefStage {
			set[ref.Names[0]] = true
		}
	}
	names := make([]string, 0, len(set))
	for n := range set {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// stageOrder is a topological order, ties broken by name. A cycle is an error
// that prints it.
func stageOrder(exp schemas.Experiment) ([]string, error) {
	names := make([]string, 0, len(exp.Stage))
	for n := range exp.Stage {
		names = append(names, n)
	}
	sort.Strings(names)
	const (
		fresh = iota
		open
		done
	)
	state := map[string]int{}
	var order, path []string
	var visit func(n string) error
	visit = func(n string) error {
		def, ok := exp.Stage[n]
		switch {
		case !ok:
			return fmt.Errorf("stage %s needs stage %q, which does not exist", path[len(path)-1], n)
		case state[n] == done:
			return nil
		case state[n] == open:
			return &CycleError{Stages: append(cycleFrom(path, n), n)}
		}
		state[n] = open
		path = append(path, n)
		for _, need := range stageNeeds(exp, def) {
			if err := visit(need); err != nil {
				return err
			}
		}
		path = path[:len(path)-1]
		state[n] = done
		order = append(order, n)
		return nil
	}
	for _, n := range names {
		if err := visit(n); err != nil {
			return nil, err
		}
	}
	return order, nil
}

func cycleFrom(path []string, n string) []string {
	for i, p := range path {
		if p == n {
			return append([]string(nil), path[i:]...)
		}
	}
	return append([]string(nil), path...)
}

func (p *planner) addStage(stage string) error {
	def := p.exp.Stage[stage]
	kind, ok := p.kinds[def.Kind]
	if !ok {
		return fmt.Errorf("stage %s: kind %q does not exist", stage, def.Kind)
	}
	if p.unique == nil {
		p.unique = map[string][]*schemas.Node{}
	}
	if def.Scope == schemas.ScopeRun {
		n, err := p.newNode(stage, def, kind, nil)
		if err != nil {
			return err
		}
		p.add(stage, n)
		return nil
	}
	for i := range p.trials {
		n, err := p.newNode(stage, def, kind, &p.trials[i])
		if err != nil {
			return err
		}
		if n.Pure && kind.seedUse(p.config(def, &p.trials[i])) != SeedRepetition {
			id := fmt.Sprint(stage, n.Key, n.Needs)
			if first, ok := p.shared[id]; ok {
				first.Trials = append(first.Trials, p.trials[i].ID)
				p.nodes[stage] = append(p.nodes[stage], first)
				continue
			}
			p.shared[id] = n
		}
		p.add(stage, n)
	}
	return nil
}

func (p *planner) add(stage string, n *schemas.Node) {
	p.nodes[stage] = append(p.nodes[stage], n)
	p.unique[stage] = append(p.unique[stage], n)
	p.ordered = append(p.ordered, n)
}

func (p *planner) config(def schemas.StageDef, trial *schemas.Trial) map[string]any {
	return withParams(def.Config, trialParams(p.exp, pointOf(trial)))
}

func pointOf(trial *schemas.Trial) map[string]any {
	if trial == nil {
		return nil
	}
	return trial.Point
}

func (p *planner) newNode(stage string, def schemas.StageDef, kind Kind, trial *schemas.Trial) (*schemas.Node, error) {
	config := p.config(def, trial)
	n := &schemas.Node{ID: stage, Stage: stage, Kind: kind.Name, Scope: schemas.ScopeRun, Measured: kind.Measured,
		Pure: kind.Pure != nil && kind.Pure(config) && len(servicesOf(p.exp, def)) == 0} // a key cannot hold all that a service is
	if trial != nil {
		n.Scope, n.Trial, n.ID, n.Trials = schemas.ScopeTrial, trial.ID, stage+"@"+trial.ID, []string{trial.ID}
	}
	for _, need := range stageNeeds(p.exp, def) {
		n.Needs = append(n.Needs, p.needed(need, trial)...)
	}
	key, err := p.definitionKey(def, kind, config, trial)
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", stage, err)
	}
	n.Key = key
	return n, nil
}

// needed lists the nodes of a stage that a node of a trial depends on: its own
// trial's, or all of them for a run-scoped node.
func (p *planner) needed(stage string, trial *schemas.Trial) []string {
	if trial != nil && p.exp.Stage[stage].Scope == schemas.ScopeTrial {
		return []string{p.nodes[stage][trial.Position].ID}
	}
	ids := make([]string, 0, len(p.unique[stage]))
	for _, n := range p.unique[stage] {
		ids = append(ids, n.ID)
	}
	return ids
}

// definitionKey hashes the stage as written with the parameters it refers to.
func (p *planner) definitionKey(def schemas.StageDef, kind Kind, config map[string]any, trial *schemas.Trial) (schemas.Key, error) {
	pre := schemas.Preimage{Schema: schemas.KeyV1, Kind: kind.Name, KindVersion: kind.Version, Scope: def.Scope, Definition: keyedDefinition(def), Platform: schemas.Platform{}}
	params := trialParams(p.exp, pointOf(trial))
	pre.Params = schemas.ReferredParams(def.Config, params)
	if svc, ok := p.exp.Service[def.Service]; ok {
		pre.Service = serviceDefinition(svc)
		for k, v := range schemas.ReferredParams(svc.Config, params) {
			pre.Params[k] = v
		}
	}
	pre.Seed = stageSeed(p.exp, kind, config, trial)
	key, _, err := schemas.KeyOf(pre)
	return key, err
}

func (k Kind) seedUse(config map[string]any) SeedUse {
	if k.Seed == nil {
		return SeedNone
	}
	return k.Seed(config)
}

// stageSeed is the seed that enters a stage's key and reaches its task; nil for
// a stage that uses none.
func stageSeed(exp schemas.Experiment, kind Kind, config map[string]any, trial *schemas.Trial) *uint64 {
	use := kind.seedUse(config)
	if use == SeedNone {
		return nil
	}
	seed := DeriveSeed(exp.Trials.Seed, "experiment")
	if use == SeedRepetition && trial != nil {
		seed = trial.Seed
	}
	return &seed
}
