package remote

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"assay/archive"
	"assay/schemas"
)

// TestBigRun moves a run of 5,000 files and 2 GiB to the real registry and back.
// It takes a minute and 8 GB of disk, so it is asked for by ASSAY_EXHAUSTIVE=1.
func TestBigRun(t *testing.T) {
	if os.Getenv("ASSAY_EXHAUSTIVE") == "" {
		t.Skip("set ASSAY_EXHAUSTIVE=1 to move 2 GiB")
	}
	reg := startRegistry(t, "", "")
	s := newStore(t)
	run := bigRun(t, s)
	o := Options{tune: &tuning{getenv: func(string) string { return "" }}}
	ctx := context.Background()
	rate := func(what string, bytes int64, since time.Time) {
		t.Logf("%s: %s in %s, %.0f MB/s", what, schemas.Size(bytes), time.Since(since).Round(time.Millisecond), float64(bytes)/1e6/time.Since(since).Seconds())
	}
	start := time.Now()
	pushed, err := Push(ctx, s.Layout, run, reg.ref(t, "lab/big:t"), PushOptions{Options: o})
	must(t, err)
	rate("push", pushed.BytesMoved, start)
	start = time.Now()
	again, err := Push(ctx, s.Layout, run, reg.ref(t, "lab/big:t"), PushOptions{Options: o})
	must(t, err)
	rate("push again", again.BytesMoved, start)
	into := newStore(t)
	start = time.Now()
	pulled, err := Pull(ctx, into, reg.ref(t, "lab/big:t"), PullOptions{Options: o})
	must(t, err)
	rate("pull", pulled.BytesMoved, start)
	if pushed.BytesMoved != pushed.Bytes || again.BytesMoved != 0 || pulled.BytesMoved != pushed.Bytes {
		t.Errorf("pushed %+v, again %+v, pulled %+v", pushed, again, pulled)
	}
	wantValid(t, into, run)
}

// bigRun is a run of 5,000 files and 2 GiB.
func bigRun(t *testing.T, s *archive.Store) schemas.Digest {
	t.Helper()
	dir := t.TempDir()
	r := rand.NewChaCha8([32]byte{1})
	write := func(name string, size int64) {
		p := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		f, err := os.Create(p)
		must(t, err)
		_, err = io.CopyN(f, r, size)
		must(t, err)
		must(t, f.Close())
	}
	const small, large = 4992, 8
	for i := range small {
		write(fmt.Sprintf("outputs/result/%d/%d.log", i/100, i), int64(1<<10+i*20%(99<<10)))
	}
	for i := range large {
		write(fmt.Sprintf("outputs/result/%d.bin", i), 224<<20)
	}
	run := sealDir(t, s, "run", dir)
	must(t, os.RemoveAll(dir))
	return run
}

// TestBigRunKilled kills the push and the pull of that run in the middle and
// repeats each: what crosses the wire then is what was missing.
func TestBigRunKilled(t *testing.T) {
	if os.Getenv("ASSAY_EXHAUSTIVE") == "" {
		t.Skip("set ASSAY_EXHAUSTIVE=1 to move 2 GiB")
	}
	reg := startRegistry(t, "", "")
	s := newStore(t)
	run := bigRun(t, s)
	missing, sent := killAndRepeat(t, reg, s, run, func(sent int64, _ int, inBody bool) bool { return inBody && sent > 1200<<20 })
	if sent > missing+manifestBytes {
		t.Errorf("%d bytes sent, %d were missing", sent, missing)
	}
	missing, came := killPull(t, reg, run, blobsOf(t, s, run), 900<<20)
	if came > missing+manifestBytes {
		t.Errorf("%d bytes came, %d were missing", came, missing)
	}
}
