package serving

// The artifact's settings of both request-level policies.
const (
	// replicas is how many free slots of a model there shall be (R).
	replicas = 1
	// queueSlots is how many requests of one model stand behind each other before
	// another worker is looked for (QS), and the size of a batch.
	queueSlots = 4
)

// sllm is PolicyServerlessLLM.
type sllm struct {
	s     *System
	list  []*plainWorker
	all   []worker
	notes []note
}

// note is what a worker's queue looks like from its end.
type note struct {
	m     *model
	count int
}

func newSLLM(s *System, n *node) *sllm {
	p := &sllm{s: s}
	p.list, p.all = newPlainWorkers(s, n)
	p.notes = make([]note, len(p.list))
	return p
}

func (p *sllm) workers() []worker { return p.all }

func (p *sllm) schedule(r *request) {
	if r == nil {
		return
	}
	slots := 0
	for i, w := range p.list {
		p.notes[i] = w.note()
		if n := p.notes[i]; n.m == r.m {
			slots += max(0, queueSlots-n.count)
		}
	}
	if slots < replicas {
		if i := p.other(r.m); i >= 0 {
			p.list[i].enqueue(r)
			return
		}
	}
	best := -1
	for i, n := range p.notes {
		if n.m == r.m && (best < 0 || n.count < p.notes[best].count) {
			best = i
		}
	}
	p.list[best].enqueue(r)
}

// other finds a worker for one more replica of m, -1 for none: the first without
// a model, else the one that has been out of use for longest.
func (p *sllm) other(m *model) int {
	best := -1
	for i, n := range p.notes {
		switch {
		case n.m == nil:
			return i
		case n.m != m && (best < 0 || p.list[i].lastBatchMs < p.list[best].lastBatchMs):
			best = i
		}
	}
	return best
}

func (w *plainWorker) note() note {
	k := len(w.queue)
	if k == 0 {
		return note{m: w.loaded}
	}
	n := note{m: w.queue[k-1].m}
	for i := k - 1; i >= 0 && w.queue[i].m == n.m; i-- {
		n.count++
	}
	return n
}
