package loadgen

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"assay/schemas"
)

// fickle is a server on whose connections a function has full say.
type fickle struct {
	url      string
	accepted atomic.Int64
	tls      *tls.Config // of a client that trusts it, nil without TLS
	shut     func()      // refuses connections from now on
}

// serveConns gives each connection to on, and closes it when that returns. n is its
// number, from 1.
func serveConns(t testing.TB, secure bool, on func(n int64, conn net.Conn, r *bufio.Reader)) *fickle {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f := &fickle{url: "http://" + l.Addr().String(), shut: func() { l.Close() }}
	var serverTLS *tls.Config
	if secure {
		s := httptest.NewTLSServer(http.NotFoundHandler())
		t.Cleanup(s.Close)
		serverTLS = &tls.Config{Certificates: s.TLS.Certificates}
		f.tls = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		f.url = "https://" + l.Addr().String()
	}
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			n := f.accepted.Add(1)
			go func() {
				conn := raw
				defer raw.Close()
				if serverTLS != nil {
					conn = tls.Server(raw, serverTLS)
				}
				on(n, conn, bufio.NewReader(conn))
			}()
		}
	}()
	return f
}

func (f *fickle) client(t testing.TB, opts Options) *Client {
	t.Helper()
	opts.BaseURL = f.url
	c := newClient(t, opts)
	if f.tls != nil {
		c.http.TLSClientConfig = f.tls
		c.again.TLSClientConfig = f.tls
	}
	return c
}

// takeRequest reads one request.
func takeRequest(r *bufio.Reader) error {
	req, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	buf := make([]byte, 4096)
	for err == nil {
		_, err = req.Body.Read(buf)
	}
	return nil
}

// wholeAnswer is a proper answer whose end its framing tells, and which keeps the
// connection.
func wholeAnswer(events ...string) string {
	var body strings.Builder
	for _, e := range events {
		fmt.Fprintf(&body, "data: %s\n\n", e)
	}
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", body.Len(), body.String())
}

func bothWays(t *testing.T, f func(t *testing.T, secure bool)) {
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "own transport", true: "net/http"}[secure], func(t *testing.T) { f(t, secure) })
	}
}

// A service that closes an idle connection as the next request is sent on it has
// answered nothing: the request goes out again on a connection of its own.
func TestClosedIdleConnections(t *testing.T) {
	bothWays(t, func(t *testing.T, secure bool) {
		for _, delay := range []time.Duration{0, 20 * time.Microsecond, 200 * time.Microsecond, 2 * time.Millisecond} {
			f := serveConns(t, secure, func(_ int64, conn net.Conn, r *bufio.Reader) {
				if takeRequest(r) != nil {
					return
				}
				fmt.Fprint(conn, wholeAnswer(answerOf(3)...))
				for began := time.Now(); time.Since(began) < delay; { // a sleep would be far longer
				}
			})
			c := f.client(t, Options{})
			for i := range 40 {
				r := c.Do(context.Background(), request(i, 3))
				proper(t, r)
				if r.Outcome != schemas.OutcomeOK || r.Reconnects > 1 {
					t.Fatalf("delay %s, request %d: %s %q after %d reconnects", delay, i, r.Outcome, r.Error, r.Reconnects)
				}
				if r.Reconnects == 1 && (*r.ConnReused || *r.ConnAcquiredNs < *r.DispatchedNs) {
					t.Fatalf("%+v", r)
				}
			}
		}
	})
}

// The connection is closed, or reset, when the service has the second request: what
// no look at an idle connection can foresee.
func TestReconnectsOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, secure bool) {
		for _, reset := range []bool{false, true} {
			f := serveConns(t, secure, func(_ int64, conn net.Conn, r *bufio.Reader) {
				if takeRequest(r) != nil {
					return
				}
				fmt.Fprint(conn, wholeAnswer(answerOf(3)...))
				if takeRequest(r) == nil && reset {
					resetOnClose(conn)
				}
			})
			c := f.client(t, Options{RequestIDs: true})
			for i := range 6 {
				r := c.Do(context.Background(), request(i, 3))
				proper(t, r)
				if r.Outcome != schemas.OutcomeOK || i < 2 && r.Reconnects != i {
					t.Fatalf("reset %v, request %d: %s %q, %d reconnects", reset, i, r.Outcome, r.Error, r.Reconnects)
				}
				if r.Reconnects == 1 && *r.ConnReused {
					t.Errorf("request %d says that its connection was used before: %+v", i, r)
				}
			}
		}
	})
}

func resetOnClose(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	conn.(*net.TCPConn).SetLinger(0)
}

// One that never answers is a reset, after one more try at most and none where the
// connection was made for the request.
func TestNeverAnswering(t *testing.T) {
	bothWays(t, func(t *testing.T, secure bool) {
		f := serveConns(t, secure, func(n int64, conn net.Conn, r *bufio.Reader) {
			if takeRequest(r) == nil && n == 1 {
				fmt.Fprint(conn, wholeAnswer(answerOf(3)...))
				takeRequest(r) //nolint:errcheck // then it closes
			}
		})
		c := f.client(t, Options{})
		for i, want := range []schemas.Outcome{schemas.OutcomeOK, schemas.OutcomeReset, schemas.OutcomeReset} {
			r := c.Do(context.Background(), request(i, 3))
			proper(t, r)
			if r.Outcome != want || r.Reconnects != map[int]int{1: 1}[i] {
				t.Errorf("request %d: %s %q, %d reconnects", i, r.Outcome, r.Error, r.Reconnects)
			}
			if i == 1 && !strings.Contains(r.Error, "second connection") {
				t.Errorf("the error does not tell of the second try: %q", r.Error)
			}
		}
		if n := f.accepted.Load(); n != 3 {
			t.Errorf("%d connections", n)
		}
	})
}

// Nothing is sent twice once a byte of the answer came.
func TestNoReconnectAfterAByte(t *testing.T) {
	bothWays(t, func(t *testing.T, secure bool) {
		f := serveConns(t, secure, func(_ int64, conn net.Conn, r *bufio.Reader) {
			if takeRequest(r) == nil {
				fmt.Fprint(conn, wholeAnswer(answerOf(3)...))
				takeRequest(r) //nolint:errcheck // the test fails if it does not come
				fmt.Fprint(conn, "H")
			}
		})
		c := f.client(t, Options{})
		c.Do(context.Background(), request(0, 3))
		r := c.Do(context.Background(), request(1, 3))
		proper(t, r)
		if r.Outcome == schemas.OutcomeOK || r.Reconnects != 0 || f.accepted.Load() != 1 {
			t.Errorf("%s %q, %d reconnects, %d connections", r.Outcome, r.Error, r.Reconnects, f.accepted.Load())
		}
	})
}

// A connection that was made before is replaced as one that was used is.
func TestPredialledConnectionClosed(t *testing.T) {
	bothWays(t, func(t *testing.T, secure bool) {
		f := serveConns(t, secure, func(n int64, conn net.Conn, r *bufio.Reader) {
			if n == 1 { // it takes the request, or the greeting of TLS, and leaves
				if secure {
					conn.(*tls.Conn).NetConn().Read(make([]byte, 1)) //nolint:errcheck // then it closes
				} else {
					takeRequest(r) //nolint:errcheck // then it closes
				}
				return
			}
			if takeRequest(r) == nil {
				fmt.Fprint(conn, wholeAnswer(answerOf(3)...))
			}
		})
		pool, err := Predial(context.Background(), f.url, 1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		c := f.client(t, Options{Pool: pool})
		r := c.Do(context.Background(), request(0, 3))
		proper(t, r)
		if r.Outcome != schemas.OutcomeOK || r.Reconnects != 1 || f.accepted.Load() != 2 {
			t.Errorf("%s %q, %d reconnects, %d connections", r.Outcome, r.Error, r.Reconnects, f.accepted.Load())
		}
	})
}

// A service that took the request and dropped it much later failed; that is not
// made good.
func TestALateEndIsNoReconnect(t *testing.T) {
	job := &job{c: newClient(t, Options{BaseURL: "http://127.0.0.1:1"}), ctx: context.Background(), pooled: true, got: 1, limit: 1 << 60}
	job.c.opts.Anchor = time.Now().Add(-reconnectLimit / 2)
	if !job.again() {
		t.Error("not again soon after the send")
	}
	job.c.opts.Anchor = time.Now().Add(-2 * reconnectLimit)
	if job.again() {
		t.Error("again long after the send")
	}
}

// Where the second connection cannot be made, the record says so.
func TestReconnectRefused(t *testing.T) {
	bothWays(t, func(t *testing.T, secure bool) {
		var shut atomic.Pointer[func()]
		f := serveConns(t, secure, func(_ int64, conn net.Conn, r *bufio.Reader) {
			if takeRequest(r) == nil {
				fmt.Fprint(conn, wholeAnswer(answerOf(3)...))
				takeRequest(r) //nolint:errcheck // then it closes
				(*shut.Load())()
			}
		})
		shut.Store(&f.shut)
		c := f.client(t, Options{})
		c.Do(context.Background(), request(0, 3))
		r := c.Do(context.Background(), request(1, 3))
		proper(t, r)
		if r.Outcome != schemas.OutcomeRefused || r.Reconnects != 1 || !strings.Contains(r.Error, "second connection") {
			t.Errorf("%s %q, %d reconnects", r.Outcome, r.Error, r.Reconnects)
		}
	})
}

// What a service says before it is asked is not the answer to what is asked next.
func TestSpeaksOutOfTurn(t *testing.T) {
	said := make(chan struct{}, 1)
	f := serveConns(t, false, func(n int64, conn net.Conn, r *bufio.Reader) {
		for takeRequest(r) == nil {
			fmt.Fprint(conn, wholeAnswer(answerOf(3)...))
			if n == 1 {
				fmt.Fprint(conn, wholeAnswer(textEvent("of nobody"), lastEvent, doneEvent))
				said <- struct{}{}
			}
		}
	})
	c := f.client(t, Options{})
	for i := range 2 {
		r := c.Do(context.Background(), request(i, 3))
		proper(t, r)
		if r.Outcome != schemas.OutcomeOK || len(r.Chunks) != 3 {
			t.Errorf("request %d: %s %q with %d chunks", i, r.Outcome, r.Error, len(r.Chunks))
		}
		if i == 0 {
			<-said
		}
	}
}

func TestReconnectsAreCounted(t *testing.T) {
	var tally StampTally
	sent := int64(1)
	for _, n := range []int{0, 1, 1} {
		tally.Add(&schemas.RequestRecord{DispatchedNs: &sent, Reconnects: n})
	}
	var v schemas.ClientVerdict
	if tally.Judge(&v); v.Reconnects != 2 {
		t.Errorf("%d", v.Reconnects)
	}
}

func TestBrokenIdle(t *testing.T) {
	for text, want := range map[string]bool{"http: server closed idle connection": true, "net/http: cannot rewind body after connection loss": true, "malformed HTTP response": false} {
		if got := brokenIdle(errors.New(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
