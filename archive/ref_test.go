package archive

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"assay/schemas"
)

// writeTar packs a folder as `tar -C dir -cf` would.
func writeTar(t *testing.T, dir, prefix string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "layout.tar")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		h, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		h.Name = prefix + rel
		if err := tw.WriteHeader(h); err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil {
			_, err = tw.Write(b)
		}
		return err
	})
	if err := errors.Join(err, tw.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestResolve(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	first := sealRun(t, s, "r1", "baseline", smallStages())
	second := sealRun(t, s, "r2", "feed", smallStages())
	plainTar, dotTar := writeTar(t, s.Dir(), ""), writeTar(t, s.Dir(), "./")
	t.Chdir(filepath.Dir(s.Dir()))
	for ref, want := range map[string]schemas.Digest{
		string(first):                       first,
		first.Hex():                         first,
		"sha256:" + first.Hex()[:6]:         first,
		second.Hex()[:8]:                    second,
		"baseline":                          first,
		"feed":                              second, // a tag, though it could be a prefix
		"latest":                            second,
		"latest:demo/sample":                second,
		s.Dir():                             second,
		"./store":                           second,
		"store":                             second,
		s.Dir() + ":baseline":               first,
		"./store:" + string(first):          first,
		"./store:sha256:" + first.Hex()[:8]: first,
		plainTar + ":" + string(first):      first,
		plainTar:                            second,
		plainTar + ":baseline":              first,
		dotTar + ":" + first.Hex()[:12]:     first,
	} {
		got, err := s.Resolve(ctx, ref)
		if err != nil || got.Digest != want || got.Name != ref {
			t.Errorf("%s: %+v, %v, want %s", ref, got, err, want)
			continue
		}
		v, err := got.Verify(ctx)
		wantVerdict(t, v, err, Valid)
	}
	for ref, hint := range map[string]string{
		"":                                   "empty",
		"baselin":                            "nearest tags: baseline",
		"latest:demo/other":                  "no run of experiment",
		"sha256:" + strings.Repeat("0", 64):  "nearest tags",
		"./none":                             "no such file",
		s.Dir() + ":nope":                    "nearest tags",
		"oci://example.org/x:y":              "registries",
		filepath.Dir(s.Dir()):                "neither an OCI layout",
		filepath.Join(s.Dir(), "index.json"): "no tar",
	} {
		_, err := s.Resolve(ctx, ref)
		if err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: error %v, want one that says %q", ref, err, hint)
		}
	}
	for _, ref := range []string{"baselin", "ffffffff", "latest:demo/other", "./none", s.Dir() + ":nope"} {
		if _, err := s.Resolve(ctx, ref); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: error %v is not fs.ErrNotExist", ref, err)
		}
	}
	if _, err := s.Resolve(ctx, "oci://h/r:t"); !errors.Is(err, ErrRegistry) {
		t.Errorf("registry: %v", err)
	}
}

func TestAmbiguousPrefix(t *testing.T) {
	runs := []RunInfo{{Digest: schemas.Digest("sha256:" + strings.Repeat("ab", 32))}, {Digest: schemas.Digest("sha256:abab" + strings.Repeat("c", 60))}}
	if _, err := pick(runs, "abab"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "more digits") {
		t.Errorf("ambiguous prefix: %v", err)
	}
	if d, err := pick(runs, "ababc"); err != nil || d != runs[1].Digest {
		t.Errorf("longer prefix: %s, %v", d, err)
	}
	if _, err := pick(runs, "aba"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("three digits: %v", err)
	}
}

func TestTags(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	first := sealRun(t, s, "r1", "a", smallStages())
	second := sealRun(t, s, "r2", "", smallStages())
	tags := func(d schemas.Digest) string {
		t.Helper()
		runs, err := s.Runs(ctx)
		if err != nil || len(runs) != 2 {
			t.Fatalf("%d runs, %v, want 2", len(runs), err)
		}
		for _, r := range runs {
			if r.Digest == d {
				return strings.Join(r.Tags, ",")
			}
		}
		return "?"
	}
	steps := []struct {
		do            func() error
		first, second string
		fails         bool
	}{
		{func() error { return nil }, "a", "", false},
		{func() error { return s.Tag(ctx, "b", first) }, "a,b", "", false},
		{func() error { return s.Tag(ctx, "a", second) }, "b", "a", false},
		{func() error { return s.Tag(ctx, "a", second) }, "b", "a", false},
		{func() error { return s.Untag(ctx, "b") }, "", "a", false},
		{func() error { return s.Untag(ctx, "b") }, "", "a", true},
		{func() error { return s.Tag(ctx, "c", schemas.DigestOf(nil)) }, "", "a", true},
		{func() error { return s.Tag(ctx, "bad tag", first) }, "", "a", true},
		{func() error { return s.Tag(ctx, "latest", first) }, "", "a", true},
	}
	for i, step := range steps {
		if err := step.do(); (err != nil) != step.fails {
			t.Errorf("step %d: %v", i, err)
		}
		if a, b := tags(first), tags(second); a != step.first || b != step.second {
			t.Errorf("step %d: tags %q and %q, want %q and %q", i, a, b, step.first, step.second)
		}
	}
}

// Several handles, as several processes have them, seal at once: no run is lost
// and each has a number of its own.
func TestConcurrentSeals(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	var wg sync.WaitGroup
	const handles, each = 4, 3
	for h := range handles {
		wg.Add(1)
		go func() {
			defer wg.Done()
			mine, err := Open(s.Dir())
			if err != nil {
				t.Error(err)
				return
			}
			for i := range each {
				id := string(rune('a'+h)) + string(rune('0'+i))
				req, err := runRequest(t, mine, id, tinyStages())
				if err == nil {
					req.Tag = "t-" + id
					_, err = mine.Seal(ctx, req)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	runs, err := s.Runs(ctx)
	if err != nil || len(runs) != handles*each {
		t.Fatalf("%d runs, %v, want %d", len(runs), err, handles*each)
	}
	for i, r := range runs {
		if r.Sequence != int64(i+1) || len(r.Tags) != 1 || r.Tags[0] != "t-"+r.ID {
			t.Errorf("run %d: %+v", i, r)
		}
	}
	recs, err := s.RecordsByStage(ctx, "demo/sample", "gen")
	if err != nil || len(recs) != handles*each {
		t.Errorf("%d records, %v, want %d", len(recs), err, handles*each)
	}
}

func TestRecords(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	req, err := runRequest(t, s, "r1", smallStages())
	if err != nil {
		t.Fatal(err)
	}
	key := req.Run.Records[0].Record.Key
	list := func() []schemas.StoredRecord {
		t.Helper()
		recs, err := s.RecordsByKey(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return recs
	}
	if recs := list(); len(recs) != 1 || recs[0].Sealed || recs[0].Digest != req.Run.Records[0].Digest {
		t.Fatalf("before sealing: %+v", recs)
	}
	if _, err := s.Seal(ctx, req); err != nil {
		t.Fatal(err)
	}
	sealRun(t, s, "r2", "", smallStages())
	recs := list()
	if len(recs) != 2 || !recs[0].Sealed || recs[0].Record.Run != "r1" || recs[1].Record.Run != "r2" {
		t.Fatalf("by key, oldest first: %+v", recs)
	}
	byStage, err := s.RecordsByStage(ctx, "demo/sample", "gen")
	if err != nil || len(byStage) != 2 || byStage[0].Record.Run != "r2" {
		t.Fatalf("by stage, newest first: %+v, %v", byStage, err)
	}
	pre, err := s.Preimage(ctx, key)
	if err != nil || schemas.DigestOf(pre) != key.Preimage() {
		t.Errorf("preimage: %q, %v", pre, err)
	}
	if _, err := s.PutRecord(ctx, recs[0].Record, []byte("{}")); err == nil {
		t.Error("took a preimage that is not the key's")
	}
	rebuilt(t, s, key)
}

// rebuilt loses the index, then one record, and expects the rest.
func rebuilt(t *testing.T, s *Store, key schemas.Key) {
	t.Helper()
	ctx := context.Background()
	if err := os.Remove(s.path(recordIndexName)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Rebuild(ctx); err != nil || n != 4 {
		t.Fatalf("rebuilt %d records, %v, want 4", n, err)
	}
	recs, err := s.RecordsByKey(ctx, key)
	if err != nil || len(recs) != 2 {
		t.Fatalf("after rebuilding: %+v, %v", recs, err)
	}
	if err := os.WriteFile(s.blobPath(recs[0].Digest), []byte("{\"attempt\":"), 0o644); err != nil {
		t.Fatal(err)
	}
	left, err := s.RecordsByKey(ctx, key)
	if err != nil || len(left) != 1 || left[0].Digest != recs[1].Digest {
		t.Errorf("with one record spoilt: %+v, %v", left, err)
	}
	if n, err := s.Rebuild(ctx); err != nil || n != 3 {
		t.Errorf("rebuilt %d records, %v, want 3", n, err)
	}
}

func TestOpenAndCreate(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, ErrNotStore) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of an empty folder: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, ErrNotStore) {
		t.Errorf("open of a missing folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, make := range []func(string) (*Store, error){Create, OpenOrCreate} {
		if _, err := make(dir); err == nil || strings.Contains(err.Error(), "%!") {
			t.Errorf("made a store among other files: %v", err)
		}
	}
	s, err := OpenOrCreate(filepath.Join(dir, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenOrCreate(s.Dir()); err != nil {
		t.Error(err)
	}
	if _, err := Create(s.Dir()); err == nil {
		t.Error("made a store over a store")
	}
	if err := os.WriteFile(s.path("assay/format.json"), []byte(`{"format":"assay-store","version":2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func(string) (*Store, error){Open, OpenOrCreate} {
		if _, err := open(s.Dir()); err == nil || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("store of a later version: %v", err)
		}
	}
}

// The tar source hands out the members' own bytes.
func TestTarSource(t *testing.T) {
	s := newStore(t)
	sealRun(t, s, "r1", "", bigStages())
	src, err := openTar(writeTar(t, s.Dir(), ""))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for name := range src.files {
		hex, ok := strings.CutPrefix(name, blobsDir+"/")
		if !ok {
			continue
		}
		r, _, err := src.open(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil || schemas.DigestOf(b).Hex() != hex {
			t.Errorf("%s: %d bytes hash to %s, %v", name, len(b), schemas.DigestOf(b), err)
		}
		checked++
	}
	if checked < 10 {
		t.Errorf("%d blobs in the tar", checked)
	}
}

// `tar -cf s.tar .assay` puts the store into a folder.
func TestTarWithOneFolderAround(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	run := sealRun(t, s, "r1", "baseline", smallStages())
	for prefix, want := range map[string]bool{"store/": true, "a/b/": false} {
		ref, err := ResolvePath(ctx, writeTar(t, s.Dir(), prefix))
		if (err == nil) != want || (want && ref.Digest != run) {
			t.Errorf("%s: %s, %v", prefix, ref.Digest, err)
		}
	}
}

func TestPipesAreNoReferences(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ResolvePath(context.Background(), pipe); err == nil {
		t.Error("a pipe was taken for a tar")
	}
}
