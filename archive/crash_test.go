package archive

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"assay/internal/durable"
	"assay/schemas"
)

const crashEnv = "ARCHIVE_TEST_CRASH_AT"

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if at := os.Getenv(crashEnv); at != "" {
		crashChild(at, os.Args[1], os.Args[2])
		return
	}
	if n := os.Getenv(writerEnv); n != "" {
		writerChild(n, os.Args[1], os.Args[2])
		return
	}
	if seed := os.Getenv(chaosEnv); seed != "" {
		chaosChild(seed, os.Args[1])
		return
	}
	useMemory()
	_ = flag.Set("rapid.checks", "40") // the command line still overrides it
	os.Exit(m.Run())
}

// useMemory puts temporary folders on a memory file system where there is one:
// the tests sync thousands of files and are not about the disk's speed.
func useMemory() {
	const shm = "/dev/shm"
	if dir, err := os.MkdirTemp(shm, "archive-test-"); err == nil && os.Getenv("TMPDIR") == "" {
		_ = os.Remove(dir)
		_ = os.Setenv("TMPDIR", shm)
	}
}

var errKilled = errors.New("the process was killed")

func tinyStages() map[string]map[string]string {
	return map[string]map[string]string{"gen": {"outputs/x/f": "content", "outputs/x/g": "more"}}
}

// dieAt fails the n-th operation and all after it, as a process that is gone
// would; a write leaves half of something behind first.
func dieAt(n int64) (hook durable.Hook, count *atomic.Int64) {
	count = new(atomic.Int64)
	return func(op durable.Op, path string) error {
		c := count.Add(1)
		if c == n && op == durable.OpWrite {
			if f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); err == nil {
				_, _ = f.WriteString(`{"digest":"sha`)
				_ = f.Close()
			}
		}
		if c >= n {
			return errKilled
		}
		return nil
	}, count
}

// Whatever operation is the last one, reopening finds the run whole or not at
// all, the run before it whole, and the work can be done again.
func TestCrashAtEveryOperation(t *testing.T) {
	base := newStore(t)
	first := sealRun(t, base, "r0", "kept", smallStages())
	committed := 0
	for n := int64(1); ; n++ {
		dir := filepath.Join(t.TempDir(), "s")
		if err := os.CopyFS(dir, os.DirFS(base.Dir())); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		hook, count := dieAt(n)
		durable.SetHook(hook)
		req, err := runRequest(t, s, "r1", tinyStages())
		if err == nil {
			req.Tag = "fresh"
			_, err = s.Seal(context.Background(), req)
		}
		durable.SetHook(nil)
		if err == nil {
			if count.Load() < 40 {
				t.Errorf("only %d operations were seen: some write is not durable", count.Load())
			}
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatalf("operation %d: %v", n, err)
		}
		committed += checkAfterCrash(t, dir, first, n)
	}
	if committed == 0 {
		t.Error("no crash left the run committed: the last operations were not tried")
	}
}

// checkAfterCrash returns 1 when the run that was cut short is there.
func checkAfterCrash(t *testing.T, dir string, first schemas.Digest, n int64) int {
	t.Helper()
	ctx := context.Background()
	s, err := Open(dir)
	if err != nil {
		t.Fatalf("operation %d: %v", n, err)
	}
	runs, err := s.Runs(ctx)
	if err != nil || len(runs) == 0 || len(runs) > 2 || runs[0].Digest != first {
		t.Fatalf("operation %d: runs %+v, %v", n, runs, err)
	}
	for _, r := range runs {
		v, err := s.Verify(ctx, r.Digest)
		wantVerdict(t, v, err, Valid)
	}
	again := sealRun(t, s, "r1", "fresh", tinyStages())
	v, err := s.Verify(ctx, again)
	wantVerdict(t, v, err, Valid)
	recs, err := s.RecordsByStage(ctx, "demo/sample", "gen")
	if err != nil || len(recs) < 2 || !recs[0].Sealed {
		t.Fatalf("operation %d: %d records, %v", n, len(recs), err)
	}
	return len(runs) - 1
}

// A full disk is an error of the call, and the store stays good.
func TestFullDisk(t *testing.T) {
	s := newStore(t)
	first := sealRun(t, s, "r0", "", smallStages())
	var writes atomic.Int64
	durable.SetHook(func(op durable.Op, _ string) error {
		if op == durable.OpWrite && writes.Add(1) > 3 {
			return syscall.ENOSPC
		}
		return nil
	})
	_, err := runRequest(t, s, "r1", bigStages())
	durable.SetHook(nil)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want no space left", err)
	}
	if names, err := filepath.Glob(filepath.Join(s.Dir(), blobsDir, ".tmp-*")); err != nil || len(names) != 0 {
		t.Errorf("temporary files left: %v, %v", names, err)
	}
	v, err := s.Verify(context.Background(), first)
	wantVerdict(t, v, err, Valid)
}

// crashChild seals a run and kills itself at an operation.
func crashChild(at, dir, id string) {
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var count atomic.Int64
	durable.SetHook(func(durable.Op, string) error {
		if count.Add(1) == n {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	s, err := OpenOrCreate(dir)
	var req schemas.SealRequest
	if err == nil {
		m := &childTB{}
		if req, err = runRequest(m, s, id, tinyStages()); err == nil {
			_, err = s.Seal(context.Background(), req)
		}
		m.clean()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childTB is what the helpers need of a test, outside of one.
type childTB struct {
	testing.TB
	dirs []string
}

func (c *childTB) Helper() {}

func (c *childTB) TempDir() string {
	dir, err := os.MkdirTemp("", "archive-child-")
	if err != nil {
		panic(err)
	}
	c.dirs = append(c.dirs, dir)
	return dir
}

func (c *childTB) clean() {
	for _, d := range c.dirs {
		_ = os.RemoveAll(d)
	}
}

// A real process, really killed, from the making of the store on. What it left
// is swept, and the next one finishes.
func TestKilledProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	swept := false
	for n := 1; n <= 60; n += 4 {
		dir := filepath.Join(t.TempDir(), "s")
		t.Setenv("TMPDIR", t.TempDir())
		out, err := child(strconv.Itoa(n), dir, "r1")
		if err == nil {
			t.Fatalf("operation %d: the process was not killed: %s", n, out)
		}
		temps, _ := filepath.Glob(filepath.Join(dir, blobsDir, ".tmp-*"))
		if out, err := child("1000000", dir, "r1"); err != nil {
			t.Fatalf("operation %d: %v: %s", n, err, out)
		}
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range temps {
			swept = true
			if _, err := os.Lstat(name); err == nil {
				t.Errorf("operation %d: %s was not swept", n, name)
			}
		}
		runs, err := s.Runs(context.Background())
		if err != nil || len(runs) != 1 {
			t.Fatalf("operation %d: %d runs, %v", n, len(runs), err)
		}
		v, err := s.Verify(context.Background(), runs[0].Digest)
		wantVerdict(t, v, err, Valid)
	}
	if !swept {
		t.Error("no kill left a temporary file")
	}
}

func child(at, dir, id string) (string, error) {
	cmd := exec.Command(os.Args[0], dir, id)
	// The race detector would wait a second before each exit.
	cmd.Env = append(os.Environ(), crashEnv+"="+at, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Processes that make the same store and seal into it at once lose nothing.
func TestConcurrentProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := filepath.Join(t.TempDir(), "s")
	const processes = 5
	var wg sync.WaitGroup
	for i := range processes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if out, err := child("1000000", dir, "r"+strconv.Itoa(i)); err != nil {
				t.Errorf("process %d: %v: %s", i, err, out)
			}
		}()
	}
	wg.Wait()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := s.Runs(context.Background())
	if err != nil || len(runs) != processes {
		t.Fatalf("%d runs, %v, want %d", len(runs), err, processes)
	}
	for _, r := range runs {
		v, err := s.Verify(context.Background(), r.Digest)
		wantVerdict(t, v, err, Valid)
	}
	recs, err := s.RecordsByStage(context.Background(), "demo/sample", "gen")
	if err != nil || len(recs) != processes {
		t.Errorf("%d records, %v, want %d", len(recs), err, processes)
	}
}
