package serving

// plus is PolicyServerlessLLMPlus: shortest batch first, with oracle lengths.
type plus struct {
	s      *System
	list   []*plainWorker
	all    []worker
	queues []plusQueue
}

// plusQueue is a worker's queue as batches, rebuilt at a call when anything about
// the queue changed since the last.
type plusQueue struct {
	batches []plusBatch
	open    []int // model -> its batch with room, +1; 0 for none
}

type plusBatch struct {
	m    *model
	reqs []*request
	cost float64 // estimated seconds
}

func newPlus(s *System, n *node) *plus {
	p := &plus{s: s}
	p.list, p.all = newPlainWorkers(s, n)
	p.queues = make([]plusQueue, len(p.list))
	for i := range p.queues {
		p.queues[i].open = make([]int, len(s.models))
	}
	return p
}

func (p *plus) workers() []worker { return p.all }

func (p *plus) schedule(r *request) {
	if r == nil {
		return
	}
	for i, w := range p.list {
		w.flush()
		if w.touched {
			p.queues[i].rebuild(w.queue)
		}
	}
	i := p.choose(r.m)
	p.queues[i].add(r)
	p.list[i].enqueue(r)
	for i, w := range p.list {
		if !w.touched {
			continue
		}
		p.queues[i].sort()
		// What moved makes other batches the next time.
		w.touched = p.queues[i].flatten(w.queue)
		w.changed = w.changed || w.touched
	}
}

// choose takes the first worker with a batch of the model that has room, else the
// one with the fewest batches.
func (p *plus) choose(m *model) int {
	fewest := 0
	for i := range p.queues {
		q := &p.queues[i]
		if q.open[m.index] != 0 {
			return i
		}
		if len(q.batches) < len(p.queues[fewest].batches) {
			fewest = i
		}
	}
	return fewest
}

func (q *plusQueue) rebuild(queue []*request) {
	for i := range q.batches {
		q.open[q.batches[i].m.index] = 0
	}
	q.batches = q.batches[:0]
	for _, r := range queue {
		q.add(r)
	}
}

// add puts a request into the first batch of its model with room. Batches of one
// model fill one after the other, so that at most one has room.
func (q *plusQueue) add(r *request) {
	at := q.open[r.m.index] - 1
	if at < 0 {
		at = len(q.batches)
		if at < cap(q.batches) {
			q.batches = q.batches[:at+1] // with the room of an earlier batch
			q.batches[at].m, q.batches[at].reqs = r.m, q.batches[at].reqs[:0]
		} else {
			q.batches = append(q.batches, plusBatch{m: r.m, reqs: make([]*request, 0, queueSlots)})
		}
	}
	b := &q.batches[at]
	b.reqs = append(b.reqs, r)
	q.open[r.m.index] = at + 1
	if len(b.reqs) == queueSlots {
		q.open[r.m.index] = 0
	}
}

// sort is stable; the order hardly changes from call to call, so that insertion
// is quick.
func (q *plusQueue) sort() {
	for i := range q.batches {
		q.batches[i].cost = q.batches[i].estimate()
		for j := i; j > 0 && q.batches[j].cost < q.batches[j-1].cost; j-- {
			q.batches[j], q.batches[j-1] = q.batches[j-1], q.batches[j]
		}
	}
}

// estimate is the time of the batch's next prefill, over its inputs alone, or of
// what its first request has left to decode. Failed requests that the worker has
// not removed yet keep their place, but have no prefill to come.
func (b *plusBatch) estimate() float64 {
	tokens, squares := 0, 0
	for _, r := range b.reqs {
		if !r.hasKV && !r.done {
			tokens, squares = tokens+r.InputTokens, squares+r.InputTokens*r.InputTokens
		}
	}
	if tokens > 0 {
		return b.m.prefillS(tokens, squares)
	}
	r := b.reqs[0]
	end := r.InputTokens + r.OutputTokens
	return b.m.fit.Decode.At(float64((r.context()+end)/2), 1) * float64(end-r.context())
}

// flatten writes the batches back into the queue and says whether that moved
// anything. The places that batches were opened at are void when it did.
func (q *plusQueue) flatten(queue []*request) (moved bool) {
	i := 0
	for _, b := range q.batches {
		for _, r := range b.reqs {
			moved = moved || queue[i] != r
			queue[i] = r
			i++
		}
	}
	return moved
}
