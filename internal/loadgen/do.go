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
	"sync/atomic"
	"time"

	"assay/schemas"
)

const (
	maxErrorBody = 4 << 10
	// After [DONE] the connection is only worth this much for its reuse.
	drainLimit = time.Second
	drainBytes = 64 << 10
)

// Do sends one request at once, waits for its end and returns its record; its
// scheduled time is now. The outcome is in the record: Do has no error.
func (c *Client) Do(ctx context.Context, req Request) schemas.RequestRecord {
	req.AtNs = c.now()
	rec := c.newRecord(req)
	c.send(ctx, &rec, c.body(req))
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
	} else if c.opts.API == APICompletions && req.PromptWords == 0 && req.Text == "" {
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
	fills                 atomic.Pointer[fills] // nil: the connection is not stamped
}

func (h *hooks) trace(now func() int64) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			at := now()
			h.reused.Store(info.Reused)
			h.got.CompareAndSwap(0, at)
			if conn, ok := info.Conn.(*stampConn); ok {
				h.fills.Store(conn.begin(at))
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				h.wrote.CompareAndSwap(0, now())
			}
		},
		GotFirstResponseByte: func() { h.firstByte.CompareAndSwap(0, now()) },
	}
}

func (h *hooks) into(r *schemas.RequestRecord) {
	if f := h.fills.Load(); f != nil {
		source, first := f.source()
		r.StampSource = source
		if first != 0 {
			h.firstByte.Store(first)
		}
	}
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

// send dispatches a request and fills in its record.
func (c *Client) send(ctx context.Context, rec *schemas.RequestRecord, body []byte) {
	rec.DispatchedNs = at(c.now())
	s := newStream(rec, c.opts.MaxEventBytes)
	s.tap = c.opts.Tap
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
	h := &hooks{}
	failure := c.exchange(ctx, cancel, s, h, body)
	rec.EndNs = c.now()
	if rec.DoneNs != nil && s.ended {
		rec.EndNs = *rec.DoneNs // what came after, for the connection's reuse, is not the request's
	}
	h.into(rec)
	s.finish(failure)
	rec.Error = c.scrub(rec.Error)
}

// exchange runs one HTTP exchange and returns what went wrong, nil if nothing did.
func (c *Client) exchange(ctx context.Context, cancel context.CancelCauseFunc, s *stream, h *hooks, body []byte) *fault {
	path := "/v1/completions"
	if c.opts.API == APIChat {
		path = "/v1/chat/completions"
	}
	traced := httptrace.WithClientTrace(ctx, h.trace(c.now))
	req, err := http.NewRequestWithContext(traced, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return &fault{schemas.OutcomeProtocolError, err.Error()}
	}
	req.GetBody = nil // without it the transport cannot send a request twice
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	c.setHeaders(req)
	if c.opts.RequestIDs {
		req.Header.Set("X-Request-Id", s.rec.ID)
	}
	// RoundTrip, not a Client: no redirect, no cookie, no retry.
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return classify(ctx, err, h.got.Load() != 0, "waiting for the answer")
	}
	defer resp.Body.Close()
	c.opts.Tap.headers(s.rec.Index, c.now())
	s.rec.HTTPStatus = resp.StatusCode
	idle := time.AfterFunc(c.opts.IdleTimeout, func() { cancel(&limitError{"idle limit", c.opts.IdleTimeout}) })
	defer idle.Stop()
	if f := c.notStream(ctx, resp); f != nil {
		return f
	}
	return c.read(ctx, resp, s, h.fills.Load(), idle)
}

// notStream takes every answer that is not an event stream.
func (c *Client) notStream(ctx context.Context, resp *http.Response) *fault {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && (kind == "text/event-stream" || kind == "") {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil && ctx.Err() != nil {
		return classify(ctx, err, true, "reading the answer")
	}
	said := fmt.Sprintf("status %d: %s", resp.StatusCode, text)
	switch {
	case resp.StatusCode >= 500 && resp.StatusCode <= 599:
		return &fault{schemas.OutcomeHTTP5xx, said}
	case resp.StatusCode >= 400 && resp.StatusCode <= 499:
		return &fault{schemas.OutcomeHTTP4xx, said}
	case resp.StatusCode >= 300 && resp.StatusCode <= 399:
		return &fault{schemas.OutcomeProtocolError, fmt.Sprintf("status %d: redirects are not followed; give the final URL", resp.StatusCode)}
	case resp.StatusCode == http.StatusOK:
		return &fault{schemas.OutcomeProtocolError, fmt.Sprintf("the answer's type is %q, want text/event-stream: %s", kind, text)}
	}
	return &fault{schemas.OutcomeProtocolError, said}
}

// read takes the stream to its end. f tells when its bytes arrived; nil means that
// only the return of the read does.
func (c *Client) read(ctx context.Context, resp *http.Response, s *stream, f *fills, idle *time.Timer) *fault {
	held := bodyBuffers.Get().(*[]byte)
	defer bodyBuffers.Put(held)
	buf := *held
	seen := mark{at: c.now()}
	for {
		n, err := resp.Body.Read(buf)
		if f != nil {
			seen = f.take()
		} else {
			seen = mark{since: seen.at, at: c.now(), exact: n < len(buf)}
		}
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
