package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"assay/internal/durable"
)

// writerEnv makes the test binary a process that commits that many runs; "0"
// makes it one that takes a lease and waits to be killed.
const writerEnv = "ARCHIVE_TEST_WRITER_RUNS"

func writerChild(count, dir, id string) {
	n, err := strconv.Atoi(count)
	var s *Store
	if err == nil {
		s, err = OpenOrCreate(dir)
	}
	if err == nil && n == 0 {
		_, err = s.Lease(context.Background(), id)
		fmt.Println("leased")
		time.Sleep(time.Hour)
	}
	for i := 0; i < n && err == nil; i++ {
		err = commitLeased(s, fmt.Sprintf("%s-%d", id, i))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func commitLeased(s *Store, id string) error {
	release, err := s.Lease(context.Background(), id)
	if err != nil {
		return err
	}
	m := &childTB{}
	defer m.clean()
	req, err := runRequest(m, s, id, tinyStages())
	if err == nil {
		_, err = s.Seal(context.Background(), req)
	}
	return errors.Join(err, release())
}

func writer(t *testing.T, runs int, dir, id string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir, id)
	cmd.Env = append(os.Environ(), writerEnv+"="+strconv.Itoa(runs), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// Ten processes commit runs into one store, which none of them finds made, while
// gc without any grace runs beside them: all runs are there and nothing is left.
func TestTenWriters(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := filepath.Join(t.TempDir(), "s")
	const processes = 10
	each := 20
	if os.Getenv("ASSAY_EXHAUSTIVE") != "" {
		each = 100
	}
	stop := make(chan struct{})
	var sweeper, writers sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond):
			}
			s, err := Open(dir)
			if errors.Is(err, ErrNotStore) {
				continue // nobody has made it yet
			}
			if err == nil {
				_, err = s.Collect(context.Background(), GCOptions{Apply: true})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range processes {
		writers.Go(func() {
			if out, err := writer(t, each, dir, "p"+strconv.Itoa(i)).CombinedOutput(); err != nil {
				t.Errorf("process %d: %v: %s", i, err, out)
			}
		})
	}
	writers.Wait()
	close(stop)
	sweeper.Wait()
	s := reopen(t, dir)
	runs, err := s.Runs(context.Background())
	if err != nil || len(runs) != processes*each {
		t.Fatalf("%d runs, %v, want %d", len(runs), err, processes*each)
	}
	for i := 0; i < len(runs); i += 13 {
		v, err := s.Verify(context.Background(), runs[i].Digest)
		wantVerdict(t, v, err, Valid)
	}
	r := check(t, s, false) // every blob of every run
	if len(r.Findings) != 0 || r.Runs != processes*each {
		t.Errorf("%d runs, %+v", r.Runs, r.Findings)
	}
	for _, sub := range []string{leaseDir, "assay/journals"} {
		left, err := os.ReadDir(s.path(sub))
		if err != nil || len(left) != 0 {
			t.Errorf("%d files left in %s, %v", len(left), sub, err)
		}
	}
	all, err := os.ReadDir(s.path(blobsDir))
	if err != nil || len(all) != r.Blobs {
		t.Errorf("%d files, %d blobs, %v", len(all), r.Blobs, err)
	}
	for what, do := range map[string]func() error{
		"list":    func() error { _, err := reopen(t, dir).Runs(context.Background()); return err },
		"resolve": func() error { _, err := s.Resolve(context.Background(), latest); return err },
		"usage":   func() error { _, err := s.Usage(context.Background()); return err },
		"gc":      func() error { _, err := s.Collect(context.Background(), GCOptions{}); return err },
	} {
		start := time.Now()
		if err := do(); err != nil {
			t.Error(err)
		}
		t.Logf("%s of %d runs, %d blobs: %s", what, len(runs), r.Blobs, time.Since(start).Round(100*time.Microsecond))
	}
	// Every lock is free.
	for _, name := range []string{"assay/index.lock", recordLockName, sweepLockName, gcLockName} {
		unlock, ok, err := durable.TryLock(s.path(name))
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", name, ok, err)
		}
		if err := unlock(); err != nil {
			t.Error(err)
		}
	}
}

// The lease of a killed process holds nothing back.
func TestLeaseOfTheKilled(t *testing.T) {
	s := newStore(t)
	cmd := writer(t, 0, s.Dir(), "victim")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	if n, err := out.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), "leased") {
		t.Fatalf("%q, %v", line[:n], err)
	}
	if list, err := s.Leases(); err != nil || len(list) != 1 || list[0].State != LeaseActive || list[0].PID != cmd.Process.Pid {
		t.Errorf("while it lives: %+v, %v", list, err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if list, err := s.Leases(); err != nil || len(list) != 1 || list[0].State != LeaseDead {
		t.Errorf("after its death: %+v, %v", list, err)
	}
	d := sealRun(t, s, "r1", "", tinyStages())
	remove(t, s, d)
	age(t, s)
	if r := collect(t, s, GCOptions{Apply: true}); len(r.Leases) != 0 || len(r.Garbage) == 0 {
		t.Errorf("leases %+v, %d deleted", r.Leases, len(r.Garbage))
	}
}
