package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"assay/schemas"
)

func saveTar(t *testing.T, l *Layout, d schemas.Digest, tag string) (Saved, []byte, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.tar")
	saved, err := l.SaveTar(context.Background(), d, tag, file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return saved, b, file
}

// The tar depends on the run and the tag alone, not on the store or on when it is
// written, and holds nothing else.
func TestSaveTar(t *testing.T) {
	ctx := context.Background()
	var files [2][]byte
	for i := range files {
		s := newStore(t)
		for range i {
			sealRun(t, s, "other", "other", bigStages())
		}
		a := sealUsing(t, s, "a")
		d := sealUsing(t, s, "d", a, schemas.DigestOf([]byte("elsewhere")))
		saved, b, file := saveTar(t, s.Layout, d, "name")
		if len(saved.Runs) != 2 || saved.Runs[1] != d || len(saved.Missing) != 1 || saved.Bytes != int64(len(b)) {
			t.Errorf("%+v for %d bytes", saved, len(b))
		}
		checkTarMembers(t, b, saved.Blobs)
		files[i] = b
		for _, ref := range []string{file, file + ":name"} {
			r, err := s.Resolve(ctx, ref)
			if err != nil || r.Digest != d {
				t.Fatalf("%s is %s, %v", ref, r.Digest, err)
			}
			v, err := r.Verify(ctx)
			wantVerdict(t, v, err, Valid)
		}
		l, err := OpenLayout(file)
		if err != nil {
			t.Fatal(err)
		}
		v, err := l.Verify(ctx, a)
		wantVerdict(t, v, err, Valid)
		if _, again, _ := saveTar(t, l, d, "name"); !bytes.Equal(again, b) {
			t.Error("a tar made from the tar differs")
		}
		if _, err := s.SaveTar(ctx, d, "name", file); !errors.Is(err, fs.ErrExist) {
			t.Errorf("saved over a file: %v", err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("two stores give two tars of one run")
	}
}

func checkTarMembers(t *testing.T, b []byte, blobs int) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(b))
	last, n := "", 0
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n++; n > 3 && h.Name <= last {
			t.Errorf("%s stands after %s", h.Name, last)
		}
		last = h.Name
		if h.ModTime.Unix() != 0 || h.Mode != 0o644 || h.Uid != 0 || h.Uname != "" || h.Typeflag != tar.TypeReg {
			t.Errorf("header %+v", h)
		}
	}
	if n != blobs+2 {
		t.Errorf("%d members, want %d blobs, index.json and oci-layout", n, blobs)
	}
}

func TestSaveTarRefusesDamage(t *testing.T) {
	s := newStore(t)
	d := sealRun(t, s, "r1", "", smallStages())
	m, err := s.manifestOf(d)
	if err != nil {
		t.Fatal(err)
	}
	blob := digestOf(layersOf(m, MediaPack)[0])
	flip(t, s.blobPath(blob))
	dir := t.TempDir()
	_, err = s.SaveTar(context.Background(), d, "", filepath.Join(dir, "x.tar"))
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Blob != blob {
		t.Errorf("error %v, want a corrupt %s", err, blob)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What an extraction or an export that was killed left beside its destination goes
// with the next one there; what may be another's stays.
func TestLeftoversBesideDestination(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	d := sealRun(t, s, "r1", "", tinyStages())
	run, err := s.Run(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	dead, foreign := otherToken(map[int]string{3: "4194304"}), otherToken(map[int]string{0: "00000000", 1: "00000000"})
	for what, act := range map[string]func(dir string) error{
		"extract": func(dir string) error { return run.Extract(ctx, filepath.Join(dir, "out")) },
		"export":  func(dir string) error { _, err := s.SaveTar(ctx, d, "", filepath.Join(dir, "out.tar")); return err },
	} {
		dir := t.TempDir()
		keep := []string{".tmp-" + foreign + "-1", ".tmp-mine", ".tmp-1-2", "tmp-" + dead + "-1"}
		gone := []string{".tmp-" + dead + "-1", ".tmp-" + dead + "-x2"}
		for _, name := range append(keep, gone...) {
			if err := os.MkdirAll(filepath.Join(dir, name, "sub"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := act(dir); err != nil {
			t.Fatal(err)
		}
		for _, name := range keep {
			if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, name := range gone {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				t.Errorf("%s left %s", what, name)
			}
		}
	}
}
