package serving

// maxBatch is the most requests that a plain worker looks at for one step.
const maxBatch = 1024

// phase is what a worker's event is the end of.
type phase int

const (
	phaseWake phase = iota
	phaseSwitch
	phaseKV
	phasePrefill
	phaseDecode
)

// line is a worker's queue.
type line interface {
	len() int
	// each goes through the requests, from the front, until told not to.
	each(yield func(*request) bool)
	// touch notes that a request has other tokens, or lost or gained its KV, or failed.
	touch(r *request)
	// remove takes out requests that ended.
	remove(ended []*request)
}

// plainWorker serves whole requests from one queue, a batch of its front's model
// at a time.
//
// Decoding the same batch again is the common case and costs no walk over it: the
// times of its steps are kept in times and given to the requests by flush, when one
// of them finishes, the queue changes, or a policy wants to know.
type plainWorker struct {
	s      *System
	id     int
	st     status
	loaded *model
	line   line
	ended  []*request // still in the line
	// lastBatchMs is the end of the last step; 0 before the first.
	lastBatchMs int64

	phase    phase
	walked   []*request
	batch    []*request // of the running step
	resident []*request // with KV, or about to have it
	epoch    uint64
	changed  bool // the queue is not what the batch was formed from

	times []int64 // of decode steps not given to the requests yet
	total int     // contexts of the batch, at the start of the next decode step
	left  int     // decode steps until the first of the batch finishes
}

func (w *plainWorker) status() *status { return &w.st }
func (w *plainWorker) hasWork() bool   { return w.line.len() > 0 }

func (w *plainWorker) lost(r *request) {
	w.ended, w.changed = append(w.ended, r), true
	w.line.touch(r)
}

func (w *plainWorker) fire() {
	switch w.phase {
	case phasePrefill:
		for _, r := range w.batch {
			w.step(r, w.s.nowMs)
		}
		w.lastBatchMs = w.s.nowMs
	case phaseDecode:
		w.times = append(w.times, w.s.nowMs)
		w.total += len(w.batch)
		w.left--
		w.lastBatchMs = w.s.nowMs
		if w.s.each != nil {
			w.flush()
		}
		if w.left > 0 && !w.changed && w.total <= w.loaded.capacity {
			w.decode()
			return
		}
		w.flush()
	}
	w.next()
}

// flush gives the batch the tokens of its decode steps so far.
func (w *plainWorker) flush() {
	if len(w.times) == 0 {
		return
	}
	for _, r := range w.batch {
		w.step(r, w.times...)
	}
	w.times = w.times[:0]
}

// step gives tokens to a request. One that failed meanwhile was told by lost.
func (w *plainWorker) step(r *request, timesMs ...int64) {
	if r.done {
		return
	}
	w.s.step(r, timesMs...)
	w.line.touch(r)
	if r.done {
		w.ended = append(w.ended, r)
	}
}

// next begins a step or a switch, or goes idle.
func (w *plainWorker) next() {
	w.purge()
	var front *request
	for r := range w.line.each {
		front = r
		break
	}
	switch {
	case front == nil:
		w.phase, w.st.busy = phaseWake, false
		w.resident = w.resident[:0]
	case front.m != w.loaded:
		for _, r := range w.resident {
			w.evict(r)
		}
		w.resident = w.resident[:0]
		w.loaded = front.m
		ms := w.loaded.loadMs + w.s.cfg.SwitchOverheadMs
		w.s.switched(w.id, w.loaded, ms)
		w.wait(phaseSwitch, ms)
	default:
		w.start()
	}
}

func (w *plainWorker) evict(r *request) {
	w.s.evict(r)
	if !r.gone {
		w.line.touch(r)
	}
}

func (w *plainWorker) wait(p phase, ms int64) {
	w.phase, w.st.busy = p, true
	w.s.events.push(w.s.nowMs+ms, w)
}

// purge removes what finished or failed.
func (w *plainWorker) purge() {
	w.changed = false
	if len(w.ended) == 0 {
		return
	}
	w.line.remove(w.ended)
	clear(w.ended)
	w.ended = w.ended[:0]
}

// start forms a batch and begins its step.
func (w *plainWorker) start() {
	total, prefill := w.walk()
	for _, r := range w.resident {
		if r.seen != w.epoch {
			w.evict(r)
		}
	}
	w.resident = append(w.resident[:0], w.walked...)
	w.s.noteKV(total, w.loaded)
	w.batch = w.batch[:0]
	if prefill {
		w.prefill()
		return
	}
	w.batch = append(w.batch, w.walked...)
	w.total, w.left = total, maxMsInt
	for _, r := range w.batch {
		w.left = min(w.left, r.OutputTokens-r.progress)
	}
	w.decode()
}

const maxMsInt = int(maxMs)

// walk takes requests from the front while they are of one model and fit
// together.
func (w *plainWorker) walk() (total int, prefill bool) {
	w.epoch++
	w.walked = w.walked[:0]
	for r := range w.line.each {
		c := r.context()
		if len(w.walked) == maxBatch || r.m != w.loaded || total+c > w.loaded.capacity {
			break
		}
		r.seen = w.epoch
		w.walked, total = append(w.walked, r), total+c
		prefill = prefill || !r.hasKV
	}
	return total, prefill
}

func (w *plainWorker) prefill() {
	tokens, squares := 0, 0
	for _, r := range w.walked {
		if !r.hasKV {
			c := r.context()
			tokens, squares = tokens+c, squares+c*c
			w.batch = append(w.batch, r)
		}
	}
	ms := toMs(w.loaded.prefillS(tokens, squares))
	w.s.prefilled(w.id, w.loaded, tokens, ms)
	w.wait(phasePrefill, ms)
}

func (w *plainWorker) decode() {
	ms := toMs(w.loaded.decodeS(w.total, len(w.batch)))
	w.s.decoded(w.id, w.loaded, w.total, ms)
	w.wait(phaseDecode, ms)
}

func newPlainWorkers(s *System, n *node) (list []*plainWorker, all []worker) {
	for i := range s.cfg.Workers / s.cfg.Nodes {
		w := &plainWorker{s: s, id: n.index*(s.cfg.Workers/s.cfg.Nodes) + i}
		list, all = append(list, w), append(all, w)
	}
	return list, all
}
