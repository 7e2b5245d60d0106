package serving

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// watched runs a system with all its events noted.
func watched(t rapid.TB, in Input, cfg Config) ([]outcome, Stats, Cluster, []Event) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	s.Observe(func(e Event) {
		events = append(events, e)
		checkOwners(t, s)
	})
	out := make([]outcome, len(in.Requests))
	stats, err := s.Run(context.Background(), slices.Values(in.Requests), func(o Outcome) error {
		out[o.Index] = outcome{Outcome: o}
		out[o.Index].TokensMs = slices.Clone(o.TokensMs)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, stats, s.Cluster(), events
}

// checkOwners: a request that decodes is in one batch of one worker, or on its way
// to one.
func checkOwners(t rapid.TB, s *System) {
	owner := map[int]int{}
	for _, n := range s.nodes {
		p, ok := n.policy.(*aegaeon)
		if !ok {
			return
		}
		claim := func(r *request, worker int) {
			if other, taken := owner[r.Index]; taken {
				t.Errorf("request %d belongs to worker %d and to worker %d", r.Index, other, worker)
			}
			if owner[r.Index] = worker; r.node != n {
				t.Errorf("request %d is on another node than the one it was routed to", r.Index)
			}
		}
		for _, w := range p.decode {
			for _, r := range w.inbox {
				claim(r, w.id)
			}
			for _, b := range w.batches {
				for _, r := range b.reqs {
					claim(r, w.id)
				}
			}
		}
	}
}

// TestClusterInvariants: with nodes, replicas and stealing, every request has one
// owner, tokens are conserved across steals, counters equal the event log, the CVs
// are what their formula gives.
func TestClusterInvariants(t *testing.T) {
	stolen := 0
	rapid.Check(t, func(rt *rapid.T) {
		in, cfg := point(rt)
		cfg.Policy = PolicyAegaeon
		cfg.Nodes = rapid.IntRange(1, 3).Draw(rt, "nodes")
		cfg.PrefillWorkers = cfg.Nodes
		cfg.Workers = cfg.Nodes * rapid.IntRange(2, 4).Draw(rt, "workers of a node")
		cfg.Replicas = rapid.IntRange(1, cfg.Nodes).Draw(rt, "replicas")
		cfg.Routing = rapid.SampledFrom(RoutingPolicies).Draw(rt, "routing")
		cfg.Placement = rapid.SampledFrom(PlacementPolicies).Draw(rt, "placement")
		cfg.ModelCacheGB = rapid.SampledFrom([]float64{0, 30, 60}).Draw(rt, "cache")
		cfg.WorkStealing = rapid.Bool().Draw(rt, "stealing")
		cfg = h100(t, in, cfg)
		cfg.Device.MemoryGB = rapid.Float64Range(28, 80).Draw(rt, "memory")
		out, stats, cluster, events := watched(rt, in, cfg)
		for _, o := range out {
			check(rt, o)
		}
		if stats.LargestKVPercent > 100 {
			rt.Errorf("a step held %d %% of the KV that fits", stats.LargestKVPercent)
		}
		checkLoads(rt, out, stats, cluster)
		checkLog(rt, stats, cluster, events)
		stolen += cluster.Stealing.Successes
	})
	t.Logf("%d batches were stolen", stolen) // few: TestBatchesAreStolen has more
}

// TestBatchesAreStolen: many models on few workers, which do not end together, make
// for thefts, and the invariants hold.
func TestBatchesAreStolen(t *testing.T) {
	in := Input{}
	for i := range 7 {
		in.Models = append(in.Models, Alias{fmt.Sprintf("m%d", i), AliasBase(i)})
	}
	for i := range 60 {
		in.IDs = append(in.IDs, fmt.Sprint(i))
		in.Requests = append(in.Requests, Request{Index: i, Model: i % 7, AtMs: int64(i) * 400, InputTokens: 50, OutputTokens: 20 + 180*(i%3)})
	}
	cfg := h100(t, in, Config{Workers: 5, PrefillWorkers: 2, Policy: PolicyAegaeon, WorkStealing: true})
	stolen := 0
	rapid.Check(t, func(rt *rapid.T) {
		in := Input{IDs: in.IDs, Models: in.Models, Requests: slices.Clone(in.Requests)}
		for i := range in.Requests {
			in.Requests[i].OutputTokens += rapid.IntRange(0, 200).Draw(rt, "more")
		}
		out, stats, cluster, events := watched(rt, in, cfg)
		for _, o := range out {
			check(rt, o)
		}
		checkLoads(rt, out, stats, cluster)
		checkLog(rt, stats, cluster, events)
		stolen += cluster.Stealing.Successes
	})
	if stolen < 10 {
		t.Errorf("%d batches were stolen: this test shows less than it says", stolen)
	}
	t.Logf("%d batches were stolen", stolen)
}

func checkLoads(rt *rapid.T, out []outcome, stats Stats, c Cluster) {
	var decoded, tokens, steps, donated, received int64
	for _, o := range out {
		if o.Finished {
			tokens += int64(o.OutputTokens - 1) // the first is a prefill's
		}
	}
	var made, active []float64
	for _, l := range c.Decode {
		decoded, steps, donated, received = decoded+l.OutputTokens, steps+l.Steps, donated+l.Donated, received+l.Received
		made, active = append(made, float64(l.OutputTokens)), append(active, float64(l.ActiveMs))
		if l.Batches+l.Requests+l.KVTokens != 0 {
			rt.Errorf("work is left at the end: %+v", l)
		}
	}
	if decoded != tokens || steps != stats.DecodeSteps {
		rt.Errorf("workers made %d tokens in %d steps, requests have %d, the counters %d", decoded, steps, tokens, stats.DecodeSteps)
	}
	if s := c.Stealing; donated != received || donated != int64(s.Successes) || s.Affine > s.Successes || s.Attempts != s.Successes+sum(s.Rejections) {
		rt.Errorf("%d donated, %d received, %+v", donated, received, s)
	}
	for _, cv := range []struct {
		got float64
		of  []float64
	}{{c.OutputTokensCV, made}, {c.ActiveCV, active}} {
		if want := variation(cv.of); math.Abs(cv.got-want) > 1e-9 {
			rt.Errorf("CV %v of %v, want %v", cv.got, cv.of, want)
		}
	}
	if c.Routing.Total != 0 {
		rt.Errorf("%d requests are outstanding at the end", c.Routing.Total)
	}
}

func sum(counts map[StealRejection]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// variation is the population standard deviation over the mean, by the book.
func variation(xs []float64) float64 {
	mean, square := 0.0, 0.0
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		square += (x - mean) * (x - mean) / float64(len(xs))
	}
	if mean == 0 {
		return 0
	}
	return math.Sqrt(square) / mean
}

func checkLog(rt *rapid.T, stats Stats, c Cluster, events []Event) {
	count := map[EventKind]int64{}
	rejected := map[StealRejection]int{}
	routed := make([]int64, len(c.Routing.Cumulative))
	before := int64(0)
	for _, e := range events {
		if e.AtMs < before {
			rt.Errorf("an event at %d ms after one at %d ms", e.AtMs, before)
		}
		before = e.AtMs
		count[e.Kind]++
		switch e.Kind {
		case EventRoute:
			routed[e.Node]++
		case EventSteal:
			if e.Why != "" {
				rejected[e.Why]++
			}
		}
	}
	failed := stats.FailedPatience + stats.FailedCapacity + stats.FailedReplica
	for kind, want := range map[EventKind]int64{
		EventSwitch: stats.ModelSwitches, EventPrefill: stats.PrefillSteps, EventDecode: stats.DecodeSteps, EventFinish: int64(stats.Finished), EventFail: int64(failed),
		EventSteal: int64(c.Stealing.Attempts), EventRoute: int64(stats.Requests - stats.FailedReplica - stats.FailedCapacity),
	} {
		if count[kind] != want {
			rt.Errorf("%d events of %s, the counters say %d", count[kind], kind, want)
		}
	}
	for why, n := range c.Stealing.Rejections {
		if rejected[why] != n {
			rt.Errorf("%d rejections for %s in the log, %d counted", rejected[why], why, n)
		}
	}
	if !slices.Equal(routed, c.Routing.Cumulative) {
		rt.Errorf("routed %v by the log, %v by the counters", routed, c.Routing.Cumulative)
	}
}
