package serving

import (
	"cmp"
	"slices"
)

// aegaeon is PolicyAegaeon: some workers prefill, one request at a time, the
// others decode, a batch of each model in turn.
type aegaeon struct {
	s       *System
	node    *node
	prefill []*prefillWorker
	decode  []*decodeWorker
	all     []worker
	// ready have their first token and no decode worker yet.
	ready []*request
	// meant are batches that a dispatch counts on more in than they hold.
	meant []*decodeBatch
	names []int // model -> its place by name
	next  int64 // number of the next decode batch
}

func newAegaeon(s *System, n *node) *aegaeon {
	p := &aegaeon{s: s, node: n, names: namePlaces(s.models)}
	for i := range s.cfg.Workers / s.cfg.Nodes {
		g := gpu{s: s, id: n.index*(s.cfg.Workers/s.cfg.Nodes) + i}
		if i < s.cfg.PrefillWorkers/s.cfg.Nodes {
			w := &prefillWorker{p: p, gpu: g}
			p.prefill, p.all = append(p.prefill, w), append(p.all, w)
			continue
		}
		w := &decodeWorker{p: p, gpu: g, tally: DecodeLoad{Worker: g.id, NodeIndex: n.index}, byModel: make([][]*decodeBatch, len(s.models))}
		p.decode, p.all = append(p.decode, w), append(p.all, w)
	}
	return p
}

func namePlaces(models []*model) []int {
	byName := slices.Clone(models)
	slices.SortFunc(byName, func(a, b *model) int { return cmp.Or(cmp.Compare(a.name, b.name), a.index-b.index) })
	out := make([]int, len(models))
	for i, m := range byName {
		out[m.index] = i
	}
	return out
}

func (p *aegaeon) workers() []worker { return p.all }

func (p *aegaeon) grown() {
	p.names = namePlaces(p.s.models)
	for _, w := range p.decode {
		w.byModel = append(w.byModel, nil)
	}
}

// schedule gives r to a prefill worker. What was dispatched to a decode worker that
// has not taken it in yet is dispatched again, in order of arrival.
func (p *aegaeon) schedule(r *request) {
	if r != nil {
		p.toPrefill(r)
	}
	for _, w := range p.decode {
		p.ready = append(p.ready, w.inbox...)
		clear(w.inbox)
		w.inbox = w.inbox[:0]
	}
	if len(p.ready) == 0 {
		return
	}
	slices.SortFunc(p.ready, inOrder)
	for _, r := range p.ready {
		w := p.decode[p.choose(r)]
		w.inbox = append(w.inbox, r)
		r.home = w
	}
	clear(p.ready)
	p.ready = p.ready[:0]
	for _, b := range p.meant {
		b.meant = 0
	}
	for _, w := range p.decode {
		clear(w.planned)
		w.planned = w.planned[:0]
	}
	p.meant = p.meant[:0]
}

func inOrder(a, b *request) int { return a.order - b.order }

// choose takes the first decode worker with a batch of the request's model that it
// fits into, else the one with the fewest batches.
func (p *aegaeon) choose(r *request) int {
	fewest, c := 0, r.context()
	for i, w := range p.decode {
		for _, b := range w.byModel[r.m.index] {
			if b.total+b.meant+c <= r.m.capacity {
				p.mean(b, c)
				return i
			}
		}
		for _, b := range w.planned {
			if b.m == r.m && b.meant+c <= r.m.capacity {
				b.meant += c
				return i
			}
		}
		if f := p.decode[fewest]; len(w.batches)+len(w.planned) < len(f.batches)+len(f.planned) {
			fewest = i
		}
	}
	w := p.decode[fewest]
	w.planned = append(w.planned, &decodeBatch{m: r.m, meant: c})
	return fewest
}

func (p *aegaeon) mean(b *decodeBatch, tokens int) {
	if b.meant == 0 {
		p.meant = append(p.meant, b)
	}
	b.meant += tokens
}

// toPrefill puts a request into the first group of its model that it fits into,
// else opens one on the worker with the fewest.
func (p *aegaeon) toPrefill(r *request) {
	fewest := p.prefill[0]
	for _, w := range p.prefill {
		for _, g := range w.groups {
			if g.m == r.m && g.total+r.context() <= g.m.capacity {
				g.add(r)
				r.home = w
				return
			}
		}
		if len(w.groups) < len(fewest.groups) {
			fewest = w
		}
	}
	g := &group{m: r.m}
	g.add(r)
	r.home = fewest
	fewest.groups = append(fewest.groups, g)
}

// gpu is what both sorts of worker have: a model that is loaded, with the next
// one fetched to the host's side while the device computes.
type gpu struct {
	s         *System
	id        int
	st        status
	loaded    *model
	computeMs int64 // since the last switch
}

func (g *gpu) status() *status { return &g.st }

// minSwitchMs is what a switch takes at least, however much was fetched ahead.
const minSwitchMs = 10

// load makes m the loaded model and returns how long that takes.
func (g *gpu) load(m *model) int64 {
	ms := max(minSwitchMs, m.loadMs-g.computeMs) + g.s.cfg.SwitchOverheadMs
	g.loaded, g.computeMs = m, 0
	g.s.switched(g.id, m, ms)
	return ms
}

// group is requests of one model that wait for their prefill.
type group struct {
	m     *model
	reqs  []*request
	total int // contexts
}

func (g *group) add(r *request) {
	g.reqs = append(g.reqs, r)
	g.total += r.context()
}

// prefillWorker prefills the requests of its first group, one at a time.
type prefillWorker struct {
	gpu
	p       *aegaeon
	groups  []*group
	phase   phase
	current *request
}

func (w *prefillWorker) hasWork() bool { return len(w.groups) > 0 }
func (w *prefillWorker) lost(*request) {} // take looks for itself

func (w *prefillWorker) wait(p phase, ms int64) {
	w.phase, w.st.busy = p, true
	w.s.events.push(w.s.nowMs+ms, w)
}

func (w *prefillWorker) fire() {
	switch w.phase {
	case phaseSwitch:
		w.run()
		return
	case phasePrefill:
		r := w.current
		w.current = nil
		w.s.step(r, w.s.nowMs)
		if !r.done {
			w.p.ready = append(w.p.ready, r)
		}
		w.s.reschedule(w.p.node, nil)
	}
	w.next()
}

func (w *prefillWorker) next() {
	w.current = w.take()
	switch {
	case w.current == nil:
		w.phase, w.st.busy = phaseWake, false
	case w.current.m != w.loaded:
		w.wait(phaseSwitch, w.load(w.current.m))
	default:
		w.run()
	}
}

// take removes the next request that still waits from the first group, and the
// group with its last one: what comes while that one runs begins a group anew.
func (w *prefillWorker) take() *request {
	for len(w.groups) > 0 {
		g := w.groups[0]
		r := g.reqs[0]
		g.reqs[0] = nil
		g.reqs = g.reqs[1:]
		g.total -= r.context()
		if len(g.reqs) == 0 {
			n := copy(w.groups, w.groups[1:])
			w.groups[n] = nil
			w.groups = w.groups[:n]
		}
		if !r.done {
			return r
		}
	}
	return nil
}

func (w *prefillWorker) run() {
	c := w.current.context()
	ms := toMs(w.loaded.prefillS(c, c*c))
	w.computeMs += ms
	w.s.prefilled(w.id, w.loaded, c, ms)
	w.s.noteKV(c, w.loaded)
	w.wait(phasePrefill, ms)
}
