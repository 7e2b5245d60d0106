package serving

// aegaeon is PolicyAegaeon: some workers prefill, one request at a time, the
// others decode, a batch of each model in turn.
type aegaeon struct {
	s       *System
	prefill []*prefillWorker
	decode  []*decodeWorker
	all     []worker
	// ready have their first token and no decode worker yet.
	ready []*request
}

func newAegaeon(s *System) *aegaeon {
	p := &aegaeon{s: s}
	for i := range s.cfg.Workers {
		if i < s.cfg.PrefillWorkers {
			w := &prefillWorker{p: p, gpu: gpu{s: s}}
			p.prefill, p.all = append(p.prefill, w), append(p.all, w)
			continue
		}
		w := &decodeWorker{gpu: gpu{s: s}}
		p.decode, p.all = append(p.decode, w), append(p.all, w)
	}
	return p
}

func (p *aegaeon) workers() []worker { return p.all }

func (p *aegaeon) schedule(r *request) {
	if r != nil {
		p.toPrefill(r)
	}
	for _, r := range p.ready {
		p.toDecode(r)
	}
	clear(p.ready)
	p.ready = p.ready[:0]
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

// toDecode puts a request into the first batch of its model that it fits into,
// else opens one on the worker with the fewest.
func (p *aegaeon) toDecode(r *request) {
	fewest := p.decode[0]
	for _, w := range p.decode {
		if w.join(r) {
			return
		}
		if len(w.batches) < len(fewest.batches) {
			fewest = w
		}
	}
	fewest.open(r)
}

// gpu is what both sorts of worker have: a model that is loaded, with the next
// one fetched to the host's side while the device computes.
type gpu struct {
	s         *System
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
	g.s.stats.ModelSwitches++
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
func (w *prefillWorker) lost()         {} // take looks for itself

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
		w.s.reschedule(nil)
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

// take removes the next request that still waits from the first group. A group
// that this empties stays until the worker looks again: while the request runs,
// others of its model may still join it and need no switch.
func (w *prefillWorker) take() *request {
	for len(w.groups) > 0 {
		g := w.groups[0]
		for len(g.reqs) > 0 {
			r := g.reqs[0]
			g.reqs[0] = nil
			g.reqs = g.reqs[1:]
			g.total -= r.context()
			if !r.done {
				return r
			}
		}
		n := copy(w.groups, w.groups[1:])
		w.groups[n] = nil
		w.groups = w.groups[:n]
	}
	return nil
}

func (w *prefillWorker) run() {
	c := w.current.context()
	ms := toMs(w.loaded.prefillS(c, c*c))
	w.computeMs += ms
	w.s.stats.PrefillSteps++
	w.s.noteKV(c, w.loaded)
	w.wait(phasePrefill, ms)
}
