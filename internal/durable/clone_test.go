package durable_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"assay/internal/durable"
)

// A clone is what the source was when it was cloned, whatever is written to the
// source afterwards; where blocks cannot be shared nothing is written.
func TestClone(t *testing.T) {
	dir := t.TempDir()
	src, final := filepath.Join(dir, "src"), filepath.Join(dir, "final")
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	content = append(content, "and a tail"...)
	if err := os.WriteFile(src, content, 0o644); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenFile(src, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	f, err := durable.Create(final)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	cloned, err := f.Clone(in, 0, int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	if !cloned {
		if n, _ := f.ReadAt(make([]byte, 1), 0); n != 0 {
			t.Error("no clone, and yet bytes")
		}
		t.Skip("the temporary folder's file system cannot share blocks")
	}
	if _, err := in.WriteAt([]byte("changed"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(final); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v, want the %d that were cloned", len(got), err, len(content))
	}
}
