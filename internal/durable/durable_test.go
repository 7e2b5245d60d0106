package durable_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"assay/internal/durable"
)

// record notes every operation and fails the n-th (0: none).
func record(t *testing.T, n int, with error) *[]durable.Op {
	t.Helper()
	var ops []durable.Op
	durable.SetHook(func(op durable.Op, _ string) error {
		ops = append(ops, op)
		if len(ops) == n {
			return with
		}
		return nil
	})
	t.Cleanup(func() { durable.SetHook(nil) })
	return &ops
}

func TestWriteFileOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	ops := record(t, 0, nil)
	if err := durable.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []durable.Op{durable.OpCreate, durable.OpWrite, durable.OpFsync, durable.OpRename, durable.OpSyncDir}
	if !slices.Equal(*ops, want) {
		t.Errorf("operations %v, want %v", *ops, want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Whichever operation fails, the file holds all of the old bytes or all of the
// new ones, and no temporary file stays.
func TestWriteFileFaults(t *testing.T) {
	for n := 1; n <= 5; n++ {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
		record(t, n, syscall.EIO)
		err := durable.WriteFile(path, []byte("new"), 0o644)
		durable.SetHook(nil)
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("operation %d: %v, want EIO", n, err)
		}
		got, err := os.ReadFile(path)
		if want := map[bool]string{true: "new", false: "old"}[n == 5]; err != nil || string(got) != want {
			t.Errorf("operation %d: %q, %v, want %q", n, got, err, want)
		}
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("operation %d: %d names left, want 1", n, len(names))
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	f, err := durable.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(f, "one"); err != nil {
		t.Fatal(err)
	}
	if err := f.CommitTo(filepath.Join(dir, "sub", "f")); err == nil {
		t.Error("committed into another folder")
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	f.Abort()
	if err := f.Commit(); err == nil {
		t.Error("committed twice")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "one" {
		t.Errorf("%q, %v", b, err)
	}
	g, err := durable.Create(filepath.Join(dir, "g"))
	if err != nil {
		t.Fatal(err)
	}
	record(t, 1, syscall.ENOSPC)
	if _, err := g.Write([]byte("x")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write: %v", err)
	}
	durable.SetHook(nil)
	if err := g.Commit(); err == nil {
		t.Error("committed a file whose write failed")
	}
	g.Abort()
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("%d names, want 1", len(names))
	}
}

// Every operation of every function can be made to fail.
func TestEveryFunctionAsksTheHook(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(in(name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := durable.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	log, err := durable.OpenAppend(in("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for op, do := range map[durable.Op][]func() error{
		durable.OpMkdir:   {func() error { return durable.MkdirAll(in("x/y")) }, func() error { return root.Mkdir("z") }, func() error { _, err := durable.TempDir(dir); return err }},
		durable.OpRename:  {func() error { return durable.Rename(in("a"), in("aa")) }},
		durable.OpRemove:  {func() error { return durable.Remove(in("b")) }, func() error { return durable.RemoveAll(in("c")) }},
		durable.OpSymlink: {func() error { return durable.Symlink("a", in("s")) }, func() error { return root.Symlink("a", "s") }},
		durable.OpSyncDir: {func() error { return durable.SyncDir(dir) }, root.Sync},
		durable.OpWrite:   {func() error { return log.Append([]byte("x")) }},
		durable.OpFsync:   {log.Sync},
		durable.OpCreate: {func() error { _, err := durable.OpenAppend(in("new")); return err }, func() error { _, err := root.Create("new", 0o644); return err },
			func() error { _, err := durable.Lock(in("lock")); return err }, func() error { return durable.WriteFile(in("w"), nil, 0o644) }},
	} {
		for i, f := range do {
			durable.SetHook(func(got durable.Op, path string) error {
				if got == op && strings.HasPrefix(path, dir) {
					return syscall.EROFS
				}
				return nil
			})
			err := f()
			durable.SetHook(nil)
			if !errors.Is(err, syscall.EROFS) {
				t.Errorf("%s %d: %v, want the hook's error", op, i, err)
			}
		}
	}
	if names, _ := os.ReadDir(dir); len(names) != 4 {
		t.Errorf("%d names, want the first 4: an operation was done in spite of the hook", len(names))
	}
}

func TestMkdirAllRenameRemove(t *testing.T) {
	dir := t.TempDir()
	ops := record(t, 0, nil)
	if err := durable.MkdirAll(filepath.Join(dir, "a/b")); err != nil {
		t.Fatal(err)
	}
	want := []durable.Op{durable.OpMkdir, durable.OpSyncDir, durable.OpMkdir, durable.OpSyncDir}
	if !slices.Equal(*ops, want) {
		t.Errorf("operations %v, want %v", *ops, want)
	}
	if err := durable.WriteFile(filepath.Join(dir, "a/b/f"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := durable.MkdirAll(filepath.Join(dir, "a/b/f")); err == nil {
		t.Error("a file passed for a folder")
	}
	if err := durable.Rename(filepath.Join(dir, "a/b/f"), filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	if err := durable.Symlink("f", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "l")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	if err := errors.Join(durable.Remove(filepath.Join(dir, "l")), durable.RemoveAll(filepath.Join(dir, "a")), durable.RemoveAll(filepath.Join(dir, "none"))); err != nil {
		t.Error(err)
	}
	if err := durable.Remove(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove of nothing: %v", err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("%d names, want f alone", len(names))
	}
}

func TestAppendLineMendsTornOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, step := range []string{"one\n", "tor", "two\n"} {
		f, err := durable.OpenAppend(path)
		if err != nil {
			t.Fatal(err)
		}
		if step == "tor" {
			err = f.Append([]byte(step))
		} else {
			err = f.AppendLine([]byte(step))
		}
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "one\ntor\ntwo\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// The counter is read and written in two steps: only a lock keeps it right.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var count atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 20 {
				unlock, err := durable.Lock(path)
				if err != nil {
					t.Error(err)
					return
				}
				count.Store(count.Load() + 1)
				if err := unlock(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	if n := count.Load(); n != 160 {
		t.Errorf("count %d, want 160", n)
	}
	unlock, err := durable.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := durable.TryLock(path); ok || err != nil {
		t.Errorf("took a lock that is held: %v, %v", ok, err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	again, ok, err := durable.TryLock(path)
	if !ok || err != nil {
		t.Fatalf("free lock not taken: %v", err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "leave-temp" {
		if _, err := durable.Create(filepath.Join(os.Args[2], "f")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(durable.Self())
		return
	}
	os.Exit(m.Run())
}

// A process that was killed and that its parent does not reap is dead.
func TestZombieIsDead(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here: no process can be proved dead")
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	token := strings.Join(append(strings.Split(durable.Self(), ".")[:3], fmt.Sprint(cmd.Process.Pid), fields[19]), ".")
	if durable.Dead(token) {
		t.Error("a living process is dead")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil { // its end of the pipe closes when it ends
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); !durable.Dead(token); {
		if time.Now().After(deadline) {
			t.Fatal("a process that only waits to be reaped is alive")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !durable.Dead(token) {
		t.Error("a process that was reaped is alive")
	}
}

// Only what a dead process of this host left is swept.
func TestSweepTemps(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here: no process can be proved dead")
	}
	dir := t.TempDir()
	out, err := exec.Command(os.Args[0], "leave-temp", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	dead := string(bytes.TrimSpace(out))
	if !durable.Dead(dead) || durable.Dead(durable.Self()) {
		t.Errorf("dead %q: %t, this process: %t", dead, durable.Dead(dead), durable.Dead(durable.Self()))
	}
	elsewhere := strings.Replace(dead, strings.Split(dead, ".")[0], "00000000", 1)
	reused := strings.Join(append(strings.Split(durable.Self(), ".")[:4], "1"), ".")
	for token, want := range map[string]bool{"": false, "x": false, elsewhere: false, reused: true} {
		if durable.Dead(token) != want {
			t.Errorf("Dead(%q) = %t", token, !want)
		}
	}
	mine, err := durable.Create(filepath.Join(dir, "g"))
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Abort()
	for _, name := range []string{".tmp-other", ".tmp-" + elsewhere + "-1", "kept"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.SweepTemps(dir); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 4 {
		t.Errorf("%v left, %v, want 4", names, err)
	}
	for _, n := range names {
		if strings.Contains(n.Name(), dead) {
			t.Errorf("%s of a dead process was kept", n.Name())
		}
	}
}

// A root cannot be left, whatever lies in it.
func TestRootConfines(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	root, err := durable.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"out/f", "../f", filepath.Join(os.TempDir(), "f-"+fmt.Sprint(time.Now().UnixNano()))} {
		if _, err := root.Create(name, 0o644); err == nil {
			t.Errorf("wrote %s", name)
		}
	}
	f, err := root.Create("in", 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), root.Sync()); err != nil {
		t.Fatal(err)
	}
	if _, err := root.Create("in", 0o644); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second file of one name: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "in")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if names, _ := os.ReadDir(outside); len(names) != 0 {
		t.Errorf("%d names outside", len(names))
	}
}
