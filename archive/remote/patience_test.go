package remote

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/archive"
)

func TestPatience(t *testing.T) {
	began := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	type fault struct {
		at    int64
		after time.Duration
	}
	for name, c := range map[string]struct {
		faults []fault
		want   int // faults until it is given up, 0 for never
	}{
		"nothing comes":         {[]fault{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}}, attempts},
		"a byte at a time":      {[]fault{{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 4}, {6, 5}}, attempts},
		"just too little":       {[]fault{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {worthBytes - 1, 0}}, attempts},
		"a mebibyte each":       {[]fault{{1 << 20, 0}, {2 << 20, 1}, {3 << 20, 2}, {4 << 20, 3}, {5 << 20, 4}, {6 << 20, 5}, {7 << 20, 6}}, 0},
		"a mebibyte just then":  {[]fault{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {worthBytes, 0}, {worthBytes, 0}}, 0},
		"too long for so many":  {[]fault{{0, 0}, {1, patienceTime}}, 2},
		"long, but it gets on":  {[]fault{{0, 0}, {worthBytes, patienceTime}, {2 * worthBytes, 3 * patienceTime}}, 0},
		"it went back to start": {[]fault{{5 << 20, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}}, attempts},
	} {
		var p patience
		got := 0
		for i, f := range c.faults {
			if !p.fault(f.at, began.Add(f.after)) {
				got = i + 1
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: given up at fault %d, want %d", name, got, c.want)
		}
	}
}

// TestFewBytesAtATime is a registry that gives a few bytes of a blob each time it is
// asked, and then closes or hangs; or takes a few of each piece. Neither goes on for
// ever, and there is a pause before each attempt.
func TestFewBytesAtATime(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 21))
	var big archive.BlobRef
	for _, b := range blobsOf(t, s, run) {
		if b.Size > big.Size {
			big = b
		}
	}
	for name, then := range map[string]func(http.ResponseWriter, *http.Request){
		"closes": func(w http.ResponseWriter, _ *http.Request) { breakOff(w) },
		"hangs":  hang,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, string(big.Digest)) {
					next.ServeHTTP(&cutter{ResponseWriter: w, left: 1500}, r)
					then(w, r)
					return
				}
				next.ServeHTTP(w, r)
			})
			ctx := context.Background()
			o := l.options()
			_, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
			must(t, err)
			o.tune.stall = 50 * time.Millisecond
			l.mu.Lock()
			l.sleeps = nil
			l.mu.Unlock()
			_, err = Pull(ctx, newStore(t), l.ref("a/b:t"), PullOptions{Options: o})
			if err == nil || !strings.Contains(err.Error(), "without getting on") {
				t.Errorf("error %v, want one that says that it does not get on", err)
			}
			if n := l.count("GET /v2/a/b/blobs/" + string(big.Digest)); n != attempts {
				t.Errorf("asked %d times, want %d", n, attempts)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.sleeps) != attempts-1 {
				t.Errorf("%d pauses, want %d", len(l.sleeps), attempts-1)
			}
		})
	}
}

// TestFewBytesOfEachPiece is a registry that keeps a few bytes of each piece of an
// upload and then breaks the connection.
func TestFewBytesOfEachPiece(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 22))
	var mu sync.Mutex
	kept, pieces := int64(0), 0
	l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodPatch:
			pieces++
			kept += 100
			breakOff(w)
		case isUpload(r) && r.Method == http.MethodGet:
			w.Header().Set("Range", fmt.Sprintf("0-%d", kept-1))
			w.WriteHeader(http.StatusNoContent)
		default:
			next.ServeHTTP(w, r)
		}
	})
	_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: l.options()})
	if err == nil {
		t.Error("no error")
	}
	mu.Lock()
	defer mu.Unlock()
	if pieces > attempts*blobAttempts {
		t.Errorf("%d pieces were begun, want at most %d", pieces, attempts*blobAttempts)
	}
}
