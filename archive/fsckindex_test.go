package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/schemas"
)

// once lets fn happen at the first report of a phase.
func once(ctx context.Context, phase string, fn func()) context.Context {
	done := false
	return WithProgress(ctx, func(p Progress) {
		if p.Phase == phase && !done {
			done = true
			fn()
		}
	})
}

// What other processes do while a store is checked is no damage.
func TestFsckBesideOthers(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, s *Store, first schemas.Digest){
		"seal": func(t *testing.T, s *Store, _ schemas.Digest) {
			sealRun(t, s, "r2", "new", map[string]map[string]string{"other": {"outputs/x/f": "of another run"}})
		},
		"remove and collect": func(t *testing.T, s *Store, first schemas.Digest) {
			remove(t, s, first)
			age(t, s)
			collect(t, s, GCOptions{Apply: true})
		},
		"replace": func(t *testing.T, s *Store, first schemas.Digest) {
			remove(t, s, first)
			age(t, s)
			collect(t, s, GCOptions{Apply: true})
			sealRun(t, s, "r2", "new", map[string]map[string]string{"other": {"outputs/x/f": "of another run"}})
		},
		"tag": func(t *testing.T, s *Store, first schemas.Digest) {
			for i := range 3 {
				if err := s.Tag(context.Background(), fmt.Sprint("name", i), first); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		for _, phase := range []string{PhaseVerify, PhaseMark, PhaseCheck} {
			for _, repair := range []bool{false, true} {
				if repair && name != "seal" && name != "tag" {
					continue // gc and repairs exclude each other
				}
				t.Run(fmt.Sprint(name, " in ", phase, repair), func(t *testing.T) {
					s := newStore(t)
					first := sealRun(t, s, "r1", "kept", smallStages())
					other := reopen(t, s.Dir())
					ctx := once(context.Background(), phase, func() { act(t, other, first) })
					r, err := s.Fsck(ctx, FsckOptions{Repair: repair})
					if err != nil || !r.Sound || len(r.Findings) != 0 || len(r.Repaired) != 0 {
						t.Errorf("%+v, %v", r, err)
					}
				})
			}
		}
	}
}

// editIndex changes index.json as another tool, or damage, may.
func editIndex(t *testing.T, s *Store, edit func(x *v1.IndexManifest)) {
	t.Helper()
	b, err := os.ReadFile(s.path(indexName))
	if err != nil {
		t.Fatal(err)
	}
	x, err := parseIndex(b)
	if err != nil {
		t.Fatal(err)
	}
	edit(&x)
	if b, err = json.Marshal(x); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path(indexName), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What index.json says of a run and the run denies is found and corrected; tags
// stay.
func TestIndexContradictsBlobs(t *testing.T) {
	ctx := context.Background()
	note := func(key, value string) func(d *v1.Descriptor) {
		return func(d *v1.Descriptor) { d.Annotations[key] = value }
	}
	for name, change := range map[string]func(d *v1.Descriptor){
		"created": note(annotationCreated, "1999-01-01T00:00:00Z"), "status": note(annotationStatus, "failed"), "run": note(annotationRun, "r7"),
		"experiment": note(annotationExperiment, "other"), "sequence": note(annotationSequence, "x"),
		"media type":       func(d *v1.Descriptor) { d.MediaType = "application/vnd.oci.image.manifest.v2+json" },
		"artifact type":    func(d *v1.Descriptor) { d.ArtifactType = "application/vnd.assay.sun.v1+json" },
		"size":             func(d *v1.Descriptor) { d.Size++ },
		"digest":           func(d *v1.Descriptor) { d.Digest.Hex = strings.Repeat("0", 64) },
		"lost annotations": func(d *v1.Descriptor) { delete(d.Annotations, annotationRun) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			sealRun(t, s, "r0", "zero", tinyStages())
			run := sealRun(t, s, "r1", "kept", smallStages())
			before, err := s.Runs(ctx)
			if err != nil {
				t.Fatal(err)
			}
			editIndex(t, s, func(x *v1.IndexManifest) {
				for i := range x.Manifests {
					if digestOf(x.Manifests[i]) == run {
						change(&x.Manifests[i])
					}
				}
			})
			first := check(t, s, false)
			if first.Sound || findingIDs(first) != "index/error index/warning" {
				t.Errorf("found %+v", first.Findings)
			}
			r := check(t, s, true)
			if len(r.Repaired) == 0 || !slices.Contains(r.Quarantined, indexName) {
				t.Errorf("repaired %v", r.Repaired)
			}
			if left := check(t, reopen(t, s.Dir()), false); findingIDs(left) != "quarantine/info" {
				t.Errorf("after the repair: %+v", left.Findings)
			}
			after, err := s.Runs(ctx)
			if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("runs %+v, %v, want %+v", after, err, before)
			}
			v, err := s.Verify(ctx, run)
			wantVerdict(t, v, err, Valid)
		})
	}
}

// A tag does not copy what is wrong.
func TestTagCorrectsDescriptor(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "r1", "", smallStages())
	editIndex(t, s, func(x *v1.IndexManifest) {
		x.Manifests[0].Size, x.Manifests[0].Annotations[annotationStatus] = 7, "failed"
	})
	if err := s.Tag(context.Background(), "good", run); err != nil {
		t.Fatal(err)
	}
	if r := check(t, s, false); findingIDs(r) != "" {
		t.Errorf("%+v", r.Findings)
	}
}

// No changed bit of index.json goes unnoticed, and no tag is lost by one without
// being named.
func TestIndexBitFlips(t *testing.T) {
	s := newStore(t)
	sealRun(t, s, "r0", "zero", tinyStages())
	sealRun(t, s, "r1", "kept", tinyStages())
	good, err := os.ReadFile(s.path(indexName))
	if err != nil {
		t.Fatal(err)
	}
	note, err := os.ReadFile(s.path(indexSumName))
	if err != nil {
		t.Fatal(err)
	}
	want := tagsOf(t, s)
	for at := 0; at < len(good); at += 13 {
		bad := slices.Clone(good)
		bad[at] ^= 1 << (at % 7)
		if os.WriteFile(s.path(indexName), bad, 0o600) != nil || os.WriteFile(s.path(indexSumName), note, 0o600) != nil {
			t.Fatal("cannot write")
		}
		r := check(t, s, true)
		if len(r.Findings) == 0 || len(r.Repaired) == 0 {
			t.Errorf("byte %d (%q): %+v, %v", at, bad[max(0, at-20):min(len(bad), at+20)], r.Findings, r.Repaired)
		}
		told := fmt.Sprint(r.Findings, r.Repaired)
		now := tagsOf(t, s)
		for tag, run := range want {
			if now[tag] != run && !strings.Contains(told, tag) {
				t.Errorf("byte %d: tag %s is lost: %s", at, tag, told)
			}
		}
		if err := os.RemoveAll(s.path(quarantineDir)); err != nil {
			t.Fatal(err)
		}
	}
}

// A note that is missing, or of no use, keeps nobody from anything, and another
// tool's change of the index is told once.
func TestIndexNote(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "r1", "kept", tinyStages())
	if err := os.Remove(s.path(indexSumName)); err != nil {
		t.Fatal(err)
	}
	if r := check(t, s, false); len(r.Findings) != 0 {
		t.Errorf("without a note: %+v", r.Findings)
	}
	for _, tag := range []string{"more", "again"} {
		if err := s.Tag(context.Background(), tag, run); err != nil {
			t.Fatal(err)
		}
	}
	editIndex(t, s, func(x *v1.IndexManifest) {
		x.Manifests = slices.DeleteFunc(x.Manifests, func(d v1.Descriptor) bool { return d.Annotations[annotationTag] == "more" })
	})
	r := check(t, s, false)
	if !r.Sound || findingIDs(r) != "index/warning" || !strings.Contains(r.Findings[0].Message, "more of "+run.Short()) {
		t.Errorf("%+v", r.Findings)
	}
	if err := s.Tag(context.Background(), "again", run); err != nil {
		t.Fatal(err)
	}
	if r := check(t, s, false); len(r.Findings) != 0 {
		t.Errorf("after the next write: %+v", r.Findings)
	}
	if got := slices.Sorted(maps.Keys(tagsOf(t, s))); !slices.Equal(got, []string{"again", "kept"}) {
		t.Errorf("tags %v", got)
	}
}

// An index that is made anew keeps images of other tools, however they write
// their manifests, and gc their blobs.
func TestRebuildKeepsForeignImages(t *testing.T) {
	for name, layout := range map[string]string{
		"sorted":  `{"config":%s,"layers":[%s],"mediaType":"application/vnd.oci.image.manifest.v1+json","schemaVersion":2}`,
		"spaced":  "\n{\n   \"schemaVersion\" : 2,\n   \"config\": %s,\n   \"layers\": [ %s ]\n}\n",
		"compact": `{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","config":%s,"layers":[%s]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			sealRun(t, s, "r1", "kept", tinyStages())
			put := func(text string) string {
				d, err := s.putBytes([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, d, len(text))
			}
			manifest := fmt.Sprintf(layout, put("config of "+name), put("layer of "+name))
			image, err := s.putBytes([]byte(manifest))
			if err != nil {
				t.Fatal(err)
			}
			// A file of a run that only looks like one names nothing.
			if _, err := s.putBytes([]byte(`{"schemaVersion":2,"manifests":[{"digest":"sha256:` + strings.Repeat("1", 64) + `"}]}`)); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(s.path(indexName)); err != nil {
				t.Fatal(err)
			}
			check(t, s, true)
			age(t, s)
			collect(t, s, GCOptions{Apply: true})
			names := blobNames(t, s)
			for _, d := range []schemas.Digest{image, schemas.DigestOf([]byte("config of " + name)), schemas.DigestOf([]byte("layer of " + name))} {
				if !slices.Contains(names, d) {
					t.Errorf("%s was deleted", d.Short())
				}
			}
			if r := check(t, s, false); !r.Sound {
				t.Errorf("%+v", r.Findings)
			}
		})
	}
}
