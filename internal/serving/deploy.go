package serving

import "fmt"

// What follows changes or tells of a system that runs: it is called from within
// Live.Do.

// load tells the placer how busy the nodes are.
func (s *System) load() Load {
	return Load{
		Active: s.Active, Outstanding: s.router.Outstanding,
		InUse: func(node, model int) bool { return s.models[model].active[node] > 0 },
	}
}

// Active is how many requests of a node are under way.
func (s *System) Active(node int) int {
	n := 0
	for _, m := range s.models {
		n += m.active[node]
	}
	return n
}

// AddModel makes a model known, which is on no node yet, and returns its number.
func (s *System) AddModel(served Served) (int, error) {
	m, err := s.cfg.model(len(s.models), served)
	if err != nil {
		return 0, fmt.Errorf("serving: %w", err)
	}
	s.models = append(s.models, m)
	for _, n := range s.nodes {
		n.policy.grown()
	}
	if s.cfg.ModelCacheGB == 0 { // all models fit
		for _, c := range s.placer.nodes {
			c.bytes += m.bytes
		}
	}
	return m.index, nil
}

// Deploy places a model on these nodes, or, with none named, on as many as make the
// number of its replicas at least replicas. Its weights load for as long as
// Config.LoadGBps makes them; done is called once the replicas are ready, which may
// be before Deploy returns.
func (s *System) Deploy(model int, nodes []int, replicas int, done func(Deployment)) {
	m := s.models[model]
	parts := []int64{m.bytes}
	if len(nodes) == 0 {
		nodes = s.placer.Plan(model, parts, replicas, s.load())
	}
	d := &deploying{s: s, model: model, done: done, result: Deployment{Failed: map[int]error{}, Evicted: map[int][]int{}}}
	for _, node := range nodes {
		if state := s.placer.State(node, model); state == ReplicaReady || state == ReplicaLoading {
			continue
		}
		s.placer.Begin(node, model)
		evicted, err := s.placer.Reserve(node, model, parts, s.load())
		if len(evicted) > 0 {
			d.result.Evicted[node] = evicted
		}
		if err != nil {
			d.result.Failed[node] = err
			continue
		}
		d.nodes = append(d.nodes, node)
	}
	s.placed()
	if len(d.nodes) == 0 || m.deployMs == 0 {
		d.fire()
		return
	}
	s.events.push(s.nowMs+m.deployMs, d)
}

// deploying is a deployment whose weights are on their way into the caches of its
// nodes, all at the same pace.
type deploying struct {
	s      *System
	model  int
	nodes  []int
	result Deployment
	done   func(Deployment)
	state  status
}

func (d *deploying) fire() {
	for _, node := range d.nodes {
		d.s.placer.Complete(node, d.model)
	}
	d.s.placed()
	d.result.Ready = d.s.placer.Ready(d.model)
	d.done(d.result)
}

func (d *deploying) hasWork() bool   { return false }
func (d *deploying) lost(*request)   {}
func (d *deploying) status() *status { return &d.state }

// Undeploy removes a model from a node; false when it has requests there, so that
// it takes no new ones and the call is to be made again.
func (s *System) Undeploy(model, node int) bool {
	defer s.placed()
	return s.placer.Undeploy(node, model, s.load())
}

// Replica is the state of a model on a node, and why it failed if it has.
func (s *System) Replica(node, model int) (ReplicaState, error) {
	return s.placer.State(node, model), s.placer.Failure(node, model)
}

// Decision is the last ranking of nodes, the best first.
func (s *System) Decision() []PlacementCandidate { return s.placer.Decision() }

// Node is what a node has.
type Node struct {
	Active                int // requests
	CacheBytes, CacheFree int64
	Cached                []int // models, the least recently used first
}

// Nodes tells of every node.
func (s *System) Nodes() []Node {
	out := make([]Node, len(s.nodes))
	for i, c := range s.placer.nodes {
		out[i] = Node{Active: s.Active(i), CacheBytes: c.bytes, CacheFree: c.Free(), Cached: c.Models()}
	}
	return out
}

// The sorts of engines.
const (
	EnginePrefill = "prefill"
	EngineDecode  = "decode"
	EngineSimple  = "simple"
)

// EngineState is what a worker does.
type EngineState struct {
	ID, Node int
	Sort     string
	Loaded   int // model, -1 for none
	Busy     bool
	Queued   int // requests
}

// EngineStates tells of every worker.
func (s *System) EngineStates() []EngineState {
	var out []EngineState
	for _, n := range s.nodes {
		for _, w := range n.workers {
			e := EngineState{Node: n.index, Loaded: -1, Busy: w.status().busy}
			var loaded *model
			switch w := w.(type) {
			case *prefillWorker:
				e.ID, e.Sort, loaded = w.id, EnginePrefill, w.loaded
				for _, g := range w.groups {
					e.Queued += len(g.reqs)
				}
			case *decodeWorker:
				e.ID, e.Sort, loaded, e.Queued = w.id, EngineDecode, w.loaded, len(w.inbox)
				for _, b := range w.batches {
					e.Queued += len(b.reqs)
				}
			case *plainWorker:
				e.ID, e.Sort, loaded, e.Queued = w.id, EngineSimple, w.loaded, w.line.len()
			}
			if loaded != nil {
				e.Loaded = loaded.index
			}
			out = append(out, e)
		}
	}
	return out
}

// KVUsage is the share of the KV memory of all workers that requests under way
// hold, 0 to 1.
func (s *System) KVUsage() float64 {
	held, workers := 0.0, 0
	for _, n := range s.nodes {
		for _, w := range n.workers {
			workers++
			switch w := w.(type) {
			case *plainWorker:
				for _, r := range w.resident {
					if !r.done {
						held += float64(r.context()) / float64(r.m.capacity)
					}
				}
			case *prefillWorker:
				if r := w.current; r != nil {
					held += float64(r.context()) / float64(r.m.capacity)
				}
			case *decodeWorker:
				for _, b := range w.batches {
					held += float64(b.total) / float64(b.m.capacity)
				}
			}
		}
	}
	return min(1, held/float64(workers))
}

// Counts are the statistics so far.
func (s *System) Counts() Stats {
	stats := s.stats
	stats.EndMs = s.nowMs
	return stats
}
