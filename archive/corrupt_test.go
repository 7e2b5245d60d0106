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

	"assay/schemas"
)

// faultAt is where a blob of the sample run belongs.
type faultAt struct {
	blob  schemas.Digest
	kind  string
	stage string
	paths []string // one of them must be named
}

func faultsOf(t *testing.T, run *Run) []faultAt {
	t.Helper()
	out := []faultAt{{run.Digest, "manifest", "", []string{nameManifest}}, {digestOf(run.Manifest.Config), "config", "", []string{nameConfig}}}
	for _, d := range run.Manifest.Layers {
		f := faultAt{blob: digestOf(d), kind: string(d.MediaType)}
		if title := d.Annotations[annotationTitle]; title != "" {
			f.paths = []string{title}
		}
		for _, r := range run.Config.Records {
			if r.Digest == f.blob || r.Record.Tree == f.blob || r.Record.Key.Preimage() == f.blob {
				f.stage = r.Record.Stage
			}
		}
		for _, e := range run.Files.Entries {
			for _, p := range e.Parts {
				if p.Blob == f.blob {
					f.paths = append(f.paths, e.Path)
					f.stage = strings.Split(e.Path, "/")[1]
				}
			}
		}
		out = append(out, f)
	}
	return out
}

// check asks for a finding with the blob, the stage and a path.
func (f faultAt) check(t *testing.T, v Verdict, id string) {
	t.Helper()
	for _, got := range v.Findings {
		named := append([]string{got.Path}, got.Paths...)
		hit := slices.ContainsFunc(f.paths, func(p string) bool { return slices.Contains(named, p) })
		if got.Blob == f.blob && got.Stage == f.stage && hit && (f.stage == "" || got.Trial == "t001") && (id == "" || got.ID == id) {
			return
		}
	}
	t.Errorf("%s %s: no finding %s names blob, stage %q and one of %v: %+v", f.kind, f.blob, id, f.stage, f.paths, v.Findings)
}

func TestEveryFaultIsNamed(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	d := sealRun(t, s, "r1", "", bigStages())
	run, err := s.Run(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, f := range faultsOf(t, run) {
		kinds[f.kind] = true
		path := s.blobPath(f.blob)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damage := func(bad []byte, id string) {
			t.Helper()
			if bad == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, bad, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			v, err := s.Verify(ctx, d)
			wantVerdict(t, v, err, Invalid)
			f.check(t, v, id)
			if err := os.WriteFile(path, good, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range []int{0, len(good) / 2, len(good) - 1} {
			bad := slices.Clone(good)
			bad[at] ^= 0x10
			damage(bad, "")
		}
		damage(good[:len(good)/2], "")
		damage(append(slices.Clone(good), 'x'), "")
		damage(nil, "")
	}
	for _, want := range []string{MediaPack, MediaPart, MediaPartZstd, MediaRecord, MediaPreimage, MediaTree, MediaFiles, MediaReport, MediaSource} {
		if !kinds[want] {
			t.Errorf("the sample run has no blob of type %s", want)
		}
	}
	v, err := s.Verify(ctx, d)
	wantVerdict(t, v, err, Valid)
}

// Inside a pack, the first path that no longer matches is named.
func TestFirstPathInPack(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	files := map[string]string{}
	for _, n := range []string{"a", "b", "c", "d"} {
		files["outputs/x/"+n] = noise(300_000, uint64(n[0]))
	}
	d := sealRun(t, s, "r1", "", map[string]map[string]string{"gen": files})
	run, err := s.Run(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	blob := run.Files.Blobs[0].Digest
	good, err := os.ReadFile(s.blobPath(blob))
	if err != nil {
		t.Fatal(err)
	}
	// The content does not compress, so its offsets are close to those in the blob.
	for i, name := range []string{"a", "b", "c", "d"} {
		want := "stages/gen/t001/outputs/x/" + name
		bad := slices.Clone(good)
		bad[i*300_600+150_000] ^= 1
		for id, b := range map[string][]byte{"archive.blob-corrupt": bad, "archive.blob-truncated": good[:i*300_600+150_000]} {
			if err := os.WriteFile(s.blobPath(blob), b, 0o644); err != nil {
				t.Fatal(err)
			}
			v, err := s.Verify(ctx, d)
			wantVerdict(t, v, err, Invalid)
			// A block of zstd is checked as a whole, so the fault may show up to a block early.
			f := v.Findings[0]
			if len(v.Findings) != 1 || f.ID != id || f.Path != want || f.Stage != "gen" {
				t.Errorf("%s in %s: %+v", id, name, v.Findings)
			}
		}
	}
	if err := os.Remove(s.blobPath(blob)); err != nil {
		t.Fatal(err)
	}
	v, err := s.Verify(ctx, d)
	wantVerdict(t, v, err, Invalid)
	if f := v.Findings[0]; f.ID != "archive.blob-missing" || len(f.Paths) != 4 || f.Stage != "gen" {
		t.Errorf("missing pack: %+v, want all four paths", f)
	}
}

// What verify reports, reading refuses.
func TestCorruptContentIsNotHandedOut(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	d := sealRun(t, s, "r1", "", bigStages())
	run, err := s.Run(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range run.Files.Blobs {
		raw, err := os.ReadFile(s.blobPath(b.Digest))
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)/2] ^= 1
		if err := os.WriteFile(s.blobPath(b.Digest), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var corrupt *CorruptError
	for _, e := range run.Files.Entries {
		if len(e.Parts) == 0 || e.Size < largeFileBytes {
			continue
		}
		r, err := run.OpenFile(ctx, e.Path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); !errors.As(err, &corrupt) || corrupt.Path != e.Path {
			t.Errorf("%s was read to the end: %v", e.Path, err)
		}
		_ = r.Close()
	}
	tree := run.Config.Records[1].Record.Tree
	if err := s.CheckTree(ctx, tree); !errors.As(err, &corrupt) {
		t.Errorf("CheckTree: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := s.Materialize(ctx, tree, "", dir); !errors.As(err, &corrupt) {
		t.Errorf("Materialize: %v", err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("Materialize left a folder behind")
	}
	if err := run.Extract(ctx, dir); !errors.As(err, &corrupt) {
		t.Errorf("Extract: %v", err)
	}
	if names, _ := os.ReadDir(filepath.Dir(dir)); len(names) != 0 {
		t.Errorf("%d names left beside the folder", len(names))
	}
}

// A file that may not be read is unknown, not invalid.
func TestUnreadableIsUnknown(t *testing.T) {
	s := newStore(t)
	d := sealRun(t, s, "r1", "", smallStages())
	run, err := s.Run(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	path := s.blobPath(run.Files.Blobs[0].Digest)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(path); err == nil {
		_ = f.Close()
		t.Skip("this user may read everything")
	}
	v, err := s.Verify(context.Background(), d)
	wantVerdict(t, v, err, Unknown)
}

// A blob that a crash of the file system tore is replaced by the next one who
// has its bytes.
func TestTornBlobIsReplaced(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	dir := writeFiles(t, smallStages()["replay"])
	tree, doc, err := s.PutTree(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []schemas.Digest{tree.Blobs[0].Digest, doc} {
		if err := os.Truncate(s.blobPath(d), 3); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.PutTree(ctx, dir); err != nil {
			t.Fatal(err)
		}
		if err := s.CheckTree(ctx, doc); err != nil {
			t.Errorf("after replacing %s: %v", d, err)
		}
	}
}
