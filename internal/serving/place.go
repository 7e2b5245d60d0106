package serving

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The placement policies: on which nodes a model's weights are kept ready.
const (
	PlaceLeastLoaded = "least-loaded"
	PlaceRoundRobin  = "round-robin"
)

// PlacementPolicies are the names of the placement policies.
var PlacementPolicies = []string{PlaceLeastLoaded, PlaceRoundRobin}

// PlacementCandidate is what a placement decision sees of a node.
type PlacementCandidate struct {
	Node int `json:"node"`
	// Fits says that the weights fit as the cache lies now.
	Fits bool `json:"fits_without_eviction"`
	// CanEvict says that they fit once models not in use are evicted, and what
	// follows is the estimate of that.
	CanEvict    bool  `json:"eviction_feasible"`
	EvictBytes  int64 `json:"estimated_evicted_bytes"`
	EvictModels int   `json:"estimated_evicted_models"`
	// Active requests as the node has them, and Outstanding as the router has them.
	Active       int   `json:"controller_active"`
	Outstanding  int   `json:"api_outstanding"`
	FreeBytes    int64 `json:"free_cache_bytes"`
	CachedModels int   `json:"cached_models"`
}

// Load is the greater of both counts: a request may be seen by one alone, or by both.
func (c PlacementCandidate) Load() int { return max(c.Active, c.Outstanding) }

// ComparePlacement orders candidates, the best first: (1) fits without an eviction,
// (2) fits after one, (3) fewer bytes and then fewer models to evict, (4) fewer
// requests, (5) more free bytes, (6) fewer models, (7) the smaller node number.
func ComparePlacement(a, b PlacementCandidate) int {
	return cmp.Or(
		falseLast(a.Fits, b.Fits),
		falseLast(a.Fits || a.CanEvict, b.Fits || b.CanEvict),
		cmp.Or(cmp.Compare(a.EvictBytes, b.EvictBytes), cmp.Compare(a.EvictModels, b.EvictModels)),
		cmp.Compare(a.Load(), b.Load()),
		cmp.Compare(b.FreeBytes, a.FreeBytes),
		cmp.Compare(a.CachedModels, b.CachedModels),
		cmp.Compare(a.Node, b.Node),
	)
}

func falseLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// ReplicaState is the state of a model on a node.
type ReplicaState string

// The states.
const (
	ReplicaAbsent   ReplicaState = "ABSENT"
	ReplicaLoading  ReplicaState = "LOADING"
	ReplicaReady    ReplicaState = "READY"
	ReplicaDraining ReplicaState = "DRAINING"
	ReplicaFailed   ReplicaState = "FAILED"
)

// PlacementStats count since the beginning.
type PlacementStats struct {
	Attempts  int `json:"deployment_attempts"`
	Successes int `json:"deployment_successes"`
	Failures  int `json:"deployment_failures"`
	Evictions int `json:"evictions"`
	Unloads   int `json:"unloads"`
}

// Placer keeps the table of replicas, decides where new ones go, and counts. It is
// not for concurrent use.
type Placer struct {
	policy string
	nodes  []*ModelCache
	state  []map[int]ReplicaState // by node
	failed []map[int]error
	turn   int // of round-robin
	total  PlacementStats
	byNode []PlacementStats
	// decision is the last ranking.
	decision []PlacementCandidate
}

// NewPlacer makes a placer over nodes with these caches.
func NewPlacer(policy string, caches []*ModelCache) (*Placer, error) {
	if !slices.Contains(PlacementPolicies, policy) {
		return nil, fmt.Errorf("placement policy %q: want one of %s", policy, strings.Join(PlacementPolicies, ", "))
	}
	if len(caches) == 0 {
		return nil, errors.New("placement over no nodes: want 1 or more")
	}
	p := &Placer{policy: policy, nodes: caches, byNode: make([]PlacementStats, len(caches))}
	for range caches {
		p.state, p.failed = append(p.state, map[int]ReplicaState{}), append(p.failed, map[int]error{})
	}
	return p, nil
}

// Load tells a placer how busy things are.
type Load struct {
	Active, Outstanding func(node int) int
	// InUse says that a model has requests on a node and so stays.
	InUse func(node, model int) bool
}

// Idle is a load of nothing.
var Idle = Load{Active: func(int) int { return 0 }, Outstanding: func(int) int { return 0 }, InUse: func(int, int) bool { return false }}

// Plan returns the nodes on which the model should be deployed so that replicas of
// it are ready, the best first; those that are ready stay. Fewer come back when
// there are not as many nodes.
func (p *Placer) Plan(model int, parts []int64, replicas int, l Load) []int {
	want := replicas
	var list []PlacementCandidate
	for node, cache := range p.nodes {
		if p.State(node, model) == ReplicaReady {
			want--
			continue
		}
		c := PlacementCandidate{Node: node, Fits: cache.Fits(parts), Active: l.Active(node), Outstanding: l.Outstanding(node), FreeBytes: cache.Free(), CachedModels: len(cache.use)}
		if !c.Fits {
			var models []int
			models, c.EvictBytes, c.CanEvict = cache.Evictions(parts, func(m int) bool { return l.InUse(node, m) })
			c.EvictModels = len(models)
		}
		list = append(list, c)
	}
	if p.policy == PlaceRoundRobin {
		n := len(p.nodes)
		slices.SortFunc(list, func(a, b PlacementCandidate) int { return (a.Node-p.turn+n)%n - (b.Node-p.turn+n)%n })
	} else {
		slices.SortFunc(list, ComparePlacement)
	}
	p.decision = list
	var out []int
	for _, c := range list[:max(0, min(want, len(list)))] {
		out = append(out, c.Node)
		p.turn = (c.Node + 1) % len(p.nodes)
	}
	return out
}

// Begin marks a deployment as under way.
func (p *Placer) Begin(node, model int) {
	p.total.Attempts++
	p.byNode[node].Attempts++
	p.set(node, model, ReplicaLoading)
}

// Finish carries a deployment out at once. The error, which the table keeps, says
// why the replica failed; what was evicted by then is gone all the same.
func (p *Placer) Finish(node, model int, parts []int64, l Load) (evicted []int, err error) {
	if evicted, err = p.Reserve(node, model, parts, l); err == nil {
		p.Complete(node, model)
	}
	return evicted, err
}

// Reserve evicts what a deployment must and holds the room of its weights. Until
// Complete the replica loads.
func (p *Placer) Reserve(node, model int, parts []int64, l Load) (evicted []int, err error) {
	cache := p.nodes[node]
	if !cache.Has(model) {
		models, _, ok := cache.Evictions(parts, func(m int) bool { return l.InUse(node, m) || p.State(node, m) == ReplicaLoading })
		if !ok {
			err = fmt.Errorf("model %d does not fit into the cache of node %d: %d bytes free, and too few models without requests to evict", model, node, cache.Free())
		}
		for _, m := range models {
			cache.Drop(m)
			p.set(node, m, ReplicaAbsent)
			p.total.Evictions++
			p.byNode[node].Evictions++
		}
		if err == nil && !cache.Put(model, parts) {
			err = fmt.Errorf("model %d does not fit into the cache of node %d", model, node)
		}
		evicted = models
	}
	if err != nil {
		p.set(node, model, ReplicaFailed)
		p.failed[node][model] = err
		p.total.Failures++
		p.byNode[node].Failures++
	}
	return evicted, err
}

// Complete makes a replica that loads ready.
func (p *Placer) Complete(node, model int) {
	p.set(node, model, ReplicaReady)
	p.total.Successes++
	p.byNode[node].Successes++
}

// Deployment is what came of one call: some targets may fail where others do not.
type Deployment struct {
	Ready   []int         // nodes, of those asked for
	Failed  map[int]error // by node
	Evicted map[int][]int // by node
}

// Partial says that some targets failed and a replica is ready nevertheless.
func (d Deployment) Partial() bool { return len(d.Failed) > 0 && len(d.Ready) > 0 }

// Deploy does all steps for a model.
func (p *Placer) Deploy(model int, parts []int64, replicas int, l Load) Deployment {
	d := Deployment{Failed: map[int]error{}, Evicted: map[int][]int{}}
	for _, node := range p.Plan(model, parts, replicas, l) {
		p.Begin(node, model)
		evicted, err := p.Finish(node, model, parts, l)
		if len(evicted) > 0 {
			d.Evicted[node] = evicted
		}
		if err != nil {
			d.Failed[node] = err
		}
	}
	d.Ready = p.Ready(model)
	return d
}

// Undeploy begins to remove a replica: it takes no new request from now on. It is
// gone at once, true, unless it has requests, when the call is to be made again.
func (p *Placer) Undeploy(node, model int, l Load) bool {
	switch p.State(node, model) {
	case ReplicaReady, ReplicaDraining:
	case ReplicaFailed:
		p.set(node, model, ReplicaAbsent)
		return true
	default:
		return p.State(node, model) == ReplicaAbsent
	}
	if l.InUse(node, model) {
		p.set(node, model, ReplicaDraining)
		return false
	}
	p.nodes[node].Drop(model)
	p.set(node, model, ReplicaAbsent)
	p.total.Unloads++
	p.byNode[node].Unloads++
	return true
}

func (p *Placer) set(node, model int, s ReplicaState) {
	delete(p.failed[node], model)
	if s == ReplicaAbsent {
		delete(p.state[node], model)
		return
	}
	p.state[node][model] = s
}

// State is that of a model on a node.
func (p *Placer) State(node, model int) ReplicaState {
	if s := p.state[node][model]; s != "" {
		return s
	}
	return ReplicaAbsent
}

// Failure is why a replica is in the state ReplicaFailed.
func (p *Placer) Failure(node, model int) error { return p.failed[node][model] }

// Ready lists the nodes that may be given requests of a model.
func (p *Placer) Ready(model int) []int {
	var out []int
	for node := range p.nodes {
		if p.state[node][model] == ReplicaReady {
			out = append(out, node)
		}
	}
	return out
}

// Decision is the ranking of the last plan, best first.
func (p *Placer) Decision() []PlacementCandidate { return slices.Clone(p.decision) }

// Stats returns the counts, and those of each node.
func (p *Placer) Stats() (PlacementStats, []PlacementStats) { return p.total, slices.Clone(p.byNode) }
