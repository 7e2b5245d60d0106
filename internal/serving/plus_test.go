package serving

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// checkedPlus holds what plus keeps against its definition at every call: cut every
// queue into batches anew, sort them all, write them back.
type checkedPlus struct {
	*plus
	t      *rapid.T
	longer int // calls at which a queue had more than one batch of a model
}

func (c *checkedPlus) schedule(r *request) {
	before := make([][]*request, len(c.list))
	for i, w := range c.list {
		w.line.each(func(r *request) bool { before[i] = append(before[i], r); return true })
	}
	c.plus.schedule(r)
	for i, w := range c.list {
		if r != nil && r.home == worker(w) {
			before[i] = append(before[i], r)
		}
		want := c.byDefinition(before[i])
		var got []int
		w.line.each(func(r *request) bool { got = append(got, r.Index); return true })
		if diff := cmp.Diff(want, got); diff != "" {
			c.t.Fatalf("worker %d at %d ms (-by definition +kept):\n%s", i, w.s.nowMs, diff)
		}
		if n := w.line.len(); n != len(got) {
			c.t.Fatalf("worker %d has %d requests and counts %d", i, len(got), n)
		}
	}
}

func (c *checkedPlus) byDefinition(queue []*request) []int {
	var batches []*plusBatch
	for _, r := range queue {
		i := slices.IndexFunc(batches, func(b *plusBatch) bool { return b.m == r.m && len(b.reqs) < queueSlots })
		if i < 0 {
			if slices.ContainsFunc(batches, func(b *plusBatch) bool { return b.m == r.m }) {
				c.longer++
			}
			i, batches = len(batches), append(batches, &plusBatch{m: r.m})
		}
		batches[i].reqs = append(batches[i].reqs, r)
	}
	for _, b := range batches {
		b.cost = b.estimate()
	}
	slices.SortStableFunc(batches, func(a, b *plusBatch) int {
		switch {
		case a.cost < b.cost:
			return -1
		case a.cost > b.cost:
			return 1
		}
		return 0
	})
	var out []int
	for _, b := range batches {
		for _, r := range b.reqs {
			out = append(out, r.Index)
		}
	}
	return out
}

// TestPlusKeepsToItsDefinition, under loads from none to far too much.
func TestPlusKeepsToItsDefinition(t *testing.T) {
	longer := 0
	rapid.Check(t, func(rt *rapid.T) {
		in, cfg := point(rt)
		cfg.Policy, cfg.PrefillWorkers = PolicyServerlessLLMPlus, 0
		cfg.Workers = rapid.IntRange(1, 3).Draw(rt, "few workers")
		squeeze := int64(rapid.SampledFrom([]int{1, 10, 100}).Draw(rt, "squeeze"))
		lengths := rapid.SampledFrom([]int{1, 300}).Draw(rt, "equal lengths") // equal ones make equal costs
		for i := range in.Requests {
			r := &in.Requests[i]
			r.AtMs /= squeeze
			r.InputTokens, r.OutputTokens = (r.InputTokens/lengths+1)*lengths, (r.OutputTokens/lengths+1)*lengths
		}
		s, err := New(h100(t, in, cfg))
		if err != nil {
			rt.Fatal(err)
		}
		c := &checkedPlus{plus: s.nodes[0].policy.(*plus), t: rt}
		s.nodes[0].policy = c
		if _, err := s.Run(context.Background(), slices.Values(in.Requests), func(Outcome) error { return nil }); err != nil {
			rt.Fatal(err)
		}
		longer += c.longer
	})
	if longer == 0 {
		t.Error("no queue ever had two batches of a model: this test shows less than it says")
	}
}
