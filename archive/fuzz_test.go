package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"assay/schemas"
)

// FuzzIndex reads an index and, when it cannot be read, what tags it still tells.
// What is read can be changed and written again; no tag that is salvaged breaks
// the rules.
func FuzzIndex(f *testing.F) {
	descriptor := `{"mediaType":"` + mediaManifest + `","size":2,"digest":"` + string(fixtureRun) + `","annotations":{"` + annotationCreated + `":"x","` + annotationTag +
		`":"a"},"artifactType":"` + ArtifactType + `"}`
	whole := `{"schemaVersion":2,"manifests":[` + descriptor + `]}`
	run := fixtureRun
	hash, err := v1.NewHash(string(run))
	if err != nil {
		f.Fatal(err)
	}
	for _, cut := range []int{0, 1, len(whole) / 3, len(whole) / 2, len(whole) - 3} {
		f.Add([]byte(whole[:len(whole)-cut]))
		f.Add([]byte(whole[cut:]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fresh := v1.IndexManifest{SchemaVersion: 2, Manifests: []v1.Descriptor{{MediaType: types.OCIManifestSchema1, ArtifactType: ArtifactType, Digest: hash, Annotations: map[string]string{}}}}
		saved, lost := salvageTags(&fresh, b)
		tags := runsOf(fresh)[0].Tags
		if len(tags) != saved {
			t.Errorf("%d tags saved, %v are there", saved, tags)
		}
		for _, tag := range tags {
			if CheckTag(tag) != nil || !bytes.Contains(b, []byte(tag)) {
				t.Errorf("salvaged %q", tag)
			}
			for _, l := range lost {
				if l == tag {
					t.Errorf("%q is both saved and lost", tag)
				}
			}
		}
		x, err := parseIndex(b)
		if err != nil {
			return
		}
		for _, r := range runsOf(x) {
			if !r.Digest.Valid() {
				t.Errorf("accepted run %q", r.Digest)
			}
		}
		before := runIDs(x)
		if err := addRun(&x, fresh.Manifests[0], "fuzz"); err != nil {
			return
		}
		sortIndex(x.Manifests)
		again, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		y, err := parseIndex(again)
		if err != nil {
			t.Fatalf("accepted, and refused when written again: %v", err)
		}
		if after := runIDs(y); len(after) < len(before) || after[run] == "" && y.Manifests == nil {
			t.Errorf("%d runs were %d", len(after), len(before))
		}
	})
}

// FuzzTarLayout verifies and extracts every run of a tar of a layout in which a
// piece was replaced, and which was cut: nothing is written outside of the folder,
// and what is extracted is what its digest says.
func FuzzTarLayout(f *testing.F) {
	ctx := context.Background()
	s := newStore(f)
	run := sealRun(f, s, "r1", "kept", tinyStages())
	file := filepath.Join(f.TempDir(), "run.tar")
	if _, err := s.SaveTar(ctx, run, "kept", file); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(0), []byte{}, uint16(0))
	f.Add(uint16(0), []byte("../../x"), uint16(0))
	f.Add(uint16(512), []byte(`{"imageLayoutVersion":"2"}`), uint16(0))
	f.Add(uint16(1024+156), []byte("2"), uint16(600)) // a link instead of the index
	f.Add(uint16(1024+124), []byte("77777777777"), uint16(0))
	f.Add(uint16(1536+30), []byte(`"manifests":[]`), uint16(1024))
	f.Fuzz(func(t *testing.T, at uint16, piece []byte, cut uint16) {
		b := bytes.Clone(whole[:max(0, len(whole)-int(cut))])
		copy(b[min(int(at), len(b)):], piece)
		box := t.TempDir()
		place := filepath.Join(box, "in.tar")
		if err := os.WriteFile(place, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLayout(place)
		if err != nil {
			return
		}
		runs, err := l.Runs(ctx)
		if err != nil {
			return
		}
		for _, r := range runs[:min(len(runs), 3)] {
			v, err := l.Verify(ctx, r.Digest)
			if err == nil && v.Verdict == Valid && r.Digest != run {
				t.Errorf("another run is valid: %s", r.Digest)
			}
			out := filepath.Join(box, "box", "out")
			opened, err := l.Run(ctx, r.Digest)
			if err != nil {
				continue
			}
			if err := opened.Extract(ctx, out); err == nil {
				got, err := os.ReadFile(filepath.Join(out, nameManifest))
				if err != nil || schemas.DigestOf(got) != r.Digest {
					t.Errorf("extracted another manifest than %s: %v", r.Digest, err)
				}
			}
			if entries, err := os.ReadDir(box); err != nil || len(entries) > 2 {
				t.Errorf("extracting wrote beside its folder: %v, %v", entries, err)
			}
			if err := os.RemoveAll(filepath.Join(box, "box")); err != nil {
				t.Fatal(err)
			}
		}
	})
}
