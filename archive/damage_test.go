package archive

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"assay/schemas"
)

// damages are what can happen to any file.
var damages = map[string]func(path string) error{
	"emptied": func(path string) error { return os.Truncate(path, 0) },
	"cut": func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/2)
	},
	"longer": func(path string) error {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("\x00garbage{")
		return errors.Join(err, f.Close())
	},
	"removed": os.Remove,
	"zeroes": func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, make([]byte, info.Size()), 0o600)
	},
}

// Whatever happens to one file of a store: nothing waits, a repair leaves a store
// that takes runs, and no run is called valid that is not.
func TestAnyFileDamaged(t *testing.T) {
	base := newStore(t)
	run := sealRun(t, base, "r1", "kept", smallStages())
	gone := sealRun(t, base, "r2", "", tinyStages())
	if _, err := base.Remove(context.Background(), []schemas.Digest{gone}, false); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base.JournalDir(), "r9.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var files []string
	err := filepath.WalkDir(base.Dir(), func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, rerr := filepath.Rel(base.Dir(), p)
			files, err = append(files, rel), rerr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	kinds := slices.Sorted(maps.Keys(damages))
	for i, name := range files {
		some := kinds[i%len(kinds):][:1] // all of them take a minute
		if os.Getenv("ASSAY_EXHAUSTIVE") != "" {
			some = kinds
		}
		for _, how := range some {
			damage := damages[how]
			dir := filepath.Join(t.TempDir(), "s")
			if err := os.CopyFS(dir, os.DirFS(base.Dir())); err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			done := make(chan string, 1)
			go func() { done <- useDamaged(t, dir, run) }()
			select {
			case problem := <-done:
				if problem != "" {
					t.Errorf("%s %s: %s", name, how, problem)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("%s %s: something waits for ever", name, how)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d files", len(files))
}

func useDamaged(t testing.TB, dir string, run schemas.Digest) (problem string) {
	ctx := context.Background()
	s, err := Open(dir)
	if errors.Is(err, ErrNotStore) {
		return "" // its mark is gone, and it says so
	}
	if err != nil {
		return "open: " + err.Error()
	}
	before, verr := s.Verify(ctx, run)
	_, _ = s.Usage(ctx)
	if _, err := s.Collect(ctx, GCOptions{}); err == nil {
		_, _ = s.Collect(ctx, GCOptions{Apply: true, Grace: time.Hour})
	}
	first, err := s.Fsck(ctx, FsckOptions{})
	if err != nil {
		return "fsck: " + err.Error()
	}
	if first.Sound && (verr != nil || before.Verdict != Valid) {
		return "fsck calls a store sound whose run is not valid"
	}
	if _, err := s.Fsck(ctx, FsckOptions{Repair: true}); err != nil {
		return "repair: " + err.Error()
	}
	if s, err = Open(dir); err != nil {
		return "open after the repair: " + err.Error()
	}
	again, err := s.Fsck(ctx, FsckOptions{})
	if err != nil {
		return "fsck after the repair: " + err.Error()
	}
	for _, f := range again.Findings {
		if f.Severity == schemas.SeverityError && f.ID != "fsck.missing" {
			return "after the repair: " + f.ID + ": " + f.Message
		}
	}
	req, err := runRequest(t, s, "r3", smallStages())
	if err != nil {
		return "store after the repair: " + err.Error()
	}
	d, err := s.Seal(ctx, req)
	if err != nil {
		return "seal after the repair: " + err.Error()
	}
	if v, err := s.Verify(ctx, d); err != nil || v.Verdict != Valid {
		return "a run that was sealed after the repair is not valid"
	}
	return ""
}
