package serving

import (
	"cmp"
	"slices"
	"sort"
)

// find returns where a batch stands in the order.
func (q *plusQueue) find(b *plusBatch) int {
	i := sort.SearchFloat64s(q.costs, b.cost)
	for q.order[i] != b {
		i++
	}
	return i
}

// mend cuts the models anew that lost requests, or whose open batch stands before
// another: their requests, in order, fill batches one after the other.
func (q *plusQueue) mend() {
	for _, m := range q.torn {
		q.cut(&q.models[m.index])
	}
	q.torn = q.torn[:0]
}

func (q *plusQueue) cut(pm *plusModel) {
	pm.torn, pm.open = false, nil
	for _, b := range pm.batches {
		b.key = q.find(b) * queueSlots
	}
	slices.SortFunc(pm.batches, func(a, b *plusBatch) int { return a.key - b.key })
	first := 0
	for first < len(pm.batches) && pm.batches[first].whole() {
		first++
	}
	reqs, keys := q.moving[:0], q.keys[:0]
	for _, b := range pm.batches[first:] {
		for i, r := range b.reqs {
			if r.gone {
				r.batch = nil
				continue
			}
			reqs, keys = append(reqs, r), append(keys, b.key+i)
		}
	}
	q.moving, q.keys = reqs, keys
	used := first
	for ; len(reqs) > 0; used++ {
		b, n := pm.batches[used], min(queueSlots, len(reqs))
		b.reqs, b.key, b.keyed = append(b.reqs[:0], reqs[:n]...), keys[0], true
		for _, r := range b.reqs {
			r.batch = b
		}
		reqs, keys = reqs[n:], keys[n:]
		q.mark(b)
	}
	if used > first && len(pm.batches[used-1].reqs) < queueSlots {
		pm.open = pm.batches[used-1]
	}
	for _, b := range pm.batches[used:] {
		b.reqs = b.reqs[:0]
		q.dead++
		q.mark(b)
	}
	clear(pm.batches[used:])
	pm.batches = pm.batches[:used]
	clear(q.moving)
}

func (b *plusBatch) whole() bool {
	return len(b.reqs) == queueSlots && !slices.ContainsFunc(b.reqs, func(r *request) bool { return r.gone })
}

// sort brings the batches that changed to their places, as a stable sort of all
// would, and says whether the order of requests may be another now.
func (q *plusQueue) sort() (moved bool) {
	if len(q.dirty) == 0 {
		return false
	}
	q.places = q.places[:0]
	live := q.dirty[:0]
	for _, b := range q.dirty {
		moved = moved || b.fresh || b.keyed || len(b.reqs) == 0
		if !b.fresh {
			at := q.find(b)
			q.places = append(q.places, at)
			if !b.keyed {
				b.key = at * queueSlots
			}
		}
		if len(b.reqs) > 0 {
			live = append(live, b)
		}
	}
	slices.Sort(q.places)
	for _, b := range live {
		b.cost = b.estimate()
	}
	slices.SortFunc(live, func(a, b *plusBatch) int { return cmp.Or(cmp.Compare(a.cost, b.cost), a.key-b.key) })
	q.extract()
	moved = q.merge(live) || moved
	for _, b := range live {
		b.dirty, b.fresh, b.keyed = false, false, false
	}
	q.dead = 0
	for _, b := range live {
		q.settle(b.m)
	}
	clear(q.dirty)
	q.dirty = q.dirty[:0]
	return moved
}

// extract takes what stands at places out.
func (q *plusQueue) extract() {
	if len(q.places) == 0 {
		return
	}
	to := q.places[0]
	for i, at := range q.places {
		end := len(q.order)
		if i+1 < len(q.places) {
			end = q.places[i+1]
		}
		copy(q.costs[to:], q.costs[at+1:end])
		to += copy(q.order[to:], q.order[at+1:end])
	}
	clear(q.order[to:])
	q.order, q.costs = q.order[:to], q.costs[:to]
}

// before is where what stands at i now stood before extract.
func (q *plusQueue) before(i int) int {
	return i + sort.Search(len(q.places), func(k int) bool { return q.places[k]-k > i })
}

// merge puts sorted batches in, and says whether any stands elsewhere than before.
func (q *plusQueue) merge(live []*plusBatch) (moved bool) {
	at := make([]int, len(live)) // in the order as it is
	for k, b := range live {
		i := sort.SearchFloat64s(q.costs, b.cost)
		for i < len(q.costs) && q.costs[i] == b.cost && q.before(i)*queueSlots < b.key {
			i++
		}
		at[k] = i
		moved = moved || (i+k)*queueSlots != b.key
	}
	end := len(q.order)
	q.order, q.costs = slices.Grow(q.order, len(live))[:end+len(live)], slices.Grow(q.costs, len(live))[:end+len(live)]
	for k := len(live) - 1; k >= 0; k-- {
		copy(q.order[at[k]+k+1:], q.order[at[k]:end])
		copy(q.costs[at[k]+k+1:], q.costs[at[k]:end])
		q.order[at[k]+k], q.costs[at[k]+k] = live[k], live[k].cost
		end = at[k]
	}
	return moved
}

// settle has a model cut anew at the next arrival when its open batch does not
// stand last: those behind it will fill it up.
func (q *plusQueue) settle(m *model) {
	pm := &q.models[m.index]
	if pm.open == nil || pm.torn {
		return
	}
	for _, b := range pm.batches {
		if b.cost > pm.open.cost || (b != pm.open && b.cost == pm.open.cost && q.find(b) > q.find(pm.open)) {
			q.tear(m)
			return
		}
	}
}
