package loadgen

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"assay/schemas"
)

// job is one request on a wire, from its bytes to its record. But for what is
// atomic, only the lane of its connection touches it once it is under way.
type job struct {
	c      *Client
	ctx    context.Context
	s      *stream
	out    []byte // the request as it goes out, head and body
	done   func() // told once, from the lane, when the record is settled
	limit  int64  // when the request limit passes
	got    int64  // when a connection was had, 0 for never
	reused bool
	pooled bool         // its connection was idle before, and not made for it
	tries  int          // connections that were closed before they answered
	wrote  atomic.Int64 // when all of it was written, 0 for not yet

	answer   response
	judged   bool
	refused  bool   // the answer is no stream
	said     []byte // of such an answer
	first    int64  // stamp of the first byte
	idle     int64  // when the idle limit passes, 0 before the answer's head
	unstated bool   // a receive came without a stamp of the kernel's
	draining int64  // until when the rest of an ended stream is waited for
	drained  int
	over     bool
	failure  *fault
}

// newJob prepares everything of a request that can be before its time.
func (c *Client) newJob(rec *schemas.RequestRecord, body []byte) (*job, *fault) {
	j := &job{c: c, s: newStream(rec, c.opts.MaxEventBytes)}
	j.s.tap, j.s.whole = c.opts.Tap, c.opts.Whole
	head := slices.Clone(c.requestHead)
	if c.opts.RequestIDs {
		if strings.ContainsFunc(rec.ID, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			return j, &fault{schemas.OutcomeProtocolError, "the request's id cannot be a header: " + strconv.Quote(rec.ID)}
		}
		head = append(append(append(head, "X-Request-Id: "...), rec.ID...), "\r\n"...)
	}
	head = append(strconv.AppendInt(append(head, "Content-Length: "...), int64(len(body)), 10), "\r\n\r\n"...)
	j.out = append(slices.Grow(head, len(body)), body...)
	return j, nil
}

// during says what is going on, for an error's text.
func (j *job) during() string {
	switch {
	case !j.judged:
		return "waiting for the answer"
	case j.refused:
		return "reading the answer"
	}
	return "reading the stream"
}

func (j *job) end(failure *fault) { j.over, j.failure = true, failure }

// take is one receive. It may overwrite b.
func (j *job) take(b []byte, m mark, now int64) {
	if j.first == 0 {
		j.first = m.at
	}
	body, err := j.answer.feed(b)
	if !j.judged && j.answer.head != nil {
		j.judge(now)
	}
	if j.judged {
		j.idle = now + int64(j.c.opts.IdleTimeout)
	}
	switch {
	case !j.judged:
	case j.refused:
		j.said = append(j.said, body[:min(len(body), maxErrorBody-len(j.said))]...)
	case j.draining != 0:
		j.drained += len(body)
	default:
		j.s.feed(body, m)
	}
	j.settleOn(err, m.at, now)
}

// settleOn decides whether the exchange is over after a receive.
func (j *job) settleOn(err error, at, now int64) {
	switch {
	case j.s.fault != nil:
		j.end(nil)
	case j.s.ended:
		if err != nil || j.answer.done() || j.drained > drainBytes {
			j.end(nil)
		} else if j.draining == 0 {
			j.draining = now + int64(drainLimit)
		}
	case j.refused && (err != nil || j.answer.done() || len(j.said) >= maxErrorBody):
		j.end(j.c.refusal(j.answer.head, j.said))
	case err != nil:
		j.end(classify(j.ctx, err, true, j.during()))
	case !j.refused && j.answer.done():
		j.s.end(at, true)
		j.end(nil)
	}
}

func (j *job) judge(now int64) {
	head := j.answer.head
	j.c.opts.Tap.headers(j.s.rec.Index, now)
	j.judged, j.s.rec.HTTPStatus = true, head.StatusCode
	j.refused = !j.c.wanted(head)
}

// eof is the end of the connection.
func (j *job) eof(now int64) {
	err := j.answer.eof()
	switch {
	case j.s.ended:
		j.end(nil)
	case j.refused:
		j.end(j.c.refusal(j.answer.head, j.said))
	case err == nil:
		j.s.end(now, false)
		j.end(nil)
	default:
		j.end(j.told(classify(j.ctx, err, true, j.during())))
	}
}

// broken is the end of the connection by an error.
func (j *job) broken(err error) {
	switch {
	case j.s.ended:
		j.end(nil)
	case j.refused:
		j.end(j.c.refusal(j.answer.head, j.said))
	default:
		j.end(j.told(classify(j.ctx, err, true, j.during())))
	}
}

// expire ends the exchange if a limit passed.
func (j *job) expire(now int64) {
	var limit *limitError
	switch {
	case j.ctx.Err() != nil:
		j.end(classify(j.ctx, j.ctx.Err(), true, j.during()))
		return
	case j.draining != 0 && now >= j.draining:
		j.end(nil)
		return
	case now >= j.limit:
		limit = &limitError{"request limit", j.c.opts.RequestTimeout}
	case j.idle != 0 && now >= j.idle:
		limit = &limitError{"idle limit", j.c.opts.IdleTimeout}
	default:
		return
	}
	j.end(&fault{schemas.OutcomeTimeout, limit.Error() + " while " + j.during()})
}

// settle completes the record and tells of it.
func (j *job) settle(stamped bool) {
	rec, now := j.s.rec, j.c.now()
	rec.EndNs = now
	if rec.DoneNs != nil && j.s.ended {
		rec.EndNs = *rec.DoneNs // what came after, for the connection's reuse, is not the request's
	}
	if j.got != 0 {
		reused := j.reused
		rec.ConnAcquiredNs, rec.ConnReused = at(j.got), &reused
	}
	if j.first != 0 {
		rec.FirstByteNs = at(j.first)
		if stamped && !j.unstated {
			rec.StampSource = StampKernel
		}
	}
	if wrote := j.wrote.Load(); wrote != 0 {
		rec.WroteRequestNs = at(wrote)
	}
	rec.Reconnects = j.tries
	j.s.finish(j.failure)
	rec.Error = j.c.scrub(rec.Error)
	j.c.inFlight.Add(-1)
	j.done()
}

// errInjected refuses headers that would say something else on the wire.
var errInjected = errors.New("holds a character that no header may")

// headOf is the part of every request's head that is the same.
func headOf(host, target, accept string, headers http.Header) ([]byte, error) {
	var b strings.Builder
	b.WriteString("POST " + target + " HTTP/1.1\r\nHost: " + host + "\r\n")
	all := http.Header{"User-Agent": {"assay"}, "Content-Type": {"application/json"}, "Accept": {accept}, "Accept-Encoding": {"identity"}}
	for name, values := range headers {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r) }) {
			return nil, errors.New("a header's name is not one: " + strconv.Quote(name))
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return nil, errors.Join(errors.New("header "+name), errInjected)
			}
		}
		all[http.CanonicalHeaderKey(name)] = values // in the place of ours, as net/http has it
	}
	if err := all.Write(&b); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}
