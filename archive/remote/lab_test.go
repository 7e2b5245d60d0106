package remote

import (
	"context"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"assay/archive"
	"assay/schemas"
)

func newStore(t testing.TB) *archive.Store {
	t.Helper()
	s, err := archive.Create(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func noise(n int, seed byte) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return string(b)
}

// someFiles gives a run a small pack and a blob of its own of size bytes.
func someFiles(size int, seed byte) map[string]string {
	return map[string]string{"outputs/result/r.csv": "a,b\n1,2\n", "outputs/result/big.bin": noise(size, seed), "logs/stage.log": "ok\n"}
}

const bigFile = 4<<20 + 100 // a blob of its own, sent in several pieces of testChunk

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lab is a registry in this process with something between it and the client.
type lab struct {
	*httptest.Server
	t     testing.TB
	inner http.Handler

	mu     sync.Mutex
	seen   []string        // "METHOD /path?query"
	sent   int64           // bytes of request bodies that came through
	sleeps []time.Duration // that the client would have waited
}

// middleware may answer itself, or pass on with next.
type middleware func(w http.ResponseWriter, r *http.Request, next http.Handler)

func newLab(t testing.TB, m middleware, opts ...registry.Option) *lab {
	t.Helper()
	l := &lab{t: t, inner: registry.New(append([]registry.Option{registry.Logger(log.New(io.Discard, "", 0))}, opts...)...)}
	l.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.seen = append(l.seen, r.Method+" "+r.URL.RequestURI())
		l.mu.Unlock()
		r.Body = countBody{r.Body, l}
		if m == nil {
			l.inner.ServeHTTP(w, r)
			return
		}
		m(w, r, l.inner)
	}))
	l.Listener = smallBuffers{l.Listener}
	l.Start()
	t.Cleanup(l.Close)
	return l
}

// smallBuffers keeps the kernel from taking a whole blob that the server does not
// read.
type smallBuffers struct{ net.Listener }

func (s smallBuffers) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(64 << 10)
	}
	return conn, err
}

type countBody struct {
	io.ReadCloser
	l *lab
}

func (c countBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.sent += int64(n)
	return n, err
}

func (l *lab) count(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.seen {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func (l *lab) ref(rest string) Reference {
	l.t.Helper()
	return parseRef(l.t, Scheme+strings.TrimPrefix(l.URL, "http://")+"/"+rest)
}

func parseRef(t testing.TB, s string) Reference {
	t.Helper()
	r, err := Parse(s)
	must(t, err)
	return r
}

const testChunk = 1 << 20

// options do not wait, have no credentials, and send small pieces.
func (l *lab) options() Options {
	return Options{tune: &tuning{chunk: testChunk, whole: testChunk, getenv: func(string) string { return "" },
		sleep: func(ctx context.Context, d time.Duration) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.sleeps = append(l.sleeps, d)
			return ctx.Err()
		}}}
}

func wantValid(t testing.TB, s *archive.Store, run schemas.Digest) {
	t.Helper()
	v, err := s.Verify(context.Background(), run)
	must(t, err)
	if v.Verdict != archive.Valid {
		t.Fatalf("verdict %s: %+v", v.Verdict, v.Findings)
	}
}

// once is true the first n times for each key.
func once(n int) func(key string) bool {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(key string) bool {
		mu.Lock()
		defer mu.Unlock()
		seen[key]++
		return seen[key] <= n
	}
}
