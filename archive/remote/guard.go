package remote

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// guard stands between everything that is sent and the wire. It refuses plain
// HTTP, wherever a redirect or a Location leads; it ends what a registry lets hang;
// it remembers what was sent as a login, which no message may repeat. It opens a
// body anew each time: the transport above sends a request again, with its used
// body, when a token has run out.
type guard struct {
	inner  http.RoundTripper
	plain  string // host that plain HTTP is allowed to by flag; this machine always is
	stall  time.Duration
	logins *logins
	way    *way // nil for one that is not known
}

const (
	// Less than stallBytes in stallTime, while it is waited for, is as good as a
	// connection that broke.
	stallTime  = time.Minute
	stallBytes = 16 << 10
	answerTime = 2 * time.Minute // for the answer to a request without a body
	// maxHello bounds an answer to the handshake, which the library reads to its end.
	maxHello = 64 << 10
)

type ourKey struct{}

// ours marks the requests of this package; others are those of the handshake.
func ours(ctx context.Context) context.Context { return context.WithValue(ctx, ourKey{}, true) }

type stalledError struct{ what string }

func (e *stalledError) Error() string { return e.what + ": it hangs" }

// RoundTrip sends a request once.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	to := g.way.keep(r.URL)
	if err := g.allowed(to); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	g.logins.note(r.Header.Get("Authorization"))
	ctx, cancel := context.WithCancelCause(r.Context())
	again := r.WithContext(ctx)
	again.URL = to
	w := &watch{ctx: ctx, cancel: cancel, stall: g.stall, left: g.stall}
	if r.Body != nil && r.Body != http.NoBody {
		if r.GetBody != nil {
			_ = r.Body.Close()
			body, err := r.GetBody()
			if err != nil {
				cancel(nil)
				return nil, err
			}
			again.Body = body
		}
		again.Body = &sentBody{ReadCloser: again.Body, watch: w}
	} else {
		w.arm(max(g.stall, min(answerTime, 2*g.stall)), "no answer came in time")
	}
	res, err := g.inner.RoundTrip(again)
	w.disarm()
	if err != nil {
		err = w.blame(err)
		cancel(nil)
		return nil, err
	}
	var body io.Reader = res.Body
	if r.Context().Value(ourKey{}) == nil {
		body = io.LimitReader(res.Body, maxHello)
	}
	res.Body = &gotBody{Reader: body, c: res.Body, watch: w}
	return res, nil
}

// allowed refuses what must not be sent.
func (g guard) allowed(to *url.URL) error {
	switch {
	case to.Scheme != "https" && to.Scheme != "http":
		return pointless("it leads to a %s: address, which is refused", clean(to.Scheme, nil))
	case to.Scheme != "https" && to.Hostname() != g.plain && !loopback(to.Host):
		return &plainError{to.Host}
	}
	return nil
}

// watch ends a request that hangs. It counts only while the other side is waited
// for.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration

	mu    sync.Mutex
	timer *time.Timer
	left  time.Duration // of stall, for the next stallBytes
	got   int
}

func (w *watch) arm(d time.Duration, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = time.AfterFunc(d, func() { w.cancel(&stalledError{what}) })
}

func (w *watch) disarm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// blame names the watch as the cause of an error, if it is.
func (w *watch) blame(err error) error {
	var hung *stalledError
	if err != nil && errors.As(context.Cause(w.ctx), &hung) {
		return hung
	}
	return err
}

// sentBody is watched while the transport takes its time between reads.
type sentBody struct {
	io.ReadCloser
	*watch
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.disarm()
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		b.arm(b.stall, fmt.Sprintf("nothing more was taken for %s", b.stall))
	}
	return n, err
}

func (b *sentBody) Close() error {
	b.disarm()
	return b.ReadCloser.Close()
}

// gotBody is watched while it is read.
type gotBody struct {
	io.Reader
	c io.Closer
	*watch
}

func (b *gotBody) Read(p []byte) (int, error) {
	b.arm(b.left, fmt.Sprintf("less than %d bytes came in %s", stallBytes, b.stall))
	began := time.Now()
	n, err := b.Reader.Read(p)
	b.disarm()
	b.left -= time.Since(began)
	if b.got += n; b.got >= stallBytes {
		b.got, b.left = 0, b.stall
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.blame(err)
	}
	return n, err
}

func (b *gotBody) Close() error {
	err := b.c.Close()
	b.cancel(nil)
	return err
}

// logins are what was sent as one.
type logins struct {
	mu   sync.Mutex
	list []string
}

const maxLogins = 32

// note takes an Authorization header. Tokens change, so the last ones count.
func (l *logins) note(header string) {
	scheme, value, ok := strings.Cut(header, " ")
	if l == nil || !ok || len(value) < 4 {
		return
	}
	texts := []string{value}
	if plain, err := base64.StdEncoding.DecodeString(value); err == nil && strings.EqualFold(scheme, "basic") {
		if _, pass, ok := strings.Cut(string(plain), ":"); ok && len(pass) > 0 {
			texts = append(texts, pass)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range texts {
		if !slices.Contains(l.list, t) {
			l.list = append(l.list, t)
		}
	}
	l.list = l.list[max(0, len(l.list)-maxLogins):]
}

// all returns them with what else must not be said.
func (l *logins) all(more []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(more, l.list)
}
