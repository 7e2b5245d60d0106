package archive

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/schemas"
)

// A file of several parts is stored, read, verified and blamed like any other.
func TestFilesInSeveralParts(t *testing.T) {
	ctx := context.Background()
	old := partLimit
	defer func() { partLimit = old }()
	partLimit = 1_500_000
	s := newStore(t)
	stages := bigStages()
	d := sealRun(t, s, "r1", "", stages)
	run, err := s.Run(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Verify(ctx, d)
	wantVerdict(t, v, err, Valid)
	out := filepath.Join(t.TempDir(), "out")
	if err := run.Materialize(ctx, "stages/replay/t001", out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(snapshot(t, writeFiles(t, stages["replay"])), snapshot(t, out)); diff != "" {
		t.Errorf("what came back differs:\n%s", diff)
	}
	several := 0
	for _, e := range run.Files.Entries {
		if len(e.Parts) < 2 {
			continue
		}
		several++
		r, err := run.OpenFile(ctx, e.Path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		_ = r.Close()
		if want := stages["replay"][strings.TrimPrefix(e.Path, "stages/replay/t001/")]; err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v, want %d", e.Path, len(got), err, len(want))
		}
		blob := e.Parts[1].Blob
		good, err := os.ReadFile(s.blobPath(blob))
		if err != nil {
			t.Fatal(err)
		}
		bad := slices.Clone(good)
		bad[len(bad)/2] ^= 1
		for _, b := range [][]byte{bad, good[:len(good)-1], nil} {
			if err := errors.Join(os.Remove(s.blobPath(blob)), writeUnlessNil(s.blobPath(blob), b)); err != nil {
				t.Fatal(err)
			}
			v, err := s.Verify(ctx, d)
			wantVerdict(t, v, err, Invalid)
			if !slices.ContainsFunc(v.Findings, func(f schemas.Finding) bool { return f.Blob == blob && f.Path == e.Path && f.Stage == "replay" }) {
				t.Errorf("%s: findings %+v do not name blob %s and the path", e.Path, v.Findings, blob)
			}
			if err := os.WriteFile(s.blobPath(blob), good, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if several != 2 {
		t.Errorf("%d files in several parts, want 2", several)
	}
}

func writeUnlessNil(path string, b []byte) error {
	if b == nil {
		return nil
	}
	return os.WriteFile(path, b, 0o644)
}

// With its index damaged, a run can still be named by its digest, and verify
// says what is wrong.
func TestDamagedIndex(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	d := sealRun(t, s, "r1", "x", smallStages())
	good, err := os.ReadFile(s.path(indexName))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"torn": good[:len(good)/2], "gone": nil, "annotation": []byte(strings.Replace(string(good), "passed", "failed", 1)),
		"version": []byte(strings.Replace(string(good), `"schemaVersion":2`, `"schemaVersion":1`, 1)),
	} {
		if err := errors.Join(os.Remove(s.path(indexName)), writeUnlessNil(s.path(indexName), b)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resolve(ctx, "latest"); name != "annotation" && !errors.Is(err, ErrIndex) {
			t.Errorf("%s: latest: %v, want ErrIndex", name, err)
		}
		ref, err := s.Resolve(ctx, string(d))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v, err := ref.Verify(ctx)
		wantVerdict(t, v, err, Invalid)
		if f := v.Findings[0]; len(v.Findings) != 1 || f.ID != "archive.index" || f.Path != indexName {
			t.Errorf("%s: %+v", name, v.Findings)
		}
		if err := os.WriteFile(s.path(indexName), good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
