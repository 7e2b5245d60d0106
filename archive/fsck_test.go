package archive

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

func check(t *testing.T, s *Store, repair bool) FsckReport {
	t.Helper()
	r, err := s.Fsck(context.Background(), FsckOptions{Repair: repair})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func findingIDs(r FsckReport) string {
	var ids []string
	for _, f := range r.Findings {
		ids = append(ids, strings.TrimPrefix(f.ID, "fsck.")+"/"+string(f.Severity))
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), " ")
}

// Each kind of damage is found, and named; what a repair leaves is told.
func TestFsck(t *testing.T) {
	pack := func(t *testing.T, s *Store, d schemas.Digest, media string) schemas.Digest {
		m, err := s.manifestOf(d)
		if err != nil {
			t.Fatal(err)
		}
		return digestOf(layersOf(m, media)[0])
	}
	write := func(t *testing.T, path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dead := otherToken(map[int]string{3: "4194304"})
	foreign := otherToken(map[int]string{0: "00000000", 1: "00000000"})
	for _, c := range []struct {
		name          string
		damage        func(t *testing.T, s *Store, run schemas.Digest)
		before, after string // findings before and after the repair
		sound         bool   // before it
	}{
		{"nothing", func(*testing.T, *Store, schemas.Digest) {}, "", "", true},
		{"a changed pack", func(t *testing.T, s *Store, d schemas.Digest) { flip(t, s.blobPath(pack(t, s, d, MediaPack))) }, "blob/error", "missing/error quarantine/info", false},
		{"a cut blob", func(t *testing.T, s *Store, d schemas.Digest) {
			if err := os.Truncate(s.blobPath(pack(t, s, d, MediaReport)), 10); err != nil {
				t.Fatal(err)
			}
		}, "blob/error", "missing/error quarantine/info", false},
		{"a changed manifest", func(t *testing.T, s *Store, d schemas.Digest) { flip(t, s.blobPath(d)) }, "blob/error", "missing/error quarantine/info", false},
		{"a changed record", func(t *testing.T, s *Store, d schemas.Digest) { flip(t, s.blobPath(pack(t, s, d, MediaRecord))) }, "blob/error", "missing/error quarantine/info", false},
		{"a missing blob", func(t *testing.T, s *Store, d schemas.Digest) {
			if err := os.Remove(s.blobPath(pack(t, s, d, MediaTree))); err != nil {
				t.Fatal(err)
			}
		}, "missing/error", "missing/error", false},
		{"no index", func(t *testing.T, s *Store, _ schemas.Digest) {
			if err := os.Remove(s.path(indexName)); err != nil {
				t.Fatal(err)
			}
		}, "index/error", "", false},
		{"a torn index", func(t *testing.T, s *Store, _ schemas.Digest) {
			write(t, s.path(indexName), `{"schemaVersion":2,"manif`)
		}, "index/error", "quarantine/info", false},
		{"no record index", func(t *testing.T, s *Store, _ schemas.Digest) {
			if err := os.Remove(s.path(recordIndexName)); err != nil {
				t.Fatal(err)
			}
		}, "records/warning", "", true},
		{"an unreadable journal", func(t *testing.T, s *Store, _ schemas.Digest) {
			write(t, filepath.Join(s.JournalDir(), "r9.jsonl"), "{}\n{torn\n{}\n")
		}, "journal/error", "quarantine/info", false},
		{"an empty journal", func(t *testing.T, s *Store, _ schemas.Digest) {
			write(t, filepath.Join(s.JournalDir(), "r9.jsonl"), "")
		}, "journal/warning", "quarantine/info", true},
		{"a blank line in a journal", func(t *testing.T, s *Store, _ schemas.Digest) {
			write(t, filepath.Join(s.JournalDir(), "r9.jsonl"), "{}\n\n{}\n")
		}, "journal/error", "quarantine/info", false},
		{"a changed line of a journal", func(t *testing.T, s *Store, _ schemas.Digest) {
			text := string(durable.SumLine([]byte(`{"event":"start"}`))) + string(durable.SumLine([]byte(`{"event":"record"}`)))
			write(t, filepath.Join(s.JournalDir(), "r9.jsonl"), strings.Replace(text, "record", "recore", 1))
		}, "journal/error", "quarantine/info", false},
		{"a torn journal", func(t *testing.T, s *Store, _ schemas.Digest) {
			write(t, filepath.Join(s.JournalDir(), "r9.jsonl"), "{}\n{torn")
		}, "", "", true},
		{"a journal without its records", func(t *testing.T, s *Store, d schemas.Digest) {
			write(t, filepath.Join(s.JournalDir(), "r9.jsonl"), `{"record":{"digest":"`+string(schemas.DigestOf([]byte("x")))+`"}}`+"\n")
		}, "journal/error", "journal/error", false},
		{"leftovers of the dead", func(t *testing.T, s *Store, _ schemas.Digest) {
			write(t, filepath.Join(s.LeaseDir(), "r9."+dead+"-1.json"), `{"run":"r9","holder":"`+dead+`"}`)
			write(t, s.path("assay/journals/.tmp-"+dead+"-1"), "x")
			write(t, s.path(blobsDir+"/.tmp-"+dead+"-2"), "x")
		}, "lease/info temp/info", "", true},
		{"leftovers of another host", func(t *testing.T, s *Store, _ schemas.Digest) {
			write(t, filepath.Join(s.LeaseDir(), "r9."+foreign+"-1.json"), `{"run":"r9","holder":"`+foreign+`"}`)
			write(t, s.path(blobsDir+"/.tmp-"+foreign+"-2"), "x")
		}, "lease/warning temp/warning", "lease/warning temp/warning", true},
		{"a work folder nobody goes on with", func(t *testing.T, s *Store, _ schemas.Digest) {
			for _, name := range []string{"20060102T150405Z-0123abcd", "uploads"} {
				dir := filepath.Join(s.WorkDir(), name)
				if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
					t.Fatal(err)
				}
				old := time.Now().Add(-2 * DefaultGrace)
				if err := os.Chtimes(dir, old, old); err != nil {
					t.Fatal(err)
				}
			}
		}, "work/info", "", true},
		{"a stray file", func(t *testing.T, s *Store, _ schemas.Digest) { write(t, s.path(blobsDir+"/notes.txt"), "x") }, "name/warning", "name/warning", true},
		{"no oci-layout", func(t *testing.T, s *Store, _ schemas.Digest) { write(t, s.path("oci-layout"), "") }, "layout/error", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			d := sealRun(t, s, "r1", "kept", smallStages())
			c.damage(t, s, d)
			first := check(t, s, false)
			if got := findingIDs(first); got != c.before || first.Sound != c.sound || len(first.Repaired) != 0 {
				t.Errorf("found %q, sound %v, repaired %v; want %q, %v", got, first.Sound, first.Repaired, c.before, c.sound)
			}
			if again := check(t, s, false); findingIDs(again) != c.before {
				t.Errorf("a check changed something: %q", findingIDs(again))
			}
			check(t, s, true)
			if after := check(t, reopen(t, s.Dir()), false); findingIDs(after) != c.after {
				t.Errorf("after the repair %q, want %q", findingIDs(after), c.after)
			}
			for _, f := range first.Findings {
				if (f.ID == "fsck.blob" || f.ID == "fsck.missing") && (f.Run != string(d) || f.Blob == "") {
					t.Errorf("finding does not say where: %+v", f)
				}
			}
		})
	}
}

// A rebuilt index has every whole run, once, in order; nothing else.
func TestRebuildIndex(t *testing.T) {
	s := newStore(t)
	one := sealRun(t, s, "r1", "", smallStages())
	two := sealUsing(t, s, "r2", one)
	three := sealRun(t, s, "r3", "", bigStages())
	m, err := s.manifestOf(three)
	if err != nil {
		t.Fatal(err)
	}
	// What gc, cut short, leaves of a removed run.
	if err := errors.Join(os.Remove(s.blobPath(digestOf(layersOf(m, MediaPart)[0]))), os.Remove(s.path(indexName))); err != nil {
		t.Fatal(err)
	}
	if r := check(t, s, true); len(r.Repaired) == 0 || r.Runs != 2 {
		t.Fatalf("%+v", r)
	}
	want := []schemas.Digest{one, two}
	slices.Sort(want) // both ended at the same time
	if got := listed(t, s); !slices.Equal(got, want) {
		t.Errorf("runs %v, want %v", got, want)
	}
	four := sealRun(t, s, "r4", "", tinyStages())
	if ref, err := s.Resolve(context.Background(), latest); err != nil || ref.Digest != four {
		t.Errorf("latest is %s, %v", ref.Digest.Short(), err)
	}
}

func TestMaintenanceIsExclusive(t *testing.T) {
	s := newStore(t)
	unlock, err := s.lockMaintenance()
	if err != nil {
		t.Fatal(err)
	}
	other := reopen(t, s.Dir())
	if _, err := other.Collect(context.Background(), GCOptions{Apply: true}); !errors.Is(err, ErrBusy) {
		t.Errorf("gc beside another: %v", err)
	}
	if _, err := other.Fsck(context.Background(), FsckOptions{Repair: true}); !errors.Is(err, ErrBusy) {
		t.Errorf("repair beside gc: %v", err)
	}
	if _, err := other.Collect(context.Background(), GCOptions{}); err != nil {
		t.Errorf("a dry run beside gc: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}
