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

	"assay/schemas"
)

// TestBigRun moves a run of 5,000 files and 2 GiB to the real registry and back.
// It takes a minute and 8 GB of disk, so it is asked for by ASSAY_EXHAUSTIVE=1.
func TestBigRun(t *testing.T) {
	if os.Getenv("ASSAY_EXHAUSTIVE") == "" {
		t.Skip("set ASSAY_EXHAUSTIVE=1 to move 2 GiB")
	}
	reg := startRegistry(t, "", "")
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
	s := newStore(t)
	run := sealDir(t, s, "run", dir)
	must(t, os.RemoveAll(dir))
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
