package loadgen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"assay/schemas"
)

const (
	// chunkBytes is about the size of a chunk of a record.
	chunkBytes = 64

	maxErrorBody = 4 << 10
	maxNamed     = 60 // bytes of a name that the service chose
	// After [DONE] the connection is only worth this much for its reuse.
	drainLimit = time.Second
	drainBytes = 64 << 10
)

// Do sends one request at once, waits for its end and returns its record; its
// scheduled time is now. The outcome is in the record: Do has no error.
func (c *Client) Do(ctx context.Context, req Request) schemas.RequestRecord {
	req.AtNs = c.now()
	rec := c.newRecord(req)
	done := make(chan struct{})
	c.launch(ctx, c.prepare(&rec, c.body(req)), func() { close(done) })
	<-done
	return rec
}

func (c *Client) newRecord(req Request) schemas.RequestRecord {
	rec := schemas.RequestRecord{
		Schema: schemas.RequestRecordV1, ID: req.ID, Index: req.Index, Model: req.Model, API: c.opts.API,
		AskedInputTokens: req.InputTokens, AskedOutputTokens: req.OutputTokens, Held: c.opts.Held,
		StampSource: StampUser, ScheduledNs: req.AtNs, Chunks: []schemas.Chunk{},
	}
	// What is known of the prompt's length before the service says anything.
	if n := req.CountedTokens; n > 0 {
		rec.InputTokens, rec.InputTokensSource = &n, "tokenizer"
	} else if c.opts.API == APICompletions && req.PromptWords == 0 && req.Text == "" && req.InputTokens > 0 {
		n := req.InputTokens
		rec.InputTokens, rec.InputTokensSource = &n, "asked" // it is sent as that many token ids
	}
	return rec
}

// notSent ends the record of a request that never left.
func (c *Client) notSent(rec schemas.RequestRecord, why string) schemas.RequestRecord {
	rec.Outcome, rec.Error, rec.EndNs = schemas.OutcomeNotSent, c.scrub(why), c.now()
	return rec
}

// hooks takes the stamps that net/http tells. Some come from other goroutines,
// even after the answer, hence atomics; 0 means never.
type hooks struct {
	got, wrote, firstByte atomic.Int64
	reused                atomic.Bool
	spare                 atomic.Bool  // a connection that was made before was taken for it
	conns                 atomic.Int64 // that it was given
}

// hooksKey is that of a request's hooks in its context.
type hooksKey struct{}

func (h *hooks) trace(now func() int64) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			h.reused.Store(info.Reused)
			h.conns.Add(1)
			h.got.Store(now())
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				h.wrote.Store(now())
			}
		},
		GotFirstResponseByte: func() { h.firstByte.CompareAndSwap(0, now()) },
	}
}

func (h *hooks) into(r *schemas.RequestRecord) {
	for _, s := range []struct {
		from *atomic.Int64
		to   **int64
	}{{&h.got, &r.ConnAcquiredNs}, {&h.wrote, &r.WroteRequestNs}, {&h.firstByte, &r.FirstByteNs}} {
		if v := s.from.Load(); v != 0 {
			*s.to = at(v)
		}
	}
	if r.ConnAcquiredNs != nil {
		reused := h.reused.Load()
		r.ConnReused = &reused
	}
}

// prepared is a request with everything done that can be before its time.
type prepared struct {
	rec    *schemas.RequestRecord
	body   []byte
	job    *job // what goes on the wire, nil for net/http
	fault  *fault
	weight int64
}

func (c *Client) prepare(rec *schemas.RequestRecord, body []byte) prepared {
	p := prepared{rec: rec, body: body}
	if c.wired() {
		p.body = nil
		p.job, p.fault = c.newJob(rec, body)
	}
	p.weight = min(int64(len(body)+cap(rec.Chunks)*chunkBytes), lookaheadBytes)
	return p
}

// launch sends a request now and returns; done is told when its record is
// complete, by a thread that it must not keep.
func (c *Client) launch(ctx context.Context, p prepared, done func()) {
	if p.job == nil {
		go func() {
			c.send(ctx, p.rec, p.body)
			done()
		}()
		return
	}
	p.job.done = done
	w, err := c.lanes()
	if err != nil && p.fault == nil {
		p.fault = classify(ctx, err, false, "connecting")
	}
	if p.fault != nil {
		p.rec.DispatchedNs = at(c.now())
		c.inFlight.Add(1)
		p.job.end(p.fault)
		go p.job.settle(false) // as any other end of a request, not within its start
		return
	}
	w.submit(ctx, p.job)
}

// send sends a request through net/http and fills in its record.
func (c *Client) send(ctx context.Context, rec *schemas.RequestRecord, body []byte) {
	rec.DispatchedNs = at(c.now())
	s := newStream(rec, c.opts.MaxEventBytes)
	s.tap, s.whole = c.opts.Tap, c.opts.Whole
	if n := c.inFlight.Add(1); n > int64(c.opts.MaxConnections) {
		c.inFlight.Add(-1)
		s.finish(&fault{schemas.OutcomeClientResource, fmt.Sprintf("%d requests were already in flight, the limit of connections", c.opts.MaxConnections)})
		rec.EndNs = c.now()
		return
	}
	defer c.inFlight.Add(-1)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	total := time.AfterFunc(c.opts.RequestTimeout, func() { cancel(&limitError{"request limit", c.opts.RequestTimeout}) })
	defer total.Stop()
	h, failure := c.tryTwice(ctx, cancel, s, body)
	rec.EndNs = c.now()
	if rec.DoneNs != nil && s.ended {
		rec.EndNs = *rec.DoneNs // what came after, for the connection's reuse, is not the request's
	}
	h.into(rec)
	s.finish(failure)
	rec.Error = c.scrub(rec.Error)
}

// tryTwice runs an exchange, and once more if the idle connection that it was given
// turned out to be closed. net/http itself takes another connection only as long as
// it wrote nothing; that is counted too.
func (c *Client) tryTwice(ctx context.Context, cancel context.CancelCauseFunc, s *stream, body []byte) (*hooks, *fault) {
	began, h := c.now(), &hooks{}
	failure, err := c.exchange(ctx, cancel, c.http, s, h, body)
	s.rec.Reconnects = int(max(0, h.conns.Load()-1))
	idle := h.reused.Load() || h.spare.Load()
	since := c.now() - max(began, h.got.Load())
	if err == nil || !brokenIdle(err) || !idle || h.firstByte.Load() != 0 || ctx.Err() != nil || since >= int64(reconnectLimit) || s.rec.Reconnects > 0 {
		return h, onAgain(failure, s.rec.Reconnects)
	}
	s.rec.Reconnects = 1
	h = &hooks{}
	failure, err = c.exchange(ctx, cancel, c.again, s, h, body)
	if err != nil {
		failure = onAgain(failure, 1)
	}
	return h, failure
}

// exchange runs one HTTP exchange and returns what went wrong, nil if nothing did.
// err is the transport's, if it had no answer.
func (c *Client) exchange(ctx context.Context, cancel context.CancelCauseFunc, by *http.Transport, s *stream, h *hooks, body []byte) (*fault, error) {
	traced := httptrace.WithClientTrace(context.WithValue(ctx, hooksKey{}, h), h.trace(c.now))
	req, err := http.NewRequestWithContext(traced, http.MethodPost, c.endpoint(), bytes.NewReader(body))
	if err != nil {
		return &fault{schemas.OutcomeProtocolError, err.Error()}, nil
	}
	req.GetBody = nil // without it the transport cannot send a request twice
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", c.answerType())
	req.Header.Set("Accept-Encoding", "identity")
	c.setHeaders(req)
	if c.opts.RequestIDs {
		req.Header.Set("X-Request-Id", s.rec.ID)
	}
	// RoundTrip, not a Client: no redirect, no cookie, no retry.
	resp, err := by.RoundTrip(req)
	if err != nil {
		return classify(ctx, err, h.got.Load() != 0, "waiting for the answer"), err
	}
	defer resp.Body.Close()
	c.opts.Tap.headers(s.rec.Index, c.now())
	s.rec.HTTPStatus = resp.StatusCode
	idle := time.AfterFunc(c.opts.IdleTimeout, func() { cancel(&limitError{"idle limit", c.opts.IdleTimeout}) })
	defer idle.Stop()
	if f := c.notStream(ctx, resp); f != nil {
		return f, nil
	}
	return c.read(ctx, resp, s, idle), nil
}

// notStream takes every answer that is not an event stream.
func (c *Client) notStream(ctx context.Context, resp *http.Response) *fault {
	if c.wanted(resp) {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil && ctx.Err() != nil {
		return classify(ctx, err, true, "reading the answer")
	}
	return c.refusal(resp, text)
}

// answerType is the content type that is asked for.
func (c *Client) answerType() string {
	if c.opts.Whole {
		return "application/json"
	}
	return "text/event-stream"
}

// wanted says whether an answer is of the kind that was asked for.
func (c *Client) wanted(head *http.Response) bool {
	if encoding(head) != "" {
		return false
	}
	said := head.Header.Get("Content-Type")
	if head.StatusCode != http.StatusOK || said == "" || said == c.answerType() {
		return head.StatusCode == http.StatusOK
	}
	kind, _, _ := mime.ParseMediaType(said)
	return kind == "" || kind == c.answerType()
}

// encoding is what an answer is encoded with, empty if its bytes are its text. None
// was asked for: a text that came compressed says nothing of when its parts were made.
func encoding(head *http.Response) string {
	said := head.Header["Content-Encoding"]
	if len(said) == 0 {
		return ""
	}
	var codes []string
	for _, code := range strings.Split(strings.Join(said, ","), ",") {
		if code = strings.TrimSpace(code); code != "" && !strings.EqualFold(code, "identity") {
			codes = append(codes, code)
		}
	}
	return strings.Join(codes, ", ")
}

// refusal is the fault of an answer that is no stream.
func (c *Client) refusal(head *http.Response, text []byte) *fault {
	if code := encoding(head); code != "" {
		if len(code) > maxNamed {
			code = code[:maxNamed]
		}
		if head.StatusCode == http.StatusOK {
			return &fault{schemas.OutcomeProtocolError, fmt.Sprintf("the answer is encoded with %q (Content-Encoding), and was asked for as it is: turn compression off at the service or at what stands before it", code)}
		}
		text = fmt.Appendf(nil, "a text encoded with %q", code)
	}
	said := fmt.Sprintf("status %d: %s", head.StatusCode, text)
	switch {
	case head.StatusCode >= 500 && head.StatusCode <= 599:
		return &fault{schemas.OutcomeHTTP5xx, said}
	case head.StatusCode >= 400 && head.StatusCode <= 499:
		return &fault{schemas.OutcomeHTTP4xx, said}
	case head.StatusCode >= 300 && head.StatusCode <= 399:
		return &fault{schemas.OutcomeProtocolError, fmt.Sprintf("status %d: redirects are not followed; give the final URL", head.StatusCode)}
	case head.StatusCode == http.StatusOK:
		kind, _, _ := mime.ParseMediaType(head.Header.Get("Content-Type"))
		return &fault{schemas.OutcomeProtocolError, fmt.Sprintf("the answer's type is %q, want %s: %s", kind, c.answerType(), text)}
	}
	return &fault{schemas.OutcomeProtocolError, said}
}

// endpoint is where requests go.
func (c *Client) endpoint() string {
	if c.opts.API == APIChat {
		return c.base + "/v1/chat/completions"
	}
	return c.base + "/v1/completions"
}

// head is the head of every request on the wire, but for its length and id.
func (c *Client) head() ([]byte, error) {
	u, err := url.Parse(c.endpoint())
	if err != nil {
		return nil, err
	}
	return headOf(u.Host, u.RequestURI(), c.answerType(), c.opts.Headers)
}

// read takes the stream to its end. Its stamps are when reads returned.
func (c *Client) read(ctx context.Context, resp *http.Response, s *stream, idle *time.Timer) *fault {
	held := bodyBuffers.Get().(*[]byte)
	defer bodyBuffers.Put(held)
	buf := *held
	seen := mark{at: c.now()}
	for {
		n, err := resp.Body.Read(buf)
		seen = mark{since: seen.at, at: c.now(), exact: n < len(buf)}
		if n > 0 {
			idle.Reset(c.opts.IdleTimeout)
			s.feed(buf[:n], seen)
		}
		switch {
		case s.fault != nil:
			return nil
		case s.ended:
			if err == nil {
				drain(resp.Body, idle, buf)
			}
			return nil
		case errors.Is(err, io.EOF):
			if ctx.Err() != nil && s.rec.FinishReason == "" {
				return classify(ctx, err, true, "reading the stream") // the end is that of a cancelled connection
			}
			s.end(seen.at, framed(resp))
			return nil
		case err != nil:
			return classify(ctx, err, true, "reading the stream")
		}
	}
}

// framed says whether the end of the body is told by its framing, rather than by
// the end of the connection, which a crash causes too.
func framed(resp *http.Response) bool {
	return resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0
}

// drain reads to the end of the body, so that the connection can be used again.
func drain(body io.Reader, idle *time.Timer, buf []byte) {
	idle.Reset(drainLimit)
	for total := 0; total < drainBytes; {
		n, err := body.Read(buf)
		if err != nil {
			return
		}
		total += n
	}
}
