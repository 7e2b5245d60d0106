package serving

// plus is PolicyServerlessLLMPlus: shortest batch first, with oracle lengths.
//
// By its definition every queue is cut into batches and sorted anew at each arrival.
// What comes out of that is kept instead, and only batches about which something
// changed are looked at: under lasting overload queues are long, and most of them
// stands still.
type plus struct {
	list   []*plainWorker
	all    []worker
	queues []*plusQueue
}

func newPlus(s *System, n *node) *plus {
	p := &plus{}
	p.list, p.all = newPlainWorkers(s, n)
	for _, w := range p.list {
		q := &plusQueue{models: make([]plusModel, len(s.models))}
		w.line = q
		p.queues = append(p.queues, q)
	}
	return p
}

func (p *plus) workers() []worker { return p.all }

func (p *plus) grown() {
	for _, q := range p.queues {
		q.models = append(q.models, plusModel{})
	}
}

func (p *plus) schedule(r *request) {
	if r == nil {
		return
	}
	for i, w := range p.list {
		w.flush()
		p.queues[i].mend()
	}
	i := p.choose(r.m)
	r.home = p.list[i]
	p.queues[i].push(r)
	p.list[i].changed = true
	for i, w := range p.list {
		if p.queues[i].sort() {
			w.changed = true
		}
	}
}

// choose takes the first worker with a batch of the model that has room, else the
// one with the fewest batches.
func (p *plus) choose(m *model) int {
	fewest := 0
	for i, q := range p.queues {
		if q.models[m.index].open != nil {
			return i
		}
		if f := p.queues[fewest]; len(q.order)-q.dead < len(f.order)-f.dead {
			fewest = i
		}
	}
	return fewest
}

// plusBatch is up to queueSlots requests of one model that follow each other.
type plusBatch struct {
	m    *model
	reqs []*request
	cost float64 // estimated seconds, as of the last sort
	// key is where its first request stood, and orders batches of equal cost.
	key   int
	keyed bool // key was told by a cut
	dirty bool
	fresh bool // not in the order yet
}

// plusQueue is a worker's queue as batches, in order of their cost.
type plusQueue struct {
	order  []*plusBatch
	costs  []float64 // of order
	models []plusModel
	dirty  []*plusBatch // about which something changed since the last sort
	torn   []*model     // that must be cut into batches anew
	dead   int          // batches that are empty and go at the next sort
	count  int          // requests
	places []int        // room for sort
	moving []*request   // room for cut
	keys   []int        // room for cut
}

// plusModel is a model's batches. All are full, but for the one that is open.
type plusModel struct {
	batches []*plusBatch
	open    *plusBatch
	torn    bool
}

func (q *plusQueue) len() int { return q.count }

// each goes through the requests in order.
func (q *plusQueue) each(yield func(*request) bool) {
	for _, b := range q.order {
		for _, r := range b.reqs {
			if !r.gone && !yield(r) {
				return
			}
		}
	}
}

// touch notes that something about a request changed.
func (q *plusQueue) touch(r *request) {
	if b := r.batch; b != nil {
		q.mark(b)
	}
}

func (q *plusQueue) mark(b *plusBatch) {
	if !b.dirty {
		b.dirty = true
		q.dirty = append(q.dirty, b)
	}
}

// remove takes requests out that have ended. Those behind them of the same model
// move up at the next arrival.
func (q *plusQueue) remove(ended []*request) {
	for _, r := range ended {
		r.gone = true
		q.count--
		q.tear(r.m)
	}
}

func (q *plusQueue) tear(m *model) {
	if pm := &q.models[m.index]; !pm.torn {
		pm.torn = true
		q.torn = append(q.torn, m)
	}
}

// push puts a request into the open batch of its model, or into one of its own at
// the end.
func (q *plusQueue) push(r *request) {
	pm := &q.models[r.m.index]
	if pm.open == nil {
		pm.open = &plusBatch{m: r.m, reqs: make([]*request, 0, queueSlots), fresh: true, key: len(q.order) * queueSlots}
		pm.batches = append(pm.batches, pm.open)
	}
	b := pm.open
	b.reqs = append(b.reqs, r)
	r.batch = b
	q.mark(b)
	if len(b.reqs) == queueSlots {
		pm.open = nil
	}
	q.count++
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
