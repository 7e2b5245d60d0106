package observe

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// headerBytes bounds the head of an answer.
const headerBytes = 64 << 10

// endpoint is one connection to a service. It is used by one goroutine, and reads
// and writes on that goroutine alone: its thread's processor time is all that it
// costs. No proxy, no redirect, no compression.
type endpoint struct {
	base    *url.URL
	timeout time.Duration
	headers http.Header         // of every question, in canonical form
	hide    func(string) string // cuts secrets out of what an answer says

	nc    net.Conn
	limit io.LimitedReader // around nc
	rd    *bufio.Reader
	buf   []byte // of the last body
	// unwatch ends the watch over the context of the request at hand.
	unwatch func() bool
}

func (o Options) endpoint(timeout time.Duration) (*endpoint, error) {
	e, err := newEndpoint(o.URL, timeout)
	if err != nil {
		return nil, err
	}
	e.headers = o.Key.Header()
	if o.Hide != nil {
		e.hide = o.Hide
	}
	return e, nil
}

func newEndpoint(base string, timeout time.Duration) (*endpoint, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the service has no http URL")
	}
	return &endpoint{base: u, timeout: timeout, hide: func(s string) string { return s }}, nil
}

func (e *endpoint) close() {
	e.leave()
	if e.nc != nil {
		e.nc.Close()
		e.nc = nil
	}
}

// leave ends the watch over a context, so that its end spoils no later request.
func (e *endpoint) leave() {
	if e.unwatch != nil {
		e.unwatch()
		e.unwatch = nil
	}
}

func (e *endpoint) dial(ctx context.Context) error {
	host := e.base.Host
	if e.base.Port() == "" {
		host = net.JoinHostPort(e.base.Hostname(), map[string]string{"http": "80", "https": "443"}[e.base.Scheme])
	}
	d := net.Dialer{}
	nc, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	if e.base.Scheme == "https" {
		nc = tls.Client(nc, &tls.Config{ServerName: e.base.Hostname(), MinVersion: tls.VersionTLS12})
	}
	e.nc = nc
	e.limit = io.LimitedReader{R: nc}
	e.rd = bufio.NewReaderSize(&e.limit, 64<<10)
	return nil
}

// statusError is an answer with another status than the one wanted.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("status %d", e.status)
	if e.body != "" {
		text += ": " + e.body
	}
	return text
}

// readInto is io.ReadAll into a buffer that is used again and again.
func readInto(b []byte, r io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, max(4096, len(b)/2))
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// get returns the body of an answer with status 200, of at most limit bytes.
func (e *endpoint) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	return e.do(ctx, http.MethodGet, path, http.StatusOK, limit)
}

// do sends a request and returns the body of the answer, which must have the
// status that is wanted and at most limit bytes. It takes no longer than the
// endpoint's timeout. The body stands until the next call. Errors name no address:
// they are archived.
func (e *endpoint) do(ctx context.Context, method, path string, want int, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	defer e.leave()
	resp, err := e.ask(ctx, method, path, limit) //nolint:bodyclose // it would read on; the connection is closed instead
	if err != nil {
		e.close()
		return nil, e.plain(ctx, err)
	}
	body, err := readInto(e.buf[:0], io.LimitReader(resp.Body, limit+1))
	e.buf = body
	switch {
	case int64(len(body)) > limit:
		err = fmt.Errorf("the answer is larger than %d bytes", limit)
	case err == nil && e.limit.N <= 0:
		err = errors.New("the answer's framing is larger than what it frames")
	}
	if err != nil {
		e.close()
		return nil, e.plain(ctx, err)
	}
	if resp.Close {
		e.close()
	}
	if resp.StatusCode != want {
		return nil, &statusError{resp.StatusCode, firstLine(body, e.hide)}
	}
	return body, nil
}

// ask sends a request and reads the head of its answer. A connection that the
// service has closed since its last answer is made anew, once.
func (e *endpoint) ask(ctx context.Context, method, path string, limit int64) (*http.Response, error) {
	for kept := e.nc != nil; ; kept = false {
		resp, err := e.askOnce(ctx, method, path, limit)
		if err == nil || !kept || ctx.Err() != nil {
			return resp, err
		}
		e.close()
	}
}

func (e *endpoint) askOnce(ctx context.Context, method, path string, limit int64) (*http.Response, error) {
	ref, err := url.Parse(path)
	if err != nil || ref.Host != "" || !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("path %q: want one that begins with /", path)
	}
	if e.nc == nil {
		if err := e.dial(ctx); err != nil {
			return nil, err
		}
	}
	nc := e.nc
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Time{}
	}
	if err := nc.SetDeadline(deadline); err != nil {
		return nil, err
	}
	// Ends a read that waits, until the body was read.
	e.leave()
	e.unwatch = context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	req, err := http.NewRequestWithContext(ctx, method, e.base.Scheme+"://"+e.base.Host+strings.TrimRight(e.base.Path, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range e.headers {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "assay-observe")
	req.Header.Set("Accept", "*/*")
	if err := req.Write(nc); err != nil {
		return nil, err
	}
	e.limit.N = headerBytes
	resp, err := http.ReadResponse(e.rd, req)
	if err != nil {
		return nil, err
	}
	// Chunked framing may cost as much again.
	e.limit.N = 2*limit + headerBytes
	return resp, nil
}

// plain words an error without addresses.
func (e *endpoint) plain(ctx context.Context, err error) error {
	var op *net.OpError
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded), ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no whole answer within %s", e.timeout)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &op):
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}

// hintBytes is what is looked at of a body for a message.
const hintBytes = 4 << 10

// firstLine is the beginning of a body, for a message. It is cut when secrets are
// out of it: a part of one cannot be told.
func firstLine(b []byte, hide func(string) string) string {
	text, _, _ := strings.Cut(strings.TrimSpace(hide(string(b[:min(len(b), hintBytes)]))), "\n")
	return strings.ToValidUTF8(text[:min(len(text), 200)], "\uFFFD")
}
