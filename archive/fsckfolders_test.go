package archive

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Whatever stands in the place of a folder of the store, or of its format, is
// found by a check and moved away by a repair; then the store works as before, less
// what was in that folder.
func TestOddFolders(t *testing.T) {
	ctx := context.Background()
	kinds := map[string]func(path string) error{
		"file":          func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"pipe":          func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
		"looping link":  func(path string) error { return os.Symlink(filepath.Base(path), path) },
	}
	for kind, make := range kinds {
		for _, name := range []string{"blobs", blobsDir, "assay/records", "assay/journals", "assay/work", leaseDir, cacheDir, quarantineDir, formatFile} {
			t.Run(kind+" for "+name, func(t *testing.T) {
				s := newStore(t)
				run := sealRun(t, s, "r1", "kept", smallStages())
				if err := errors.Join(os.RemoveAll(s.path(name)), make(s.path(name))); err != nil {
					t.Fatal(err)
				}
				again, err := OpenDamaged(s.Dir())
				if err != nil {
					t.Fatal(err)
				}
				var first, r FsckReport
				_ = inTime(t, "fsck", func() error {
					first, r = check(t, again, false), check(t, again, true)
					return nil
				})
				if first.Sound || len(first.Findings) == 0 || len(first.Repaired) != 0 || !strings.Contains(first.Findings[0].Subject, name) {
					t.Errorf("found %+v", first)
				}
				if len(r.Repaired) == 0 {
					t.Errorf("nothing repaired: %+v", r)
				}
				if kind == "file" {
					kept, _ := filepath.Glob(s.path("assay/quarantine*/*"))
					beside, _ := filepath.Glob(s.path("assay/quarantine.odd*"))
					found := false
					for _, p := range append(kept, beside...) {
						b, err := os.ReadFile(p)
						found = found || err == nil && string(b) == "mine"
					}
					if !found {
						t.Error("what stood there is lost")
					}
				}
				mended, err := Open(s.Dir())
				if err != nil {
					t.Fatal(err)
				}
				if name != "blobs" && name != blobsDir {
					if left := check(t, mended, false); !left.Sound {
						t.Errorf("after the repair: %+v", left.Findings)
					}
					wantListed(t, mended, run)
				}
				if got := sealRun(t, mended, "r1", "kept", smallStages()); got != run {
					t.Errorf("run %s, want %s", got.Short(), run.Short())
				}
				if v, err := mended.Verify(ctx, run); err != nil || v.Verdict != Valid {
					t.Errorf("%+v, %v", v, err)
				}
			})
		}
	}
}

// A store whose format is lost or damaged is told from a folder that is none, and
// from a store of a later version.
func TestDamagedFormat(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "torn": `{"format":"assay-st`, "other": `{"imageLayoutVersion":"1.0.0"}`, "no version": `{"format":"assay-store"}`} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			run := sealRun(t, s, "r1", "kept", tinyStages())
			if err := os.WriteFile(s.path(formatFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(s.Dir()); !errors.Is(err, ErrNotStore) || !strings.Contains(err.Error(), "assay fsck --repair") {
				t.Errorf("%v", err)
			}
			damaged, err := OpenDamaged(s.Dir())
			if err != nil {
				t.Fatal(err)
			}
			if r := check(t, damaged, false); findingIDs(r) != "format/error" {
				t.Errorf("%+v", r)
			}
			if r := check(t, damaged, true); len(r.Quarantined) != 1 {
				t.Errorf("%+v", r)
			}
			wantListed(t, reopen(t, s.Dir()), run)
		})
	}
	s := newStore(t)
	if err := os.WriteFile(s.path(formatFile), []byte(`{"format":"assay-store","version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDamaged(s.Dir()); err == nil || !strings.Contains(err.Error(), "newer assay") {
		t.Errorf("a later version: %v", err)
	}
	if _, err := OpenDamaged(t.TempDir()); !errors.Is(err, ErrNotStore) {
		t.Errorf("no store: %v", err)
	}
}

// What is remembered can be done without: something in the place of its folder
// keeps nobody from storing a run.
func TestNoCacheFolder(t *testing.T) {
	s := newStore(t)
	if err := errors.Join(os.RemoveAll(s.path(cacheDir)), os.WriteFile(s.path(cacheDir), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	sealRun(t, reopen(t, s.Dir()), "r1", "kept", smallStages())
}
