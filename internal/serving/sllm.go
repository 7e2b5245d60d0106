package serving

import "slices"

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
	lines []*fifo // of list
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
	for _, w := range p.list {
		q := &fifo{}
		w.line, p.lines = q, append(p.lines, q)
	}
	p.notes = make([]note, len(p.list))
	return p
}

func (p *sllm) workers() []worker { return p.all }
func (p *sllm) grown()            {}

func (p *sllm) schedule(r *request) {
	if r == nil {
		return
	}
	slots := 0
	for i, w := range p.list {
		p.notes[i] = p.lines[i].note(w.loaded)
		if n := p.notes[i]; n.m == r.m {
			slots += max(0, queueSlots-n.count)
		}
	}
	if slots < replicas {
		if i := p.other(r.m); i >= 0 {
			p.enqueue(i, r)
			return
		}
	}
	best := -1
	for i, n := range p.notes {
		if n.m == r.m && (best < 0 || n.count < p.notes[best].count) {
			best = i
		}
	}
	p.enqueue(best, r)
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

func (p *sllm) enqueue(i int, r *request) {
	r.home = p.list[i]
	p.lines[i].push(r)
	p.list[i].changed = true
}

// fifo is a queue in order of arrival.
type fifo struct{ reqs []*request }

func (q *fifo) len() int         { return len(q.reqs) }
func (q *fifo) push(r *request)  { q.reqs = append(q.reqs, r) }
func (q *fifo) touch(r *request) {}

func (q *fifo) each(yield func(*request) bool) {
	for _, r := range q.reqs {
		if !yield(r) {
			return
		}
	}
}

func (q *fifo) remove([]*request) {
	q.reqs = slices.DeleteFunc(q.reqs, func(r *request) bool { return r.done })
}

// note is what the queue looks like from its end; an empty one like what is loaded.
func (q *fifo) note(loaded *model) note {
	k := len(q.reqs)
	if k == 0 {
		return note{m: loaded}
	}
	n := note{m: q.reqs[k-1].m}
	for i := k - 1; i >= 0 && q.reqs[i].m == n.m; i-- {
		n.count++
	}
	return n
}
