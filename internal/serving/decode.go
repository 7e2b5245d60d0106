package serving

import (
	"cmp"
	"slices"
)

const (
	// kvMsPerToken is what moving a token's KV takes at 1 GB/s: half a megabyte.
	kvMsPerToken = 0.5
	// maxQuotaS bounds the time a batch decodes in one turn (Qmax).
	maxQuotaS = 4
	// minAlpha is the least slack that quotas are reckoned with.
	minAlpha = 0.5
	// minTokenS keeps a fit that goes to zero from giving endless quotas.
	minTokenS = 1e-6
)

// decodeBatch is requests of one model that decode together.
type decodeBatch struct {
	m       *model
	reqs    []*request
	total   int // contexts
	quotaMs int64
}

func (b *decodeBatch) fits(r *request) bool {
	return b.m == r.m && len(b.reqs) > 0 && b.total+r.context() <= b.m.capacity
}

func (b *decodeBatch) add(r *request) {
	b.reqs = append(b.reqs, r)
	b.total += r.context()
}

// decodeWorker works in rounds: every batch has a turn of the length of its quota.
type decodeWorker struct {
	gpu
	batches []*decodeBatch // of this round, in order of their turns
	turn    int
	phase   phase

	running []*request // of the step under way: its batch may have more by now
	times   []int64    // as in plainWorker
	left    int
	usedMs  int64 // of the turn, decoding
	stepMs  int64
}

func (w *decodeWorker) lost() {} // a request here has its first token

// hasWork says whether any batch has requests left: those that are finished with
// stay in the list until their round ends.
func (w *decodeWorker) hasWork() bool {
	return slices.ContainsFunc(w.batches, func(b *decodeBatch) bool { return len(b.reqs) > 0 })
}

// join adds a request to a batch that has room for it.
func (w *decodeWorker) join(r *request) bool {
	for _, b := range w.batches {
		if b.fits(r) {
			b.add(r)
			r.home = w
			return true
		}
	}
	return false
}

// open begins a batch at the end of the round, for one step.
func (w *decodeWorker) open(r *request) {
	b := &decodeBatch{m: r.m}
	b.add(r)
	r.home = w
	w.batches = append(w.batches, b)
}

func (w *decodeWorker) wait(p phase, ms int64) {
	w.phase, w.st.busy = p, true
	w.s.events.push(w.s.nowMs+ms, w)
}

func (w *decodeWorker) fire() {
	switch w.phase {
	case phaseWake:
		w.round()
	case phaseSwitch:
		w.move()
	case phaseKV:
		w.begin()
	case phaseDecode:
		w.stepped()
	}
}

// round packs what is there into batches and begins the first turn.
func (w *decodeWorker) round() {
	var reqs []*request
	for _, b := range w.batches {
		reqs = append(reqs, b.reqs...)
	}
	slices.SortFunc(reqs, func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.AtMs, b.AtMs), cmp.Compare(a.Index, b.Index))
	})
	w.batches, w.turn = w.batches[:0], 0
	for _, r := range reqs {
		if !w.join(r) {
			w.open(r)
		}
	}
	slices.SortStableFunc(w.batches, func(a, b *decodeBatch) int { return cmp.Compare(a.m.name, b.m.name) })
	w.quotas()
	w.next()
}

// quotas shares time out so that every batch can keep its token rate, in spite of
// the switches of one round.
func (w *decodeWorker) quotas() {
	var switchS, sum, least float64
	var before *model
	n := make([]float64, len(w.batches))
	for i, b := range w.batches {
		if b.m != before {
			switchS += b.m.loadS + float64(w.s.cfg.SwitchOverheadMs)/1000
			before = b.m
		}
		n[i] = w.s.cfg.TPOTTargetS / max(b.m.decodeS(b.total, len(b.reqs)), minTokenS)
		sum += 1 / n[i]
		if i == 0 || n[i] < least {
			least = n[i]
		}
	}
	alpha := max(switchS/(least*maxQuotaS)+sum, minAlpha)
	for i, b := range w.batches {
		b.quotaMs = toMs(switchS / (n[i] * (alpha - sum)))
	}
}

// next begins the turn of the first batch, from w.turn on, that has requests left; after
// the last one a new round, or nothing.
func (w *decodeWorker) next() {
	for w.turn < len(w.batches) && len(w.batches[w.turn].reqs) == 0 {
		w.turn++
	}
	switch {
	case w.turn == len(w.batches) && w.hasWork():
		w.round()
	case w.turn == len(w.batches):
		clear(w.batches)
		w.batches, w.turn = w.batches[:0], 0
		w.phase, w.st.busy = phaseWake, false
	case w.batches[w.turn].m != w.loaded:
		w.wait(phaseSwitch, w.load(w.batches[w.turn].m))
	default:
		w.move()
	}
}

// move brings the KV of the batch in.
func (w *decodeWorker) move() {
	b := w.batches[w.turn]
	w.wait(phaseKV, toMs(float64(b.total)*kvMsPerToken/w.s.cfg.BandwidthGBps/1000))
}

func (w *decodeWorker) begin() {
	w.usedMs = 0
	w.form()
	w.decode()
}

// form takes what the batch holds for the coming steps.
func (w *decodeWorker) form() {
	w.running = append(w.running[:0], w.batches[w.turn].reqs...)
	w.left = maxMsInt
	for _, r := range w.running {
		w.left = min(w.left, r.OutputTokens-r.progress)
	}
}

func (w *decodeWorker) decode() {
	b := w.batches[w.turn]
	w.stepMs = toMs(b.m.decodeS(b.total, len(w.running)))
	w.s.stats.DecodeSteps++
	w.s.noteKV(b.total, b.m)
	w.wait(phaseDecode, w.stepMs)
}

// stepped is the end of a step: the turn goes on until its quota is used up, all
// are finished, or what the batch has grown to no longer fits.
func (w *decodeWorker) stepped() {
	b := w.batches[w.turn]
	w.times = append(w.times, w.s.nowMs)
	b.total += len(w.running)
	w.usedMs += w.stepMs
	w.computeMs += w.stepMs
	w.left--
	over := w.usedMs >= b.quotaMs || b.total > b.m.capacity
	if w.left > 0 && !over && len(w.running) == len(b.reqs) {
		w.decode()
		return
	}
	w.flush(b)
	if over || len(b.reqs) == 0 {
		w.turn++
		w.next()
		return
	}
	w.form()
	w.decode()
}

// flush gives the running requests their tokens and removes the finished ones.
func (w *decodeWorker) flush(b *decodeBatch) {
	for _, r := range w.running {
		w.s.step(r, w.times...)
	}
	w.times = w.times[:0]
	kept := b.reqs[:0]
	for _, r := range b.reqs {
		if !r.done {
			kept = append(kept, r)
			continue
		}
		b.total -= r.context()
	}
	clear(b.reqs[len(kept):])
	b.reqs = kept
}
