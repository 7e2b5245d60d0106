package serving

import "slices"

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

// decodeBatch is requests of one model that decode together. One whose requests are
// all finished stays in its round and takes others of its model.
type decodeBatch struct {
	id      int64
	m       *model
	reqs    []*request
	total   int // contexts
	meant   int // contexts that are about to come, within a dispatch
	quotaMs int64
}

func (b *decodeBatch) add(r *request) {
	b.reqs = append(b.reqs, r)
	b.total += r.context()
}

// decodeWorker works in rounds: every batch that is there when a round begins has a
// turn of the length of its quota. What comes meanwhile joins batches that it fits
// into, or waits for the next round.
type decodeWorker struct {
	gpu
	p     *aegaeon
	tally DecodeLoad
	inbox []*request // dispatched here, not taken in yet
	// batches begin with the one whose turn it is; at the end of its turn it goes
	// to the end.
	batches []*decodeBatch
	byModel [][]*decodeBatch // the same, by model
	planned []*decodeBatch   // within a dispatch: what it will open
	turns   int              // left in the round, 0 between rounds
	phase   phase

	running []*request // of the step under way: its batch may have more by now
	times   []int64    // as in plainWorker
	left    int
	usedMs  int64 // of the turn, decoding
	stepMs  int64
}

// lost takes out a request whose client has gone: one with its first token does not
// fail otherwise. A batch that is left empty goes, unless it is its turn.
func (w *decodeWorker) lost(r *request) {
	gone := func(o *request) bool { return o == r }
	w.inbox = slices.DeleteFunc(w.inbox, gone)
	w.running = slices.DeleteFunc(w.running, gone)
	for i, b := range w.batches {
		if !slices.Contains(b.reqs, r) {
			continue
		}
		b.reqs = slices.DeleteFunc(b.reqs, gone)
		b.total -= r.context()
		if len(b.reqs) == 0 && i > 0 {
			w.drop(i)
		}
		return
	}
}

// drop forgets a batch that waits for its turn.
func (w *decodeWorker) drop(i int) {
	b := w.batches[i]
	w.batches = slices.Delete(w.batches, i, i+1)
	w.byModel[b.m.index] = slices.DeleteFunc(w.byModel[b.m.index], func(o *decodeBatch) bool { return o == b })
	if i < w.turns {
		w.turns--
	}
}

// hasWork is asked of a worker that is idle.
func (w *decodeWorker) hasWork() bool { return len(w.inbox)+len(w.batches) > 0 }

// join puts a request into the first batch of its model that it fits into, else
// into one of its own at the end.
func (w *decodeWorker) join(r *request) {
	for _, b := range w.byModel[r.m.index] {
		if b.total+r.context() <= b.m.capacity {
			b.add(r)
			return
		}
	}
	b := &decodeBatch{id: w.p.next, m: r.m}
	w.p.next++
	b.add(r)
	w.own(b)
}

// own puts a batch at the end.
func (w *decodeWorker) own(b *decodeBatch) {
	w.batches = append(w.batches, b)
	w.byModel[b.m.index] = append(w.byModel[b.m.index], b)
}

// rotate puts the first at the end.
func rotate(list []*decodeBatch) {
	first, last := list[0], len(list)-1
	copy(list, list[1:])
	list[last] = first
}

// accept takes in what was dispatched here. It has no quota in this round unless it
// finds a batch.
func (w *decodeWorker) accept() {
	for _, r := range w.inbox {
		w.join(r)
	}
	clear(w.inbox)
	w.inbox = w.inbox[:0]
}

func (w *decodeWorker) wait(p phase, ms int64) {
	w.phase, w.st.busy = p, true
	w.tally.ActiveMs += ms
	w.s.events.push(w.s.nowMs+ms, w)
}

func (w *decodeWorker) fire() {
	switch w.phase {
	case phaseWake:
		w.round()
	case phaseSwitch:
		w.accept()
		w.move()
	case phaseKV:
		w.begin()
	case phaseDecode:
		w.stepped()
	}
}

// round packs what is there into batches anew, may hand one of them to an idle
// worker if a round has just ended, and begins the first turn.
func (w *decodeWorker) round() {
	var reqs []*request
	ended := len(w.batches) > 0 && w.phase != phaseWake
	for _, b := range w.batches {
		reqs = append(reqs, b.reqs...)
		w.byModel[b.m.index] = w.byModel[b.m.index][:0]
	}
	reqs = append(reqs, w.inbox...)
	clear(w.inbox)
	clear(w.batches)
	w.inbox, w.batches = w.inbox[:0], w.batches[:0]
	slices.SortFunc(reqs, inOrder)
	for _, r := range reqs {
		w.join(r)
	}
	if ended {
		w.tally.Rounds++
	}
	if len(w.batches) == 0 {
		w.phase, w.st.busy = phaseWake, false
		return
	}
	slices.SortStableFunc(w.batches, func(a, b *decodeBatch) int { return w.p.names[a.m.index] - w.p.names[b.m.index] })
	if ended && w.s.cfg.WorkStealing {
		w.offer()
	}
	w.quotas()
	w.turns = len(w.batches)
	w.turn()
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

// turn begins the turn of the first batch.
func (w *decodeWorker) turn() {
	if m := w.batches[0].m; m != w.loaded {
		w.tally.Switches++
		w.wait(phaseSwitch, w.gpu.load(m))
		return
	}
	w.move()
}

// move brings the KV of the batch in.
func (w *decodeWorker) move() {
	w.wait(phaseKV, toMs(float64(w.batches[0].total)*kvMsPerToken/w.s.cfg.BandwidthGBps/1000))
}

func (w *decodeWorker) begin() {
	w.usedMs = 0
	if len(w.batches[0].reqs) == 0 { // all have gone
		w.endTurn()
		return
	}
	w.form()
	w.decode()
}

// form takes what the batch holds for the coming steps.
func (w *decodeWorker) form() {
	w.running = append(w.running[:0], w.batches[0].reqs...)
	w.left = maxMsInt
	for _, r := range w.running {
		w.left = min(w.left, r.OutputTokens-r.progress)
	}
}

func (w *decodeWorker) decode() {
	b := w.batches[0]
	w.stepMs = toMs(b.m.decodeS(b.total, len(w.running)) * w.s.graph(b.m, w.running, len(w.times)))
	w.tally.Steps++
	w.s.decoded(w.id, b.m, b.total, w.stepMs)
	w.s.noteKV(b.total, b.m)
	w.wait(phaseDecode, w.stepMs)
}

// stepped is the end of a step: the turn goes on until its quota is used up, all
// are finished, or what the batch has grown to no longer fits.
func (w *decodeWorker) stepped() {
	b := w.batches[0]
	w.times = append(w.times, w.s.nowMs)
	b.total += len(w.running)
	w.usedMs += w.stepMs
	w.computeMs += w.stepMs
	w.tally.OutputTokens += int64(len(w.running))
	w.left--
	if w.s.each != nil {
		w.hand()
	}
	if w.left > 0 && len(w.running) > 0 && w.usedMs < b.quotaMs && len(w.inbox) == 0 && b.total <= b.m.capacity {
		w.decode()
		return
	}
	w.flush(b)
	w.accept()
	if w.usedMs < b.quotaMs && len(b.reqs) > 0 && b.total <= b.m.capacity {
		w.form()
		w.decode()
		return
	}
	w.endTurn()
}

// endTurn goes on with the next batch of the round, or a new round.
func (w *decodeWorker) endTurn() {
	w.tally.Turns++
	rotate(w.byModel[w.batches[0].m.index]) // it is the first of its model too
	rotate(w.batches)
	w.turns--
	if w.turns > 0 {
		w.turn()
		return
	}
	w.round()
}

// hand gives the running requests the tokens of the steps so far.
func (w *decodeWorker) hand() {
	if len(w.times) == 0 {
		return
	}
	for _, r := range w.running {
		w.s.step(r, w.times...)
	}
	w.times = w.times[:0]
}

// flush hands tokens out and removes the finished requests.
func (w *decodeWorker) flush(b *decodeBatch) {
	w.hand()
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

// offer lets an idle worker of the node take one batch over.
func (w *decodeWorker) offer() {
	if len(w.batches) < 2 {
		return
	}
	own := w.snapshot()
	var others []StealWorker
	for _, o := range w.p.decode {
		if o != w {
			others = append(others, o.snapshot())
		}
	}
	s, why := PlanSteal(own, others, w.s.cfg.StealMinGap)
	if why == "" {
		i := slices.IndexFunc(w.p.decode, func(o *decodeWorker) bool { return o.id == s.Receiver })
		receiver := w.p.decode[i]
		if why = CheckSteal(s, w.snapshot(), receiver.snapshot(), w.s.cfg.StealMinGap); why == "" {
			w.give(receiver, s.Position)
		}
	}
	w.s.steals.Count(s, why)
	w.s.note(Event{Kind: EventSteal, Worker: w.id, To: s.Receiver, Why: why})
}

func (w *decodeWorker) snapshot() StealWorker {
	out := StealWorker{ID: w.id, Loaded: -1}
	if w.loaded != nil {
		out.Loaded = w.loaded.index
	}
	for _, b := range w.batches {
		out.Batches = append(out.Batches, StealBatch{ID: b.id, Model: b.m.index, KVInHost: true})
	}
	for _, r := range w.inbox { // on its way: no longer without work
		out.Batches = append(out.Batches, StealBatch{ID: -1, Model: r.m.index, Started: true})
	}
	return out
}

// give hands a batch over, whole: it has one owner before and after.
func (w *decodeWorker) give(to *decodeWorker, position int) {
	b := w.batches[position]
	w.batches = slices.Delete(w.batches, position, position+1)
	w.byModel[b.m.index] = slices.DeleteFunc(w.byModel[b.m.index], func(o *decodeBatch) bool { return o == b })
	to.own(b)
	for _, r := range b.reqs {
		r.home = to
	}
	w.tally.Donated++
	to.tally.Received++
	if !to.st.busy {
		to.st.busy = true
		w.s.events.push(w.s.nowMs, to)
	}
}
