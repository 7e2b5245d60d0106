package serving

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func stealWorker(id, loaded int, models ...int) StealWorker {
	w := StealWorker{ID: id, Loaded: loaded}
	for i, m := range models {
		w.Batches = append(w.Batches, StealBatch{ID: int64(100*id + i), Model: m, KVInHost: true})
	}
	return w
}

func TestPlanSteal(t *testing.T) {
	started := stealWorker(1, 0, 5, 6, 7)
	started.Batches[1].Started = true
	onDevice := stealWorker(1, 0, 5, 6)
	onDevice.Batches[1].KVInHost = false
	for _, c := range []struct {
		name   string
		donor  StealWorker
		others []StealWorker
		gap    int
		want   Steal
		why    StealRejection
	}{
		{"the first that is not the head", stealWorker(1, 0, 5, 6, 7), []StealWorker{stealWorker(2, -1)}, 2, Steal{1, 2, 1, 101, false}, ""},
		{"affinity before the place in the queue", stealWorker(1, 0, 5, 6, 7), []StealWorker{stealWorker(2, 7)}, 2, Steal{1, 2, 2, 102, true}, ""},
		{"affinity before the receiver's number", stealWorker(1, 0, 5, 6), []StealWorker{stealWorker(2, 9), stealWorker(3, 6)}, 2, Steal{1, 3, 1, 101, true}, ""},
		{"not the head, even with affinity", stealWorker(1, 0, 5, 6), []StealWorker{stealWorker(2, 5)}, 2, Steal{1, 2, 1, 101, false}, ""},
		{"the smaller number, in any order", stealWorker(1, 0, 5, 6), []StealWorker{stealWorker(3, -1), stealWorker(2, -1)}, 2, Steal{1, 2, 1, 101, false}, ""},
		{"one that is started stays", started, []StealWorker{stealWorker(2, 6)}, 2, Steal{1, 2, 2, 102, false}, ""},
		{"nobody is idle", stealWorker(1, 0, 5, 6), []StealWorker{stealWorker(2, 5, 5)}, 2, Steal{}, StealNoReceiver},
		{"not to itself", stealWorker(1, 0, 5, 6), []StealWorker{stealWorker(1, 0)}, 2, Steal{}, StealNoReceiver},
		{"the gap", stealWorker(1, 0, 5, 6), []StealWorker{stealWorker(2, -1)}, 3, Steal{}, StealGap},
		{"the gap is at least two", stealWorker(1, 0, 5), []StealWorker{stealWorker(2, -1)}, 1, Steal{}, StealGap},
		{"KV that is not in the host", onDevice, []StealWorker{stealWorker(2, -1)}, 2, Steal{}, StealKVElsewhere},
	} {
		got, why := PlanSteal(c.donor, c.others, c.gap)
		if got != c.want || why != c.why {
			t.Errorf("%s: %+v, %q; want %+v, %q", c.name, got, why, c.want, c.why)
		}
	}
}

// TestStealsHoldWhenCheckedAtOnce: what is planned passes the check unless
// something changed, and the check sees each change.
func TestStealsHoldWhenCheckedAtOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(id int) StealWorker {
			w := StealWorker{ID: id, Loaded: rapid.IntRange(-1, 3).Draw(rt, "loaded")}
			for i := range rapid.IntRange(0, 4).Draw(rt, "batches") {
				w.Batches = append(w.Batches, StealBatch{int64(10*id + i), rapid.IntRange(0, 3).Draw(rt, "model"), rapid.Bool().Draw(rt, "started"), rapid.Bool().Draw(rt, "in host")})
			}
			return w
		}
		var all []StealWorker
		for id := range rapid.IntRange(2, 5).Draw(rt, "workers") {
			all = append(all, draw(id))
		}
		gap := rapid.IntRange(2, 4).Draw(rt, "gap")
		donor := all[0]
		s, why := PlanSteal(donor, all, gap)
		backwards := slices.Clone(all)
		slices.Reverse(backwards)
		if again, whyAgain := PlanSteal(donor, backwards, gap); again != s || whyAgain != why {
			rt.Fatalf("the order of the others decides: %+v %q, %+v %q", s, why, again, whyAgain)
		}
		if why != "" {
			return
		}
		receiver := all[s.Receiver]
		b := donor.Batches[s.Position]
		if s.Position == 0 || b.Started || !b.KVInHost || b.ID != s.Batch || len(receiver.Batches) != 0 || len(donor.Batches) < gap {
			rt.Fatalf("%+v of %+v to %+v", s, donor, receiver)
		}
		if why := CheckSteal(s, donor, receiver, gap); why != "" {
			rt.Fatalf("the check refuses at once: %s", why)
		}
		busy := receiver
		busy.Batches = []StealBatch{{ID: 99}}
		gone := donor
		gone.Batches = slices.Delete(slices.Clone(donor.Batches), s.Position, s.Position+1)
		began := donor
		began.Batches = slices.Clone(donor.Batches)
		began.Batches[s.Position].Started = true
		for name, why := range map[string]StealRejection{"receiver got work": CheckSteal(s, donor, busy, gap), "the batch is gone": CheckSteal(s, gone, receiver, gap), "it began": CheckSteal(s, began, receiver, gap)} {
			if why == "" {
				rt.Errorf("%s, and the check passes", name)
			}
		}
	})
}

func TestRoute(t *testing.T) {
	ready := []RouteNode{{3, 2}, {4, 1}, {7, 1}}
	for n, want := range []int{1, 2, 1, 2} {
		if got, ok := Route(RouteLeastOutstanding, n, ready); !ok || got != want {
			t.Errorf("least outstanding, request %d: %d, want %d", n, got, want)
		}
	}
	for n, want := range []int{0, 1, 2, 0} {
		if got, ok := Route(RouteRoundRobin, n, ready); !ok || got != want {
			t.Errorf("round robin, request %d: %d, want %d", n, got, want)
		}
	}
	if _, ok := Route(RouteLeastOutstanding, 0, nil); ok {
		t.Error("a request is routed to nothing")
	}
	if _, err := NewRouter("best", 2); err == nil {
		t.Error("an unknown policy is taken")
	}
}

// TestRouterConserves: what is assigned and not released is outstanding, and the
// chosen node never had more than another one.
func TestRouterConserves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(1, 5).Draw(rt, "nodes")
		r, err := NewRouter(RouteLeastOutstanding, nodes)
		if err != nil {
			rt.Fatal(err)
		}
		all := make([]int, nodes)
		for i := range all {
			all[i] = i
		}
		var held []int
		for n := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(rt, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(rt, "which")
				r.Release(held[i])
				held = slices.Delete(held, i, i+1)
				continue
			}
			before := r.Stats()
			node, ok := r.Assign(n, n%3, all)
			if !ok || before.ByNode[node] != slices.Min(before.ByNode) {
				rt.Fatalf("node %d of %v", node, before.ByNode)
			}
			held = append(held, node)
		}
		s := r.Stats()
		var byModel int64
		for _, v := range s.ByModel {
			for _, n := range v {
				byModel += n
			}
		}
		var total int64
		for _, n := range s.Cumulative {
			total += n
		}
		if s.Total != len(held) || byModel != total || total < int64(len(held)) {
			rt.Errorf("%+v, held %v", s, held)
		}
	})
}

func TestPlacementRanks(t *testing.T) {
	// Each is worse than the one before by the next step of the ranking alone.
	better := []PlacementCandidate{
		{Node: 9, Fits: true, FreeBytes: 10, CachedModels: 1},
		{Node: 10, Fits: true, FreeBytes: 10, CachedModels: 1},
		{Node: 0, Fits: true, FreeBytes: 10, CachedModels: 2},
		{Node: 0, Fits: true, FreeBytes: 9},
		{Node: 0, Fits: true, Active: 1, FreeBytes: 99},
		{Node: 0, Fits: true, Active: 1, Outstanding: 2, FreeBytes: 99},
		{Node: 0, CanEvict: true, EvictBytes: 5, EvictModels: 2, FreeBytes: 99},
		{Node: 0, CanEvict: true, EvictBytes: 5, EvictModels: 3, FreeBytes: 99},
		{Node: 0, CanEvict: true, EvictBytes: 6, EvictModels: 1, FreeBytes: 99},
		{Node: 0, FreeBytes: 999},
	}
	for seed := range uint64(20) {
		list := slices.Clone(better)
		for i := range list { // a fixed shuffle for each seed
			j := int((seed*7919 + uint64(i)*104729) % uint64(len(list)))
			list[i], list[j] = list[j], list[i]
		}
		slices.SortFunc(list, ComparePlacement)
		if diff := cmp.Diff(better, list); diff != "" {
			t.Fatalf("ranking (-want +got):\n%s", diff)
		}
	}
}

func TestEvictionsSeeFragments(t *testing.T) {
	c := NewModelCache(100)
	for m, n := range []int64{30, 20, 30, 20} {
		if !c.Put(m, []int64{n}) {
			t.Fatalf("model %d does not fit", m)
		}
	}
	c.Drop(1)
	c.Drop(3)
	if c.Free() != 40 || c.Fits([]int64{40}) || !c.Fits([]int64{20, 20}) {
		t.Errorf("%d bytes free, in two pieces of 20: one slice of 40 fits: %v", c.Free(), c.Fits([]int64{40}))
	}
	c.Touch(0)
	models, bytes, ok := c.Evictions([]int64{40}, func(int) bool { return false })
	if !ok || bytes != 30 || !slices.Equal(models, []int{2}) { // used longest ago; 20 + 30 + 20 lie together then
		t.Errorf("evict %v, %d bytes, %v", models, bytes, ok)
	}
	if _, _, ok := c.Evictions([]int64{40}, func(int) bool { return true }); ok {
		t.Error("models in use are evicted")
	}
}

// TestPlacerInvariants: a model is ready where its weights are held and nowhere
// else, no cache holds more than it has, what is in use stays, and the counts add up.
func TestPlacerInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes, models := rapid.IntRange(1, 4).Draw(rt, "nodes"), rapid.IntRange(1, 6).Draw(rt, "models")
		var caches []*ModelCache
		for range nodes {
			caches = append(caches, NewModelCache(int64(rapid.IntRange(10, 60).Draw(rt, "bytes"))))
		}
		p, err := NewPlacer(rapid.SampledFrom(PlacementPolicies).Draw(rt, "policy"), caches)
		if err != nil {
			rt.Fatal(err)
		}
		busy := map[string]bool{}
		l := Load{Active: func(n int) int { return n }, Outstanding: func(int) int { return 1 }, InUse: func(n, m int) bool { return busy[fmt.Sprint(n, m)] }}
		size := func(m int) []int64 { return []int64{int64(5 + 7*m%20), int64(1 + m)} }
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			m := rapid.IntRange(0, models-1).Draw(rt, "model")
			node := rapid.IntRange(0, nodes-1).Draw(rt, "node")
			switch rapid.IntRange(0, 2).Draw(rt, "what") {
			case 0:
				d := p.Deploy(m, size(m), rapid.IntRange(1, nodes).Draw(rt, "replicas"), l)
				if d.Partial() != (len(d.Failed) > 0 && len(p.Ready(m)) > 0) {
					rt.Errorf("partial: %+v", d)
				}
				for n := range d.Failed {
					if p.State(n, m) != ReplicaFailed || p.Failure(n, m) == nil {
						rt.Errorf("failed on %d, and its state is %s", n, p.State(n, m))
					}
				}
			case 1:
				busy[fmt.Sprint(node, m)] = p.State(node, m) == ReplicaReady
			default:
				was, used := p.State(node, m), busy[fmt.Sprint(node, m)]
				if gone := p.Undeploy(node, m, l); gone == used && (was == ReplicaReady || was == ReplicaDraining) {
					rt.Errorf("%s with requests %v, gone %v", was, used, gone)
				}
				busy[fmt.Sprint(node, m)] = false
			}
			checkPlacer(rt, p, caches, models)
		}
	})
}

func checkPlacer(rt *rapid.T, p *Placer, caches []*ModelCache, models int) {
	for n, c := range caches {
		if c.Free() < 0 {
			rt.Errorf("node %d holds more than it has", n)
		}
		for i := 1; i < len(c.held); i++ {
			if c.held[i-1].offset+c.held[i-1].bytes > c.held[i].offset {
				rt.Errorf("node %d: slices overlap: %v", n, c.held)
			}
		}
		for m := range models {
			if s := p.State(n, m); c.Has(m) != (s == ReplicaReady || s == ReplicaDraining) {
				rt.Errorf("node %d, model %d: %s, held %v", n, m, s, c.Has(m))
			}
		}
	}
	total, byNode := p.Stats()
	var sum PlacementStats
	for _, s := range byNode {
		sum.Attempts, sum.Successes, sum.Failures = sum.Attempts+s.Attempts, sum.Successes+s.Successes, sum.Failures+s.Failures
		sum.Evictions, sum.Unloads = sum.Evictions+s.Evictions, sum.Unloads+s.Unloads
	}
	if sum != total || total.Attempts != total.Successes+total.Failures {
		rt.Errorf("%+v in all, %+v over the nodes", total, sum)
	}
}

func TestRoundRobinPlacementTakesTurns(t *testing.T) {
	caches := []*ModelCache{NewModelCache(100), NewModelCache(100), NewModelCache(100)}
	p, err := NewPlacer(PlaceRoundRobin, caches)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]int
	for m := range 4 {
		got = append(got, p.Deploy(m, []int64{1}, 2, Idle).Ready)
	}
	if diff := cmp.Diff([][]int{{0, 1}, {0, 2}, {1, 2}, {0, 1}}, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}
