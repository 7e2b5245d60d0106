package loadgen

import (
	"context"
	"errors"
	"time"

	"assay/schemas"
)

// conversations groups requests by their conversation, in order of first
// appearance; nil when none belongs to one.
func conversations(requests []Request) [][]Request {
	at := map[string]int{}
	var out [][]Request
	for _, q := range requests {
		if q.Conversation == "" {
			return nil
		}
		i, known := at[q.Conversation]
		if !known {
			i = len(out)
			at[q.Conversation] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], q)
	}
	return out
}

// converse starts each conversation at the turn of its first request. A slot is the
// whole conversation's, thinking included.
func (r *run) converse(sending, flight context.Context, talks [][]Request) {
	begun := 0
	for _, talk := range talks {
		first := r.ready(talk[0])
		if !r.turn(sending, first.rec) {
			break
		}
		begun++
		r.flight.Go(func() {
			r.talk(sending, flight, talk, first)
			if r.slots != nil {
				<-r.slots
			}
		})
	}
	for _, talk := range talks[begun:] {
		r.unsent(talk, r.whyNot(sending))
	}
}

func (r *run) ready(req Request) prepared {
	rec := r.newRecord(req)
	return r.client.prepare(&rec, r.client.body(req))
}

// talk sends the turns of a conversation, each after the answer to the one before
// and the time to think about it. The next one's body is built meanwhile.
func (r *run) talk(sending, flight context.Context, talk []Request, p prepared) {
	for k := range talk {
		answered := make(chan struct{})
		r.sent.Add(1)
		r.client.launch(flight, p, func() { close(answered) })
		var next prepared
		if k+1 < len(talk) {
			next = r.ready(talk[k+1])
		}
		<-answered
		r.markEnd(p.rec)
		end, outcome := p.rec.EndNs, p.rec.Outcome
		r.out.put(p.rec)
		switch {
		case k+1 == len(talk):
			return
		case outcome != schemas.OutcomeOK && outcome != schemas.OutcomeLengthMismatch:
			r.unsent(talk[k+1:], "the turn before it was not answered")
			return
		}
		due := end + talk[k+1].ThinkNs
		thought := r.think(sending, due)
		now, may := r.mayStart(sending)
		if !thought || !may {
			r.unsent(talk[k+1:], r.whyNot(sending))
			return
		}
		p = next
		if p.rec.ScheduledNs = due; talk[k+1].ThinkNs == 0 {
			p.rec.ScheduledNs = now
		}
	}
}

// think waits for a time; false when ctx ends before.
func (r *run) think(ctx context.Context, until int64) bool {
	left := time.Duration(until - r.client.now())
	if left <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *run) whyNot(sending context.Context) string {
	if errors.Is(context.Cause(sending), errServiceGone) {
		return "the service ended before it was due"
	}
	return "the run was stopped before it was due"
}

// unsent accounts for turns that were never due. Where time ends a loop they were
// only prepared, and have no record.
func (r *run) unsent(requests []Request, why string) {
	if r.client.opts.Until > 0 {
		return
	}
	for _, q := range requests {
		rec := r.newRecord(q)
		if rec.ScheduledNs = r.client.now(); q.Turn == 0 && r.client.opts.Concurrency == 0 {
			rec.ScheduledNs = q.AtNs
		}
		rec = r.client.notSent(rec, why)
		r.sent.Add(1)
		r.out.put(&rec)
	}
}
