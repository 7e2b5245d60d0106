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
	queue  []*request
	// lastBatchMs is the end of the last step; 0 before the first.
	lastBatchMs int64

	phase    phase
	batch    []*request // of the running step
	resident []*request // with KV, or about to have it
	epoch    uint64
	changed  bool // the queue is not what the batch was formed from
	gone     bool // the queue holds requests that finished or failed
	touched  bool // for a policy: anything about the queue changed since it looked

	times []int64 // of decode steps not given to the requests yet
	total int     // contexts of the batch, at the start of the next decode step
	left  int     // decode steps until the first of the batch finishes
}

func (w *plainWorker) status() *status { return &w.st }
func (w *plainWorker) hasWork() bool   { return len(w.queue) > 0 }
func (w *plainWorker) lost()           { w.changed, w.touched, w.gone = true, true, true }

// enqueue takes a request.
func (w *plainWorker) enqueue(r *request) {
	r.home = w
	w.queue = append(w.queue, r)
	w.changed, w.touched = true, true
}

func (w *plainWorker) fire() {
	switch w.phase {
	case phasePrefill:
		for _, r := range w.batch {
			w.s.step(r, w.s.nowMs)
			w.gone = w.gone || r.done
		}
		w.lastBatchMs, w.touched = w.s.nowMs, true
	case phaseDecode:
		w.times = append(w.times, w.s.nowMs)
		w.total += len(w.batch)
		w.left--
		w.lastBatchMs = w.s.nowMs
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
		w.s.step(r, w.times...)
		w.gone = w.gone || r.done
	}
	w.times, w.touched = w.times[:0], true
}

// next begins a step or a switch, or goes idle.
func (w *plainWorker) next() {
	w.purge()
	switch {
	case len(w.queue) == 0:
		w.phase, w.st.busy = phaseWake, false
		w.resident = w.resident[:0]
	case w.queue[0].m != w.loaded:
		for _, r := range w.resident {
			w.s.evict(r)
			w.touched = true
		}
		w.resident = w.resident[:0]
		w.loaded = w.queue[0].m
		w.s.switched(w.id, w.loaded)
		w.wait(phaseSwitch, w.loaded.loadMs+w.s.cfg.SwitchOverheadMs)
	default:
		w.start()
	}
}

func (w *plainWorker) wait(p phase, ms int64) {
	w.phase, w.st.busy = p, true
	w.s.events.push(w.s.nowMs+ms, w)
}

// purge removes what finished or failed.
func (w *plainWorker) purge() {
	w.changed = false
	if !w.gone {
		return
	}
	kept := w.queue[:0]
	for _, r := range w.queue {
		if !r.done {
			kept = append(kept, r)
		}
	}
	clear(w.queue[len(kept):])
	w.queue = kept
	w.gone, w.touched = false, true
}

// start forms a batch and begins its step.
func (w *plainWorker) start() {
	n, total, prefill := w.walk()
	walked := w.queue[:n]
	for _, r := range w.resident {
		if r.seen != w.epoch {
			w.s.evict(r)
			w.touched = true
		}
	}
	w.resident = append(w.resident[:0], walked...)
	w.s.noteKV(total, w.loaded)
	w.batch = w.batch[:0]
	if prefill {
		w.prefill(walked)
		return
	}
	w.batch = append(w.batch, walked...)
	w.total, w.left = total, maxMsInt
	for _, r := range w.batch {
		w.left = min(w.left, r.OutputTokens-r.progress)
	}
	w.decode()
}

const maxMsInt = int(maxMs)

// walk takes requests from the front while they are of one model and fit
// together.
func (w *plainWorker) walk() (n, total int, prefill bool) {
	w.epoch++
	for _, r := range w.queue {
		c := r.context()
		if n == maxBatch || r.m != w.loaded || total+c > w.loaded.capacity {
			break
		}
		r.seen = w.epoch
		n, total = n+1, total+c
		prefill = prefill || !r.hasKV
	}
	return n, total, prefill
}

func (w *plainWorker) prefill(walked []*request) {
	tokens, squares := 0, 0
	for _, r := range walked {
		if !r.hasKV {
			c := r.context()
			tokens, squares = tokens+c, squares+c*c
			w.batch = append(w.batch, r)
		}
	}
	w.s.prefilled(w.id, w.loaded, tokens)
	w.wait(phasePrefill, toMs(w.loaded.prefillS(tokens, squares)))
}

func (w *plainWorker) decode() {
	w.s.decoded(w.id, w.loaded, w.total)
	w.wait(phaseDecode, toMs(w.loaded.decodeS(w.total, len(w.batch))))
}

func newPlainWorkers(s *System, n *node) (list []*plainWorker, all []worker) {
	for i := range s.cfg.Workers / s.cfg.Nodes {
		w := &plainWorker{s: s, id: n.index*(s.cfg.Workers/s.cfg.Nodes) + i}
		list, all = append(list, w), append(all, w)
	}
	return list, all
}
