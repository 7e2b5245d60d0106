package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/archive"
	"assay/schemas"
)

// gate stands before a registry and counts the bytes that are sent to it. From
// the moment that stop says so it lets nothing more through, until it is opened.
type gate struct {
	*httptest.Server
	mu     sync.Mutex
	sent   int64
	came   int64 // bytes of answers
	slow   int64 // answers stop after so many, 0 for never
	pieces int
	closed bool
	// stop is asked before each piece and after each read of a body.
	stop    func(sent int64, pieces int, inBody bool) bool
	reached chan struct{}
	open    chan struct{}
}

func newGate(t testing.TB, host string, stop func(int64, int, bool) bool) *gate {
	t.Helper()
	g := &gate{stop: stop, reached: make(chan struct{}), open: make(chan struct{})}
	rp := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	rp.ModifyResponse = func(res *http.Response) error {
		res.Body = answered{res.Body, g}
		return nil
	}
	rp.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 { // wrapping no body would make it a chunked one
			if g.pass(0, r.Method == http.MethodPatch, false) != nil {
				panic(http.ErrAbortHandler) // nobody waits for the answer any more
			}
			r.Body = gated{r.Body, g}
		}
		rp.ServeHTTP(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

type answered struct {
	io.ReadCloser
	g *gate
}

func (a answered) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	a.g.mu.Lock()
	a.g.came += int64(n)
	stop := a.g.slow > 0 && a.g.came > a.g.slow
	a.g.mu.Unlock()
	if stop {
		<-a.g.open
	}
	return n, err
}

// pass counts. When the gate is shut it waits, and what waited is dropped.
func (g *gate) pass(n int, piece, inBody bool) error {
	g.mu.Lock()
	g.sent += int64(n)
	if piece {
		g.pieces++
	}
	if !g.closed && g.stop != nil && g.stop(g.sent, g.pieces, inBody) {
		g.closed = true
		close(g.reached)
	}
	wait := g.closed
	g.mu.Unlock()
	if wait {
		<-g.open
		return io.ErrUnexpectedEOF
	}
	return nil
}

// reopen lets everything through, and returns what was sent so far.
func (g *gate) reopen() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	sent := g.sent
	g.sent, g.slow, g.closed, g.stop = 0, 0, false, nil
	close(g.open)
	return sent
}

type gated struct {
	io.ReadCloser
	g *gate
}

func (b gated) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	if held := b.g.pass(n, false, true); held != nil {
		return n, held
	}
	return n, err
}

// TestMain is also a push that a test kills.
func TestMain(m *testing.M) {
	if at := os.Getenv("ASSAY_TEST_PUSH"); at != "" {
		fmt.Fprintln(os.Stderr, pushForTest(at))
		os.Exit(1)
	}
	if at := os.Getenv("ASSAY_TEST_PULL"); at != "" {
		fmt.Fprintln(os.Stderr, pullForTest(at))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func pushForTest(at string) error {
	s, err := archive.Open(os.Getenv("ASSAY_TEST_STORE"))
	if err != nil {
		return err
	}
	ref, err := Parse(at)
	if err != nil {
		return err
	}
	_, err = Push(context.Background(), s.Layout, schemas.Digest(os.Getenv("ASSAY_TEST_RUN")), ref, PushOptions{Options: noLogin(), Sessions: filepath.Join(s.Dir(), "uploads")})
	return err
}

func pullForTest(at string) error {
	s, err := archive.Open(os.Getenv("ASSAY_TEST_STORE"))
	if err != nil {
		return err
	}
	ref, err := Parse(at)
	if err != nil {
		return err
	}
	_, err = Pull(context.Background(), s, ref, PullOptions{Options: noLogin()})
	return err
}

// killPull kills a pulling process when it has stored some blobs, and pulls again.
// It returns the bytes of the blobs that were not there and the bytes that came
// then.
func killPull(t *testing.T, reg realRegistry, run schemas.Digest, list []archive.BlobRef, after int64) (missing, came int64) {
	t.Helper()
	g := newGate(t, reg.host, nil)
	at := Scheme + strings.TrimPrefix(g.URL, "http://") + "/lab/runs:base"
	into := newStore(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "ASSAY_TEST_PULL="+at, "ASSAY_TEST_STORE="+into.Dir())
	must(t, child.Start())
	stored := func() (n int64) {
		for _, b := range list {
			if info, err := os.Stat(filepath.Join(into.Dir(), "blobs/sha256", b.Digest.Hex())); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	for limit := time.Now().Add(5 * time.Minute); stored() < after; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Error("the pull does not get on")
			break
		}
	}
	must(t, child.Process.Kill())
	_ = child.Wait()
	if into.HasRun(context.Background(), run) {
		t.Error("the run is in the store before all of it is")
	}
	var total int64
	for _, b := range list {
		total += b.Size
	}
	missing = total - stored()
	g.mu.Lock()
	first := g.came
	g.came = 0
	g.mu.Unlock()
	into, err := archive.Open(into.Dir()) // what the dead process left is swept
	must(t, err)
	_, err = Pull(context.Background(), into, parseRef(t, at), PullOptions{Options: noLogin()})
	must(t, err)
	g.mu.Lock()
	came = g.came
	g.mu.Unlock()
	t.Logf("pull: %d bytes; killed after %d had come, when blobs of %d bytes were missing; then %d came", total, first, missing, came)
	wantValid(t, into, run)
	report, err := into.Fsck(context.Background(), archive.FsckOptions{})
	must(t, err)
	if len(report.Findings) > 0 {
		t.Errorf("fsck: %+v", report.Findings)
	}
	return missing, came
}

// killAndRepeat kills a pushing process when the gate shuts, asks the registry
// which blobs it has, and pushes again. It returns the bytes of the blobs that
// were missing and the bytes that were sent then.
func killAndRepeat(t *testing.T, reg realRegistry, s *archive.Store, run schemas.Digest, stop func(int64, int, bool) bool) (missing, sent int64) {
	t.Helper()
	ctx := context.Background()
	g := newGate(t, reg.host, stop)
	at := Scheme + strings.TrimPrefix(g.URL, "http://") + "/lab/runs:base"
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "ASSAY_TEST_PUSH="+at, "ASSAY_TEST_STORE="+s.Dir(), "ASSAY_TEST_RUN="+string(run))
	must(t, child.Start())
	<-g.reached
	must(t, child.Process.Kill())
	_ = child.Wait()
	before := g.reopen()

	c, err := dial(ctx, reg.ref(t, "lab/runs"), noLogin(), "pull")
	must(t, err)
	for _, b := range blobsOf(t, s, run) {
		has, _, err := c.hasBlob(ctx, b)
		must(t, err)
		if !has {
			missing += b.Size
		}
	}
	o := PushOptions{Options: noLogin(), Sessions: filepath.Join(s.Dir(), "uploads")}
	out, err := Push(ctx, s.Layout, run, parseRef(t, at), o)
	must(t, err)
	g.mu.Lock()
	sent = g.sent
	g.mu.Unlock()
	t.Logf("%d bytes; killed after %d were sent, when blobs of %d bytes were missing; then %d sent", out.Bytes, before, missing, sent)
	if missing == 0 || missing == out.Bytes {
		t.Errorf("%d of %d bytes were missing: it was not killed in the middle", missing, out.Bytes)
	}
	into := newStore(t)
	_, err = Pull(ctx, into, reg.ref(t, "lab/runs:base"), PullOptions{Options: noLogin()})
	must(t, err)
	wantValid(t, into, run)
	left, err := filepath.Glob(filepath.Join(s.Dir(), "uploads", "*.json"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("unfinished uploads are still remembered: %v", left)
	}
	return missing, sent
}

const manifestBytes = 64 << 10 // more than the manifests and headers of these runs

// TestKilledPush kills a push in the middle of a body. This registry forgets an
// upload that breaks off inside a piece, so exactly the blobs that it does not
// have are sent.
func TestKilledPush(t *testing.T) {
	reg := startRegistry(t, "", "")
	s := newStore(t)
	files := map[string]string{}
	for i := range 12 {
		files[fmt.Sprintf("outputs/result/%d.bin", i)] = noise(4<<20+i, byte(20+i))
	}
	run := sealRun(t, s, "run", files)
	missing, sent := killAndRepeat(t, reg, s, run, func(sent int64, _ int, inBody bool) bool { return inBody && sent > 32<<20 })
	if sent > missing+manifestBytes {
		t.Errorf("%d bytes sent, %d were missing", sent, missing)
	}
	missing, came := killPull(t, reg, run, blobsOf(t, s, run), 8<<20)
	if came > missing+manifestBytes {
		t.Errorf("%d bytes came, %d were missing", came, missing)
	}
}

// TestContinuedBlob kills a push between two pieces of a blob: the upload goes on
// with the next piece.
func TestContinuedBlob(t *testing.T) {
	reg := startRegistry(t, "", "")
	s := newStore(t)
	run := sealRun(t, s, "run", map[string]string{"outputs/result/big.bin": noise(8<<20, 1)})
	missing, sent := killAndRepeat(t, reg, s, run, func(_ int64, pieces int, inBody bool) bool { return !inBody && pieces == 6 })
	for name, spoil := range map[string]func(path string){"as it was left": func(string) {}, "with a changed byte": func(path string) { flip(t, path) }} {
		into := newStore(t)
		g := newGate(t, reg.host, nil)
		at := Scheme + strings.TrimPrefix(g.URL, "http://") + "/lab/runs:base"
		list := blobsOf(t, s, run)
		big := list[0]
		for _, b := range list {
			if b.Size > big.Size {
				big = b
			}
		}
		g.mu.Lock()
		g.slow = 5 << 20 // answers stop there until the process is killed
		g.mu.Unlock()
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "ASSAY_TEST_PULL="+at, "ASSAY_TEST_STORE="+into.Dir())
		must(t, child.Start())
		part := filepath.Join(into.Dir(), "assay/work/downloads", big.Digest.Hex())
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
			if info, err := os.Stat(part); err == nil && info.Size() > 4<<20 {
				break
			}
		}
		must(t, child.Process.Kill())
		_ = child.Wait()
		g.reopen()
		spoil(part)
		again, err := archive.Open(into.Dir())
		must(t, err)
		out, err := Pull(context.Background(), again, parseRef(t, at), PullOptions{Options: noLogin()})
		must(t, err)
		wantValid(t, again, run)
		if resumed := out.BytesMoved < 5<<20; resumed != (name == "as it was left") {
			t.Errorf("%s: %d bytes came then of a blob of %d of which more than 4 MiB were there", name, out.BytesMoved, big.Size)
		}
		if left, err := os.ReadDir(filepath.Dir(part)); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
	if want := int64(3*testChunk) + manifestBytes; sent > want || missing < 8<<20 {
		t.Errorf("%d bytes sent of a blob of %d of which 5 MiB were there, want at most %d", sent, missing, want)
	}
}
