package durable

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOpenRegularRefusesEverythingElse(t *testing.T) {
	dir := t.TempDir()
	pipe, file, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(file, []byte("x"), 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{pipe, dir, os.DevNull} {
		if _, err := OpenRegular(p); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, p := range []string{file, link} {
		f, err := OpenRegular(p)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// What this program wrote itself is never read, or locked, through a link.
func TestOpenPlainFollowsNothing(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(syscall.Mkfifo(at("pipe"), 0o600), os.WriteFile(at("file"), []byte("x"), 0o600), os.Symlink("file", at("link")),
		os.Symlink("nowhere", at("dangling")), os.Mkdir(at("folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("unix", at("socket")); err == nil {
		defer l.Close()
	}
	for _, name := range []string{"pipe", "link", "dangling", "folder", "socket"} {
		if _, err := OpenPlain(at(name)); !errors.Is(err, ErrNotRegular) {
			t.Errorf("open %s: %v", name, err)
		}
		if _, err := Lock(at(name)); !errors.Is(err, ErrNotRegular) {
			t.Errorf("lock %s: %v", name, err)
		}
	}
	if _, err := os.Lstat(at("nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a lock was made through a link: %v", err)
	}
	f, err := OpenPlain(at("file"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := OpenPlain(at("none")); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrNotRegular) {
		t.Errorf("open nothing: %v", err)
	}
}
