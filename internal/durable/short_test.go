package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"assay/internal/durable"
)

// A hook can let a write stop in the middle; what was not written whole is not
// committed, and a journal's torn line is told apart.
func TestShortWrite(t *testing.T) {
	dir := t.TempDir()
	final, log := filepath.Join(dir, "f"), filepath.Join(dir, "log")
	a, err := durable.OpenAppend(log)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r, err := durable.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in, err := r.Create("in", 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer durable.SetHook(durable.SetHook(func(op durable.Op, _ string) error {
		if op == durable.OpWrite {
			return &durable.ShortWrite{N: 3, Err: syscall.ENOSPC}
		}
		return nil
	}))
	if err := durable.WriteFile(final, []byte("content"), 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteFile: %v", err)
	}
	if _, err := os.Lstat(final); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file written in part is there: %v", err)
	}
	if err := a.Append([]byte("line\n")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Append: %v", err)
	}
	if n, err := in.Write([]byte("bytes")); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Write: %d, %v", n, err)
	}
	durable.SetHook(nil)
	if err := a.AppendLine([]byte("next\n")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(log); err != nil || string(b) != "lin\nnext\n" {
		t.Errorf("log %q, %v", b, err)
	}
}

// RLock lets others of its kind in, and keeps Lock out.
func TestRLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	one, err := durable.RLock(path)
	if err != nil {
		t.Fatal(err)
	}
	two, err := durable.RLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := durable.TryLock(path); ok || err != nil {
		t.Errorf("locked beside readers: %v, %v", ok, err)
	}
	if err := errors.Join(one(), two()); err != nil {
		t.Fatal(err)
	}
	unlock, ok, err := durable.TryLock(path)
	if !ok || err != nil {
		t.Fatalf("not locked: %v, %v", ok, err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestTouchAndUnlink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := durable.Touch(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("touch of nothing: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if err := durable.Touch(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) > time.Minute {
		t.Errorf("%+v, %v", info, err)
	}
	if err := durable.Unlink(path); err != nil {
		t.Fatal(err)
	}
	if err := durable.Unlink(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestTokens(t *testing.T) {
	self := durable.Self()
	if !durable.SameKernel(self) || durable.SameKernel("x") || durable.SameNamespace("x.y.z.1.2") {
		t.Error("this process is not where it is")
	}
	dir := t.TempDir()
	f, err := durable.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if token, ok := durable.TempHolder(names[0].Name()); !ok || token != self {
		t.Errorf("%s belongs to %q, want %q", names[0].Name(), token, self)
	}
	for _, name := range []string{"f", ".tmp-", ".tmp-x", "x-1", strings.TrimPrefix(names[0].Name(), ".")} {
		if token, ok := durable.TempHolder(name); ok {
			t.Errorf("%s belongs to %q", name, token)
		}
	}
}
