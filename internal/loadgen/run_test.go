package loadgen

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"assay/schemas"
)

// schedule plans n requests, one every gap.
func schedule(n int, gap time.Duration) []Request {
	var out []Request
	for i := range n {
		r := request(i, 3)
		r.AtNs = int64(i) * int64(gap)
		out = append(out, r)
	}
	return out
}

func collect(t testing.TB, ctx context.Context, opts Options) ([]schemas.RequestRecord, error) {
	t.Helper()
	var recs []schemas.RequestRecord
	err := Run(ctx, opts, func(r schemas.RequestRecord) error {
		recs = append(recs, r)
		return nil
	})
	seen := map[int]bool{}
	for _, r := range recs {
		proper(t, r)
		if seen[r.Index] {
			t.Errorf("request %d has two records", r.Index)
		}
		seen[r.Index] = true
	}
	if len(recs) != len(opts.Requests) {
		t.Errorf("%d records of %d requests", len(recs), len(opts.Requests))
	}
	return recs, err
}

func tally(recs []schemas.RequestRecord) map[schemas.Outcome]int {
	out := map[schemas.Outcome]int{}
	for _, r := range recs {
		out[r.Outcome]++
	}
	return out
}

// A service that never answers does not slow the load: every request leaves at its
// time.
func TestOpenLoop(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	opts := Options{BaseURL: url, RequestTimeout: 500 * time.Millisecond, Requests: schedule(50, 2*time.Millisecond)}
	opts.Requests[3], opts.Requests[40] = opts.Requests[40], opts.Requests[3] // the order given does not matter
	recs, err := collect(t, context.Background(), opts)
	if err != nil || tally(recs)[schemas.OutcomeTimeout] != 50 {
		t.Errorf("%v, %v", err, tally(recs))
	}
	var lags []int64
	for _, r := range recs {
		if r.ScheduledNs != int64(r.Index)*2e6 || *r.DispatchedNs < r.ScheduledNs {
			t.Errorf("request %d: scheduled %d, sent %d", r.Index, r.ScheduledNs, *r.DispatchedNs)
		}
		lags = append(lags, *r.DispatchedNs-r.ScheduledNs)
	}
	slices.Sort(lags)
	// Half a request limit would show a wait for answers; a busy machine does not reach it.
	if median := time.Duration(lags[len(lags)/2]); median > 100*time.Millisecond {
		t.Errorf("median send lag %s", median)
	}
}

func TestRunProgressAndSink(t *testing.T) {
	url := serve(t, streamOf(answerOf(3)...))
	var last Progress
	opts := Options{BaseURL: url, Held: true, Requests: schedule(20, time.Millisecond), Progress: func(p Progress) { last = p }}
	recs, err := collect(t, context.Background(), opts)
	if err != nil || tally(recs)[schemas.OutcomeOK] != 20 {
		t.Errorf("%v, %v", err, tally(recs))
	}
	if want := (Progress{Total: 20, Sent: 20, Done: 20}); last != want {
		t.Errorf("last progress %+v", last)
	}
}

func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		streamOf(textEvent("a"))(w, r)
		cancel()
		<-r.Context().Done()
	})
	opts := Options{BaseURL: url, Requests: schedule(3, time.Hour)}
	recs, err := collect(t, ctx, opts)
	got := tally(recs)
	if !errors.Is(err, context.Canceled) || got[schemas.OutcomeCancelled] != 1 || got[schemas.OutcomeNotSent] != 2 {
		t.Errorf("%v, %v", err, got)
	}
	for _, r := range recs {
		if r.Outcome == schemas.OutcomeNotSent && r.DispatchedNs != nil {
			t.Errorf("not sent, but dispatched: %+v", r)
		}
	}
}

func TestRunServiceGone(t *testing.T) {
	gone := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		streamOf(textEvent("a"))(w, r)
		close(gone) // the listener stays, as that of a process nobody reaps
		<-r.Context().Done()
	})
	start := time.Now()
	recs, err := collect(t, context.Background(), Options{BaseURL: url, ServiceDone: gone, Requests: schedule(3, time.Hour)})
	got := tally(recs)
	if err != nil || got[schemas.OutcomeReset] != 1 || got[schemas.OutcomeNotSent] != 2 || time.Since(start) > 30*time.Second {
		t.Errorf("%v, %v after %s", err, got, time.Since(start))
	}
	for _, r := range recs {
		if !strings.Contains(r.Error, "the service ended") {
			t.Errorf("%s: %q", r.Outcome, r.Error)
		}
	}
}

func TestRunSinkFails(t *testing.T) {
	url := serve(t, streamOf(answerOf(3)...))
	full, calls := errors.New("disk full"), 0
	err := Run(context.Background(), Options{BaseURL: url, Requests: schedule(3, time.Hour)}, func(schemas.RequestRecord) error {
		calls++
		return full
	})
	if !errors.Is(err, full) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestRunMaxConnections(t *testing.T) {
	var now, most atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		<-r.Context().Done()
	})
	opts := Options{BaseURL: url, MaxConnections: 4, RequestTimeout: 300 * time.Millisecond, Requests: schedule(10, 0)}
	recs, err := collect(t, context.Background(), opts)
	got := tally(recs)
	if err != nil || got[schemas.OutcomeTimeout] != 4 || got[schemas.OutcomeClientResource] != 6 || most.Load() > 4 {
		t.Errorf("%v, %v, %d at once", err, got, most.Load())
	}
}

func TestRunRefuses(t *testing.T) {
	twice := schedule(2, 0)
	twice[1].Index = 0
	early := schedule(1, 0)
	early[0].AtNs = -1
	for name, reqs := range map[string][]Request{"index": twice, "negative": early} {
		err := Run(context.Background(), Options{BaseURL: "http://127.0.0.1:1", Requests: reqs}, func(schemas.RequestRecord) error { return nil })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Run(context.Background(), Options{BaseURL: "http://127.0.0.1:1"}, nil); err != nil {
		t.Errorf("nothing to send: %v", err)
	}
}

// What the client runs out of is told from what the service does.
func TestClientResourceErrors(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		err := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
		if f := classify(context.Background(), err, false, "connecting"); f.outcome != schemas.OutcomeClientResource {
			t.Errorf("%v: %s", errno, f.outcome)
		}
	}
}

// A process that may open no more files says so. The limit is that of a child,
// this test once more.
func TestOutOfFiles(t *testing.T) {
	const key = "LOADGEN_TEST_OUT_OF_FILES"
	if os.Getenv(key) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOutOfFiles$", "-test.count=1")
		cmd.Env = append(os.Environ(), key+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	url := serve(t, streamOf(answerOf(3)...))
	c := newClient(t, Options{BaseURL: url})
	if r := c.Do(context.Background(), request(0, 3)); r.Outcome != schemas.OutcomeOK {
		t.Fatalf("before: %s %q", r.Outcome, r.Error)
	}
	c.Close()
	probe, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: uint64(probe.Fd()) + 64}); err != nil {
		t.Skipf("the limit of open files cannot be set: %v", err)
	}
	r := c.Do(context.Background(), request(1, 3))
	proper(t, r)
	if r.Outcome != schemas.OutcomeClientResource || !strings.Contains(r.Error, "too many open files") {
		t.Errorf("got %s %q", r.Outcome, r.Error)
	}
}
