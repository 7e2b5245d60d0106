package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"assay/schemas"
)

// TestLifeOfAStore does anything in any order and compares with a model: which
// runs are listed, and which still have to be whole because a listed run was made
// from them.
func TestLifeOfAStore(t *testing.T) {
	lives, failed := 0, false
	rapid.Check(t, func(rt *rapid.T) {
		defer func() { failed = failed || rt.Failed() }()
		// Each life takes a second under the race detector: eight do for a change.
		if lives++; lives > 8 && !failed && os.Getenv("ASSAY_EXHAUSTIVE") == "" {
			return
		}
		dir, err := os.MkdirTemp("", "archive-life-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s, err := Create(filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		l := &life{t: t, s: s, listed: map[schemas.Digest]bool{}, sources: map[schemas.Digest][]schemas.Digest{}, tags: map[string]schemas.Digest{}}
		rt.Repeat(map[string]func(*rapid.T){
			"seal": l.seal, "remove": l.remove, "tag": l.tag, "collect": l.collect, "lose index": l.loseIndex, "": l.check,
		})
	})
}

type life struct {
	t       *testing.T
	s       *Store
	n       int
	listed  map[schemas.Digest]bool
	sources map[schemas.Digest][]schemas.Digest
	tags    map[string]schemas.Digest
}

func byDigest(m map[schemas.Digest]bool) []schemas.Digest { return slices.Sorted(maps.Keys(m)) }

func (l *life) one(rt *rapid.T) schemas.Digest {
	if len(l.listed) == 0 {
		rt.Skip("no run yet")
	}
	return rapid.SampledFrom(byDigest(l.listed)).Draw(rt, "run")
}

func (l *life) seal(rt *rapid.T) {
	l.n++
	var from []schemas.Digest
	if len(l.listed) > 0 {
		from = rapid.SliceOfNDistinct(rapid.SampledFrom(byDigest(l.listed)), 0, 2, rapid.ID).Draw(rt, "sources")
	}
	d := sealUsing(l.t, l.s, fmt.Sprintf("r%d", l.n), from...)
	l.listed[d], l.sources[d] = true, from
}

func (l *life) remove(rt *rapid.T) {
	d, force := l.one(rt), rapid.Bool().Draw(rt, "force")
	used := false
	for r := range l.listed {
		used = used || r != d && slices.Contains(l.sources[r], d)
	}
	_, err := l.s.Remove(context.Background(), []schemas.Digest{d}, force)
	var refused *UsedError
	if got := errors.As(err, &refused); got != (used && !force) || !got && err != nil {
		rt.Fatalf("remove with force %v, used %v: %v", force, used, err)
	}
	if err != nil {
		return
	}
	delete(l.listed, d)
	maps.DeleteFunc(l.tags, func(_ string, run schemas.Digest) bool { return run == d })
}

func (l *life) tag(rt *rapid.T) {
	d, name := l.one(rt), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "tag")
	if err := l.s.Tag(context.Background(), name, d); err != nil {
		rt.Fatal(err)
	}
	l.tags[name] = d
}

func (l *life) collect(rt *rapid.T) {
	age(l.t, l.s)
	if _, err := l.s.Collect(context.Background(), GCOptions{Apply: true}); err != nil {
		rt.Fatal(err)
	}
	for d := range l.whole() {
		v, err := l.s.Verify(context.Background(), d)
		if err != nil || v.Verdict != Valid {
			rt.Fatalf("run %s: %+v, %v", d.Short(), v.Findings, err)
		}
	}
	manifests := 0
	for _, d := range blobNames(l.t, l.s) {
		if l.s.sniff(d) == kindManifest {
			manifests++
		}
	}
	if whole := l.whole(); manifests != len(whole) || len(whole) == 0 && len(blobNames(l.t, l.s)) != 0 {
		rt.Fatalf("%d manifests left, %d runs are needed", manifests, len(whole))
	}
}

// loseIndex loses the index, or its beginning: the repair brings back every run
// that was listed, none that was removed, and the tags that can be read or are noted.
func (l *life) loseIndex(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "collected before") {
		l.collect(rt)
	}
	b, err := os.ReadFile(l.s.path(indexName))
	if err != nil {
		rt.Fatal(err)
	}
	if rapid.Bool().Draw(rt, "cut") {
		err = os.WriteFile(l.s.path(indexName), b[1:], 0o600)
	} else {
		err = os.Remove(l.s.path(indexName))
		if rapid.Bool().Draw(rt, "note lost too") {
			err = errors.Join(err, os.RemoveAll(l.s.path(indexSumName))) // an empty store has none
			l.tags = map[string]schemas.Digest{}
		}
	}
	if err != nil {
		rt.Fatal(err)
	}
	if _, err := l.s.Fsck(context.Background(), FsckOptions{Repair: true}); err != nil {
		rt.Fatal(err)
	}
}

// whole lists the runs that must be whole: the listed and what they were made from.
func (l *life) whole() map[schemas.Digest]bool {
	out := map[schemas.Digest]bool{}
	var visit func(d schemas.Digest)
	visit = func(d schemas.Digest) {
		if !out[d] {
			out[d] = true
			for _, src := range l.sources[d] {
				visit(src)
			}
		}
	}
	for d := range l.listed {
		visit(d)
	}
	return out
}

func (l *life) check(rt *rapid.T) {
	runs, err := l.s.Runs(context.Background())
	if err != nil {
		rt.Fatal(err)
	}
	got, tags := map[schemas.Digest]bool{}, map[string]schemas.Digest{}
	for _, r := range runs {
		got[r.Digest] = true
		for _, name := range r.Tags {
			tags[name] = r.Digest
		}
	}
	if !maps.Equal(got, l.listed) || !maps.Equal(tags, l.tags) {
		rt.Fatalf("runs %v, tags %v; want %v, %v", got, tags, l.listed, l.tags)
	}
}
