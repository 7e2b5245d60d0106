package archive

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"assay/internal/durable"
	"assay/schemas"
)

// tagsOf reads all tags.
func tagsOf(t testing.TB, s *Store) map[string]schemas.Digest {
	t.Helper()
	runs, err := s.Runs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]schemas.Digest{}
	for _, r := range runs {
		for _, tag := range r.Tags {
			out[tag] = r.Digest
		}
	}
	return out
}

// However an index is damaged, no tag ends up at another run; those that are not
// touched are saved, and of the others as many as can be read.
func TestTagsAreSalvaged(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	for i, tags := range [][]string{{"a1", "a2"}, {}, {"b1"}, {"c1", "c2", "c3"}} {
		run := sealRun(t, s, "r"+string(rune('0'+i)), "", smallStages())
		for _, tag := range tags {
			if err := s.Tag(ctx, tag, run); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := tagsOf(t, s)
	whole, err := os.ReadFile(s.path(indexName))
	if err != nil {
		t.Fatal(err)
	}
	f := &fsck{s: s, ctx: ctx}
	fresh, skipped, err := f.rebuiltIndex()
	if err != nil || skipped != 0 {
		t.Fatal(skipped, err)
	}
	salvage := func(b []byte) (map[string]schemas.Digest, []string) {
		x := *fresh.DeepCopy()
		_, lost := salvageTags(&x, b)
		out := map[string]schemas.Digest{}
		for _, r := range runsOf(x) {
			for _, tag := range r.Tags {
				out[tag] = r.Digest
			}
		}
		return out, lost
	}
	for cut := range whole {
		got, _ := salvage(whole[:cut])
		for tag, run := range want {
			at := bytes.Index(whole, []byte(`"`+tag+`"`)) + len(tag) + 2
			if saved := got[tag] == run; saved != (at <= cut) {
				t.Fatalf("cut at %d of %d: tag %s, which ends at %d, saved: %t", cut, len(whole), tag, at, saved)
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		from := rapid.IntRange(0, len(whole)).Draw(rt, "from")
		to := rapid.IntRange(from, min(len(whole), from+700)).Draw(rt, "to")
		filling := rapid.SampledFrom([]string{"", "\x00", "garbage", `{"`, `"}}`}).Draw(rt, "filling")
		got, lost := salvage(slices.Concat(whole[:from], []byte(filling), whole[to:]))
		for tag, run := range got {
			if have, ok := want[tag]; ok && have != run {
				rt.Fatalf("tag %s is of run %s, want %s", tag, run.Short(), have.Short())
			}
		}
		for tag := range want {
			at := bytes.Index(whole, []byte(`"`+tag+`"`))
			begin := bytes.LastIndex(whole[:at], []byte(`{"mediaType"`))
			if end := at + len(tag) + 2; (end <= from || begin >= to) && got[tag] == "" && !slices.Contains(lost, tag) {
				rt.Fatalf("tag %s was not touched, and is neither saved nor said to be lost", tag)
			}
		}
	})
}

// A repair says which tags it saved and which it lost.
func TestRepairTellsOfTags(t *testing.T) {
	s := newStore(t)
	one := sealRun(t, s, "r1", "kept", smallStages())
	two := sealRun(t, s, "r2", "broken", bigStages())
	m, err := s.manifestOf(two)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.path(indexName))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(s.blobPath(digestOf(layersOf(m, MediaPart)[0]))), os.WriteFile(s.path(indexName), b[:len(b)-2], 0o600)); err != nil {
		t.Fatal(err)
	}
	r := check(t, s, true)
	if did := strings.Join(r.Repaired, "\n"); !strings.Contains(did, `1 tags saved`) || !strings.Contains(did, `lost the tags "broken"`) {
		t.Errorf("repaired: %s", did)
	}
	if kept, err := os.ReadFile(s.path(quarantineDir + "/" + indexName)); err != nil || !bytes.Equal(kept, b[:len(b)-2]) {
		t.Errorf("the damaged index is not kept: %v", err)
	}
	if got := tagsOf(t, s); len(got) != 1 || got["kept"] != one {
		t.Errorf("tags %v", got)
	}
}

// A run that was removed does not come back when the index is lost; one that was
// stored again does; and one whose removal failed is never lost.
func TestRemovedRunsStayRemoved(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	one, two := sealRun(t, s, "r1", "one", smallStages()), sealRun(t, s, "r2", "two", smallStages())
	manifest, err := s.ManifestBytes(one)
	if err != nil {
		t.Fatal(err)
	}
	lose := func() []schemas.Digest {
		t.Helper()
		if err := os.Remove(s.path(indexName)); err != nil {
			t.Fatal(err)
		}
		r := check(t, s, true)
		if left := strings.Contains(strings.Join(r.Repaired, "\n"), "left out 1 runs that were removed and not yet collected: "+one.Short()); left == (len(listed(t, s)) == 2) {
			t.Errorf("repaired: %v", r.Repaired)
		}
		return listed(t, s)
	}
	if _, err := s.Remove(ctx, []schemas.Digest{one}, false); err != nil {
		t.Fatal(err)
	}
	if got := lose(); !slices.Equal(got, []schemas.Digest{two}) {
		t.Errorf("runs %v, want %v alone", got, two)
	}
	if _, err := s.AddRun(ctx, manifest, "again"); err != nil {
		t.Fatal(err)
	}
	if got := lose(); len(got) != 2 {
		t.Errorf("runs %v, want both", got)
	}
	// Once it is collected there is nothing to remember.
	if _, err := s.Remove(ctx, []schemas.Digest{one}, false); err != nil {
		t.Fatal(err)
	}
	age(t, s)
	if _, err := s.Collect(ctx, GCOptions{Apply: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(s.path(removedName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a collected run is still remembered: %v", err)
	}
}

// Whatever step of a removal, or of listing a run again, is the last one: a repair
// that makes the lost index anew has every run that the index had.
func TestRemovalCutShort(t *testing.T) {
	ctx := context.Background()
	for what, act := range map[string]func(s *Store, run schemas.Digest, manifest []byte) error{
		"remove": func(s *Store, run schemas.Digest, _ []byte) error {
			_, err := s.Remove(ctx, []schemas.Digest{run}, false)
			return err
		},
		"add": func(s *Store, run schemas.Digest, manifest []byte) error {
			_, err := s.AddRun(ctx, manifest)
			return err
		},
	} {
		for n := int64(1); ; n++ {
			s := newStore(t)
			run := sealRun(t, s, "r1", "one", tinyStages())
			manifest, err := s.ManifestBytes(run)
			if err != nil {
				t.Fatal(err)
			}
			if what == "add" {
				if _, err := s.Remove(ctx, []schemas.Digest{run}, false); err != nil {
					t.Fatal(err)
				}
			}
			hook, count := dieAt(n)
			durable.SetHook(hook)
			_ = act(s, run, manifest)
			durable.SetHook(nil)
			s = reopen(t, s.Dir())
			before := listed(t, s)
			if err := os.Remove(s.path(indexName)); err != nil {
				t.Fatal(err)
			}
			check(t, s, true)
			if after := listed(t, s); len(before) > len(after) {
				t.Errorf("%s cut short at operation %d: run lost by the repair", what, n)
			}
			if count.Load() < n {
				break
			}
		}
	}
}

// When nothing is left of index.json, the tags are taken from the note beside it.
func TestTagsOfALostIndex(t *testing.T) {
	ctx := context.Background()
	for name, damage := range map[string]func(string) error{
		"removed": os.Remove,
		"empty":   func(p string) error { return os.WriteFile(p, nil, 0o644) },
		"object":  func(p string) error { return os.WriteFile(p, []byte("{}"), 0o644) },
		"folder":  func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			for i, tag := range []string{"a", "b"} {
				if err := s.Tag(ctx, tag, sealRun(t, s, "r"+string(rune('0'+i)), "", smallStages())); err != nil {
					t.Fatal(err)
				}
			}
			want := tagsOf(t, s)
			if err := damage(s.path(indexName)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Fsck(ctx, FsckOptions{Repair: true}); err != nil {
				t.Fatal(err)
			}
			if got := tagsOf(t, s); !maps.Equal(got, want) || len(got) != 2 {
				t.Errorf("the tags are %v, want %v", got, want)
			}
		})
	}
}

// A digest that is wrong in one of a run's descriptors is mended from its manifest.
func TestDigestOfADescriptor(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	for i, tag := range []string{"a", "b"} {
		if err := s.Tag(ctx, tag, sealRun(t, s, "r"+string(rune('0'+i)), "", smallStages())); err != nil {
			t.Fatal(err)
		}
	}
	want := tagsOf(t, s)
	whole, err := os.ReadFile(s.path(indexName))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for rest := 0; ; count++ {
		at := bytes.Index(whole[rest:], []byte(`"sha256:`))
		if at < 0 {
			break
		}
		rest += at + len(`"sha256:`)
		for _, digit := range []int{0, 63} {
			b := bytes.Clone(whole)
			if b[rest+digit] == '0' {
				b[rest+digit] = '1'
			} else {
				b[rest+digit] = '0'
			}
			if err := os.WriteFile(s.path(indexName), b, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Fsck(ctx, FsckOptions{Repair: true}); err != nil {
				t.Fatal(err)
			}
			report, err := s.Fsck(ctx, FsckOptions{})
			report.Findings = slices.DeleteFunc(report.Findings, func(f schemas.Finding) bool { return f.Severity == schemas.SeverityInfo })
			if err != nil || len(report.Findings) > 0 || !maps.Equal(tagsOf(t, s), want) {
				t.Errorf("digit %d of digest %d: %v, %+v; tags %v, want %v", digit, count, err, report.Findings, tagsOf(t, s), want)
			}
			if runs, err := s.Runs(ctx); err != nil || len(runs) != 2 {
				t.Errorf("digit %d of digest %d: %d runs, %v", digit, count, len(runs), err)
			}
		}
	}
	if count < 2 {
		t.Fatalf("%d digests in the index", count)
	}
}
