package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/schemas"
)

func TestSealReadVerifyExtract(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	stages := bigStages()
	d := sealRun(t, s, "r1", "first", stages)

	run, err := s.Run(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	if run.Config.ID != "r1" || run.Report.RunID != "r1" || run.Report.Files.Digest != run.Files.Digest {
		t.Errorf("config %s, report %s with file list %s, want r1 with %s", run.Config.ID, run.Report.RunID, run.Report.Files.Digest, run.Files.Digest)
	}
	v, err := s.Verify(ctx, d)
	wantVerdict(t, v, err, Valid)
	if len(v.Findings) != 0 || v.Files != 8 || v.Blobs < 10 {
		t.Errorf("%d findings over %d files and %d blobs, want none over 8 and more than 10: %+v", len(v.Findings), v.Files, v.Blobs, v.Findings)
	}
	for name, content := range stages["replay"] {
		if name == "outputs/requests/dir/" || name == "outputs/requests/last" {
			continue
		}
		r, err := run.OpenFile(ctx, "stages/replay/t001/"+name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || string(got) != content {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(content))
		}
	}
	if _, err := run.OpenFile(ctx, "stages/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of a path that is not there: %v", err)
	}
	checkExtract(t, s, run)
}

func checkExtract(t *testing.T, s *Store, run *Run) {
	t.Helper()
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "out")
	if err := run.Extract(ctx, dir); err != nil {
		t.Fatal(err)
	}
	if err := run.Extract(ctx, dir); err == nil {
		t.Error("extracted into a folder that is not empty")
	}
	ref, err := s.Resolve(ctx, dir)
	if err != nil || ref.Digest != run.Digest || ref.Folder == "" {
		t.Fatalf("extracted folder resolves to %+v, %v, want %s", ref, err, run.Digest)
	}
	v, err := ref.Verify(ctx)
	wantVerdict(t, v, err, Valid)
	again, err := ref.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(run.Config, again.Config); diff != "" {
		t.Errorf("config of the extracted run differs: %s", diff)
	}
	// The stage's folder alone has the digest that its record gives.
	tree, _, err := newStore(t).PutTree(ctx, filepath.Join(dir, "stages/replay/t001"))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := s.Tree(ctx, run.Config.Records[1].Record.Tree)
	if err != nil || stored.Digest != tree.Digest {
		t.Errorf("extracted stage hashes to %s, stored tree to %s, %v", tree.Digest, stored.Digest, err)
	}
	target := filepath.Join(dir, "stages/replay/t001/outputs/requests/r.jsonl")
	if err := os.WriteFile(target, []byte("forged"), 0o644); err != nil {
		t.Fatal(err)
	}
	v, err = ref.Verify(ctx)
	wantVerdict(t, v, err, Invalid)
	if f := v.Findings[0]; f.Stage != "replay" || f.Trial != "t001" || f.Path != "stages/replay/t001/outputs/requests/r.jsonl" {
		t.Errorf("finding %+v names the wrong place", f)
	}
}

func TestSealIsDeterministic(t *testing.T) {
	var digests []schemas.Digest
	for range 2 {
		digests = append(digests, sealRun(t, newStore(t), "r1", "", bigStages()))
	}
	if digests[0] != digests[1] {
		t.Errorf("equal runs are sealed as %s and %s", digests[0], digests[1])
	}
}

// With room for few layers, documents are bundled and packs are filled up; the
// run verifies, extracts and reads as before.
func TestManyLayers(t *testing.T) {
	old := layerLimit
	defer func() { layerLimit = old }()
	stages := map[string]map[string]string{}
	for _, n := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		stages[n] = map[string]string{"outputs/x/f": noise(3000, uint64(n[0])), "logs/stage.log": n}
	}
	layerLimit = fixedLayers + 5
	s := newStore(t)
	d := sealRun(t, s, "r1", "", stages)
	run, err := s.Run(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(run.Files.Blobs); n != 1 {
		t.Errorf("%d packs, want 1", n)
	}
	layerLimit = 10
	d = sealRun(t, s, "r2", "", stages)
	if run, err = s.Run(context.Background(), d); err != nil {
		t.Fatal(err)
	}
	if n := len(layersOf(run.Manifest, MediaDocuments)); n != 1 || len(run.Manifest.Layers) > 10 {
		t.Errorf("%d bundles in %d layers, want 1 in at most 10", n, len(run.Manifest.Layers))
	}
	v, err := s.Verify(context.Background(), d)
	wantVerdict(t, v, err, Valid)
	// Elsewhere only what the manifest names arrives.
	other := &Layout{src: folderSource{copyManifestOnly(t, s, run)}, name: "copy"}
	v, err = other.Verify(context.Background(), d)
	wantVerdict(t, v, err, Valid)
	copied, err := other.Run(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := copied.Extract(context.Background(), filepath.Join(t.TempDir(), "out")); err != nil {
		t.Error(err)
	}
}

// copyManifestOnly copies the layout with the blobs of one manifest only.
func copyManifestOnly(t *testing.T, s *Store, run *Run) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, blobsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{"oci-layout", indexName, blobName(run.Digest), blobName(digestOf(run.Manifest.Config))}
	for _, d := range run.Manifest.Layers {
		names = append(names, blobName(digestOf(d)))
	}
	for _, n := range names {
		b, err := os.ReadFile(s.path(n))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, n), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSealRefusals(t *testing.T) {
	s := newStore(t)
	good, err := runRequest(t, s, "r1", smallStages())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*schemas.SealRequest){
		"no id":        func(r *schemas.SealRequest) { r.Run.ID = "" },
		"bad tag":      func(r *schemas.SealRequest) { r.Tag = "-x" },
		"reserved tag": func(r *schemas.SealRequest) { r.Tag = "latest" },
		"no report":    func(r *schemas.SealRequest) { r.Report = nil },
		"invalid report": func(r *schemas.SealRequest) {
			r.Report = func(schemas.FileSummary) (schemas.Report, error) { return schemas.Report{}, nil }
		},
		"missing record":   func(r *schemas.SealRequest) { r.Run.Records = replaceDigest(r.Run.Records) },
		"path escapes":     func(r *schemas.SealRequest) { r.Run.Records = replacePath(r.Run.Records, "../x") },
		"path reserved":    func(r *schemas.SealRequest) { r.Run.Records = replacePath(r.Run.Records, "report.json") },
		"path without":     func(r *schemas.SealRequest) { r.Run.Records = replacePath(r.Run.Records, "") },
		"paths disagree":   func(r *schemas.SealRequest) { r.Run.Records = replacePath(r.Run.Records, "stages/replay/t001") },
		"invalid status":   func(r *schemas.SealRequest) { r.Run.Status = "fine" },
		"missing preimage": func(r *schemas.SealRequest) { r.Run.Preimages = []schemas.Digest{schemas.DigestOf([]byte("none"))} },
	} {
		t.Run(name, func(t *testing.T) {
			req := good
			change(&req)
			if d, err := s.Seal(context.Background(), req); err == nil {
				t.Errorf("sealed as %s", d)
			}
		})
	}
	if runs, err := s.Runs(context.Background()); err != nil || len(runs) != 0 {
		t.Errorf("%d runs after refusals, %v", len(runs), err)
	}
}

func replaceDigest(list []schemas.RunRecord) []schemas.RunRecord {
	out := append([]schemas.RunRecord(nil), list...)
	out[0].Digest = schemas.DigestOf([]byte("not there"))
	return out
}

func replacePath(list []schemas.RunRecord, p string) []schemas.RunRecord {
	out := append([]schemas.RunRecord(nil), list...)
	out[0].Path = p
	return out
}
