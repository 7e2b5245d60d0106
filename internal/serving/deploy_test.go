package serving

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// finishAll handles every event and returns the times of tokens by request.
func finishAll(s *System) map[int][]int64 {
	out := map[int][]int64{}
	s.sink = func(o Outcome) error {
		out[o.Index] = slices.Clone(o.TokensMs)
		return nil
	}
	for _, more := s.nextMs(); more; _, more = s.nextMs() {
		s.fire()
	}
	return out
}

// TestDeployWhileRunning: a model that is added later is served once it is on a
// node, and one that is busy drains before it goes.
func TestDeployWhileRunning(t *testing.T) {
	for _, policy := range Policies {
		t.Run(policy, func(t *testing.T) {
			in := Input{Models: []Alias{{"a", "qwen2.5-7b"}, {"late", "yi-9b"}}}
			cfg := h100(t, in, Config{Workers: 4, Nodes: 2, Policy: policy, Undeployed: []int{1}})
			if policy == PolicyAegaeon {
				cfg.PrefillWorkers = 2
			}
			s, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			s.sink = func(Outcome) error { return nil }
			serve := func(index, model int, at int64) *request {
				t.Helper()
				r, err := s.arrive(Request{Index: index, Model: model, AtMs: at, InputTokens: 10, OutputTokens: 20})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			if r := serve(0, 1, 0); !r.done || s.stats.FailedReplica != 1 {
				t.Error("a model that is nowhere is served")
			}
			third, err := s.AddModel(Served{Name: "new", Base: BaseModels[2], Fit: cfg.Models[0].Fit})
			if err != nil || third != 2 {
				t.Fatal(third, err)
			}
			deploy := func(model int, nodes []int, replicas int) (d Deployment) {
				s.Deploy(model, nodes, replicas, func(got Deployment) { d = got })
				return d
			}
			if d := deploy(third, nil, 2); len(d.Ready) != 2 || d.Partial() {
				t.Errorf("%+v", d)
			}
			if d := deploy(1, []int{1}, 1); !slices.Equal(d.Ready, []int{1}) {
				t.Errorf("%+v", d)
			}
			serve(1, third, 1)
			serve(2, 1, 1)
			if s.Undeploy(1, 1) {
				t.Error("a busy model is gone at once")
			}
			if state, _ := s.Replica(1, 1); state != ReplicaDraining {
				t.Errorf("it is %s", state)
			}
			if r := serve(3, 1, 2); !r.done {
				t.Error("a draining replica takes a request")
			}
			got := finishAll(s)
			if len(got[1]) != 20 || len(got[2]) != 20 {
				t.Errorf("%v", got)
			}
			if !s.Undeploy(1, 1) || s.Active(0)+s.Active(1) != 0 {
				t.Error("it does not go when it is idle")
			}
			states := s.EngineStates()
			if len(states) != 4 || slices.ContainsFunc(states, func(e EngineState) bool { return e.Busy || e.Queued > 0 }) || s.KVUsage() != 0 {
				t.Errorf("%+v, %v of the KV", states, s.KVUsage())
			}
		})
	}
}

// TestDeployTakesTime: a replica loads for as long as its weights take, its room is
// held meanwhile, and it takes no request before it is ready.
func TestDeployTakesTime(t *testing.T) {
	in := Input{Models: []Alias{{"a", "qwen2.5-7b"}, {"late", "yi-9b"}}}
	cfg := h100(t, in, Config{Workers: 4, PrefillWorkers: 2, Nodes: 2, Policy: PolicyAegaeon, Undeployed: []int{1}, LoadGBps: 2})
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.sink = func(Outcome) error { return nil }
	var ready []int
	free := s.Nodes()[0].CacheFree
	s.Deploy(1, []int{0, 1}, 1, func(d Deployment) { ready = d.Ready })
	for node := range 2 {
		if state, _ := s.Replica(node, 1); state != ReplicaLoading || ready != nil {
			t.Errorf("node %d is %s, ready %v", node, state, ready)
		}
	}
	if held := free - s.Nodes()[0].CacheFree; held != s.models[1].bytes {
		t.Errorf("%d bytes held while it loads", held)
	}
	if s.Undeploy(1, 0) {
		t.Error("a replica that loads is gone")
	}
	if r, err := s.arrive(Request{Model: 1, InputTokens: 1, OutputTokens: 1}); err != nil || !r.done {
		t.Errorf("a request for a model that loads: %v", err)
	}
	finishAll(s)
	if want := int64(cfg.Models[1].Base.MemoryGB / 2 * 1000); s.nowMs != want || !slices.Equal(ready, []int{0, 1}) {
		t.Errorf("ready on %v after %d ms, want %d", ready, s.nowMs, want)
	}
	s.Deploy(1, []int{0}, 1, func(d Deployment) { ready = d.Ready })
	if _, more := s.nextMs(); more || len(ready) != 2 {
		t.Error("a replica that is ready loads again")
	}
}

// TestGraphs: a decode step that has a graph takes less time, any other as long as
// ever; one is captured before the first is replayed.
func TestGraphs(t *testing.T) {
	in := Input{Models: []Alias{{"a", "qwen2.5-7b"}}}
	run := func(g *Graphs) (decodeMs int64, kinds []EventKind) {
		cfg := h100(t, in, Config{Workers: 2, PrefillWorkers: 1, Policy: PolicyAegaeon, Graphs: g})
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.Observe(func(e Event) {
			if e.Kind == EventCapture || e.Kind == EventReplay {
				kinds = append(kinds, e.Kind)
			}
			if e.Kind == EventDecode {
				decodeMs += e.Ms
			}
		})
		if _, err := s.arrive(Request{InputTokens: 100, OutputTokens: 101}); err != nil {
			t.Fatal(err)
		}
		finishAll(s)
		return decodeMs, kinds
	}
	plain, kinds := run(nil)
	if plain == 0 || len(kinds) > 0 {
		t.Fatalf("%d ms, %v", plain, kinds)
	}
	for name, c := range map[string]struct {
		g     Graphs
		ms    int64
		kinds []EventKind
	}{
		"loaded":          {Graphs{BatchSizes: []int{1}, MaxSeqLen: 4096, Factor: 0.5, Ready: true}, plain / 2, []EventKind{EventReplay}},
		"saved":           {Graphs{BatchSizes: []int{1}, MaxSeqLen: 4096, Factor: 0.5}, plain/2 + plain/200, []EventKind{EventCapture, EventReplay}},
		"another batch":   {Graphs{BatchSizes: []int{2}, MaxSeqLen: 4096, Factor: 0.5, Ready: true}, plain, nil},
		"half too long":   {Graphs{BatchSizes: []int{1}, MaxSeqLen: 151, Factor: 0.5, Ready: true}, plain * 3 / 4, []EventKind{EventReplay}},
		"all of too long": {Graphs{BatchSizes: []int{1}, MaxSeqLen: 100, Factor: 0.5, Ready: true}, plain, nil},
	} {
		ms, kinds := run(&c.g)
		if diff := ms - c.ms; diff*diff > 50*50+c.ms*c.ms/100 || !slices.Equal(kinds, c.kinds) {
			t.Errorf("%s: %d ms, want about %d; %v, want %v", name, ms, c.ms, kinds, c.kinds)
		}
	}
}

// TestWall: a time of the system on the wall is that time again.
func TestWall(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := Wall{Origin: time.Now(), Scale: rapid.Float64Range(0.001, 1000).Draw(rt, "scale")}
		ms := rapid.Int64Range(0, 1<<30).Draw(rt, "ms")
		if got := w.Ms(w.At(ms)); got != ms {
			rt.Errorf("%d ms came back as %d", ms, got)
		}
	})
}
