package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/schemas"
)

func collect(t *testing.T, s *Store, opts GCOptions) GCReport {
	t.Helper()
	r, err := s.Collect(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func remove(t *testing.T, s *Store, runs ...schemas.Digest) {
	t.Helper()
	if _, err := s.Remove(context.Background(), runs, true); err != nil {
		t.Fatal(err)
	}
}

func TestCollect(t *testing.T) {
	s := newStore(t)
	first := sealRun(t, s, "r1", "", smallStages()) // no tag, and yet needed
	second := sealRun(t, s, "r2", "two", map[string]map[string]string{
		"gen": smallStages()["gen"], "other": {"outputs/x/only.txt": "only here", "outputs/x/big.bin": noise(largeFileBytes+1, 3)}})
	age(t, s)
	if r := collect(t, s, GCOptions{Apply: true}); len(r.Garbage) != 0 || r.Young != 0 || r.Kept == 0 {
		t.Fatalf("%+v, want nothing but needed blobs", r)
	}
	remove(t, s, second)
	dry := collect(t, s, GCOptions{Grace: DefaultGrace})
	if dry.Applied || len(dry.Garbage) == 0 || dry.GarbageBytes < largeFileBytes {
		t.Fatalf("%d blobs, %d bytes of garbage", len(dry.Garbage), dry.GarbageBytes)
	}
	var about []string
	for _, g := range dry.Garbage {
		if g.Run != "r2" {
			t.Errorf("%s %s is of run %q, want r2", g.Kind, g.Digest.Short(), g.Run)
		}
		about = append(about, strings.TrimSpace(g.Kind+" "+g.Stage+" "+g.Path))
	}
	for _, want := range []string{"manifest", "config", "report", "experiment", "file list", "record other", "record gen", "tree other", "preimage other",
		"pack other stages/other/t001/outputs/x/only.txt", "part other stages/other/t001/outputs/x/big.bin"} {
		if !slices.Contains(about, want) {
			t.Errorf("no %q among %q", want, about)
		}
	}
	before := blobNames(t, s)
	done := collect(t, s, GCOptions{Apply: true})
	if len(done.Garbage) != len(dry.Garbage) || len(blobNames(t, s)) != len(before)-len(dry.Garbage) {
		t.Errorf("%d of %d deleted, %d blobs of %d left", len(done.Garbage), len(dry.Garbage), len(blobNames(t, s)), len(before))
	}
	v, err := s.Verify(context.Background(), first)
	wantVerdict(t, v, err, Valid)
	recs, err := s.RecordsByStage(context.Background(), "demo/sample", "other")
	lines, lerr := s.readRecordIndex()
	if err := errors.Join(err, lerr); err != nil || len(recs) != 0 || len(lines) != 2 {
		t.Errorf("%d records of a removed run, %d lines, %v", len(recs), len(lines), err)
	}
	if r, err := s.Fsck(context.Background(), FsckOptions{}); err != nil || len(r.Findings) != 0 {
		t.Errorf("fsck after gc: %+v, %v", r.Findings, err)
	}
}

func blobNames(t *testing.T, s *Store) []schemas.Digest {
	t.Helper()
	list, err := s.blobs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var out []schemas.Digest
	for _, b := range list {
		out = append(out, b.digest)
	}
	return out
}

// Whatever is young, or newer than a lease, stays.
func TestCollectSparesTheYoung(t *testing.T) {
	s := newStore(t)
	if _, err := runRequest(t, s, "never sealed", smallStages()); err != nil {
		t.Fatal(err)
	}
	all := len(blobNames(t, s))
	if r := collect(t, s, GCOptions{Grace: DefaultGrace, Apply: true}); len(r.Garbage) != 0 || r.Young != all {
		t.Errorf("%d deleted, %d young, want none and %d", len(r.Garbage), r.Young, all)
	}
	release, err := s.Lease(context.Background(), "r1")
	if err != nil {
		t.Fatal(err)
	}
	age(t, s)
	// The run reuses old blobs: that makes them new.
	if _, err := runRequest(t, s, "r1", tinyStages()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.PutTree(context.Background(), writeFiles(t, smallStages()["gen"])); err != nil {
		t.Fatal(err)
	}
	r := collect(t, s, GCOptions{Apply: true})
	if len(r.Leases) != 1 || r.Leases[0].Run != "r1" || r.Leases[0].State != LeaseActive || len(r.Garbage) == 0 || r.Young < 6 {
		t.Errorf("leases %+v, %d deleted, %d young", r.Leases, len(r.Garbage), r.Young)
	}
	d := sealRun(t, s, "r1", "", tinyStages())
	if err := release(); err != nil {
		t.Fatal(err)
	}
	age(t, s)
	collect(t, s, GCOptions{Apply: true})
	v, err := s.Verify(context.Background(), d)
	wantVerdict(t, v, err, Valid)
}

// What the journal of an interrupted run names is needed, whatever the line says.
func TestCollectKeepsUnsealedRuns(t *testing.T) {
	s := newStore(t)
	req, err := runRequest(t, s, "r1", bigStages())
	if err != nil {
		t.Fatal(err)
	}
	log, logDoc, err := s.PutTree(context.Background(), writeFiles(t, map[string]string{"engine.log": "lines"}))
	if err != nil {
		t.Fatal(err)
	}
	var journal []byte
	for _, rec := range req.Run.Records {
		b, err := json.Marshal(map[string]any{"event": "record", "record": rec})
		if err != nil {
			t.Fatal(err)
		}
		journal = append(append(journal, b...), '\n')
	}
	journal = fmt.Appendf(journal, `{"event":"unit_end","service":{"tree":%q}}`+"\n"+`{"torn`, logDoc)
	path := filepath.Join(s.JournalDir(), "r1.jsonl")
	if err := os.WriteFile(path, journal, 0o600); err != nil {
		t.Fatal(err)
	}
	// A journal may name anything, such as the source run: that must hide nothing.
	source := sealRun(t, s, "source", "", tinyStages())
	names := []byte(`{"sources":["` + string(source) + `"]}` + "\n")
	m, err := s.manifestOf(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range m.Layers {
		names = append(names, string(digestOf(l))+"\n"...)
	}
	if err := os.WriteFile(path, append(names, journal...), 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, s)
	collect(t, s, GCOptions{Apply: true})
	listed(t, s)
	remove(t, s, source)
	collect(t, s, GCOptions{Apply: true})
	v, err := s.Verify(context.Background(), source)
	wantVerdict(t, v, err, Valid)
	d, err := s.Seal(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	v, err = s.Verify(context.Background(), d)
	wantVerdict(t, v, err, Valid)
	for _, b := range log.Blobs {
		if _, err := s.blobSize(b.Digest); err != nil {
			t.Error(err)
		}
	}
	remove(t, s, d)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	age(t, s)
	if collect(t, s, GCOptions{Apply: true}); len(blobNames(t, s)) != 0 {
		t.Errorf("%d blobs left of a run given up", len(blobNames(t, s)))
	}
}

// sealUsing seals a run that was made from others.
func sealUsing(t testing.TB, s *Store, id string, sources ...schemas.Digest) schemas.Digest {
	t.Helper()
	req, err := runRequest(t, s, id, map[string]map[string]string{"gen": {"outputs/x/f": id}})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range sources {
		req.Run.Sources = append(req.Run.Sources, schemas.SourceRun{Reference: d.Short(), Digest: d})
	}
	report := req.Report
	req.Report = func(f schemas.FileSummary) (schemas.Report, error) {
		r, err := report(f)
		r.Sources = req.Run.Sources
		return r, err
	}
	d, err := s.Seal(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSourceRunsAreKept(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	a := sealUsing(t, s, "a")
	b := sealUsing(t, s, "b", a)
	elsewhere := schemas.DigestOf([]byte("a run in another store"))
	c := sealUsing(t, s, "c", b, elsewhere)
	var used *UsedError
	if _, err := s.Remove(ctx, []schemas.Digest{a}, false); !errors.As(err, &used) || used.Run != a || used.By[0].Digest != b {
		t.Fatalf("removal of a source run: %v", err)
	}
	if _, err := s.Remove(ctx, []schemas.Digest{a, elsewhere}, true); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("removal of what is not there: %v", err)
	}
	if got := listed(t, s); len(got) != 3 {
		t.Fatalf("%d runs after refusals", len(got))
	}
	remove(t, s, a, b)
	age(t, s)
	r := collect(t, s, GCOptions{Apply: true})
	if len(r.Garbage) != 0 || len(r.SourceRuns) != 2 {
		t.Errorf("%d deleted, source runs %+v", len(r.Garbage), r.SourceRuns)
	}
	for _, d := range []schemas.Digest{a, b, c} {
		v, err := s.Verify(ctx, d)
		wantVerdict(t, v, err, Valid)
	}
	u, err := s.Usage(ctx)
	if err != nil || len(u.Runs) != 3 || u.OtherBytes != 0 {
		t.Errorf("usage %+v, %v", u, err)
	}
	runs, missing, err := s.Closure(ctx, c)
	if err != nil || !slices.Equal(runs, []schemas.Digest{a, b, c}) || !slices.Equal(missing, []schemas.Digest{elsewhere}) {
		t.Errorf("closure %v, missing %v, %v", runs, missing, err)
	}
	// The last one goes with both; of several removed at once none is in the way.
	remove(t, s, c)
	age(t, s)
	collect(t, s, GCOptions{Apply: true})
	if n := len(blobNames(t, s)); n != 0 {
		t.Errorf("%d blobs left", n)
	}
}

// A document that cannot be read stops gc: what it names is not known.
func TestCollectStopsAtDamage(t *testing.T) {
	for _, what := range []string{"manifest", "config", "tree"} {
		t.Run(what, func(t *testing.T) {
			s := newStore(t)
			d := sealRun(t, s, "r1", "", smallStages())
			other := sealRun(t, s, "r2", "", tinyStages())
			remove(t, s, other)
			age(t, s)
			m, err := s.manifestOf(d)
			if err != nil {
				t.Fatal(err)
			}
			blob := map[string]schemas.Digest{"manifest": d, "config": digestOf(m.Config), "tree": digestOf(layersOf(m, MediaTree)[0])}[what]
			flip(t, s.blobPath(blob))
			age(t, s)
			before := len(blobNames(t, s))
			_, err = s.Collect(context.Background(), GCOptions{Apply: true})
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || corrupt.Blob != blob || len(blobNames(t, s)) != before {
				t.Errorf("%v, %d of %d blobs left", err, len(blobNames(t, s)), before)
			}
		})
	}
}

// Manifests of other tools in the index are needed with all below them.
func TestCollectKeepsOthers(t *testing.T) {
	s := newStore(t)
	layer, err := s.putBytes([]byte("layer"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := s.putBytes([]byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	image, err := s.putBytes(fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"digest":%q},"layers":[{"digest":%q}]}`, config, layer))
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.putBytes(fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"digest":%q}]}`, image))
	if err != nil {
		t.Fatal(err)
	}
	h, err := v1.NewHash(string(list))
	if err != nil {
		t.Fatal(err)
	}
	err = s.updateIndex(func(x *v1.IndexManifest) error {
		x.Manifests = append(x.Manifests, v1.Descriptor{MediaType: "application/vnd.oci.image.index.v1+json", Digest: h, Size: 1})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	age(t, s)
	if r := collect(t, s, GCOptions{Apply: true}); len(r.Garbage) != 0 || r.Kept != 4 {
		t.Errorf("%d deleted, %d kept", len(r.Garbage), r.Kept)
	}
}

// Writers, removers and gc without any grace, all at once: nothing that is in the
// index loses a byte.
func TestCollectWhileRunsAreWritten(t *testing.T) {
	s := newStore(t)
	shared := map[string]map[string]string{"gen": smallStages()["gen"]}
	stop := make(chan struct{})
	var sweeper, writers sync.WaitGroup
	sweeper.Go(func() {
		own := reopen(t, s.Dir())
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := own.Collect(context.Background(), GCOptions{Apply: true}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for w := range 3 {
		writers.Go(func() {
			own := reopen(t, s.Dir())
			for i := range 6 {
				if err := writeOne(t, own, fmt.Sprintf("w%d-%d", w, i), shared, i%2 == 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	sweeper.Wait()
	if n := len(listed(t, s)); n != 9 {
		t.Errorf("%d runs, want 9", n)
	}
	leases, err := s.Leases()
	if err != nil || len(leases) != 0 {
		t.Errorf("leases left: %+v, %v", leases, err)
	}
	age(t, s)
	collect(t, s, GCOptions{Apply: true})
	if r, err := s.Fsck(context.Background(), FsckOptions{}); err != nil || !r.Sound {
		t.Errorf("%+v, %v", r.Findings, err)
	}
}

// writeOne commits a run as the pipeline does, and perhaps removes it.
func writeOne(t *testing.T, s *Store, id string, stages map[string]map[string]string, drop bool) error {
	release, err := s.Lease(context.Background(), id)
	if err != nil {
		return err
	}
	req, err := runRequest(t, s, id, stages)
	if err != nil {
		return err
	}
	d, err := s.Seal(context.Background(), req)
	if err := errors.Join(err, release()); err != nil {
		return err
	}
	if drop {
		_, err = s.Remove(context.Background(), []schemas.Digest{d}, false)
		return err
	}
	v, err := s.Verify(context.Background(), d)
	if err == nil && v.Verdict != Valid {
		err = fmt.Errorf("run %s: %+v", id, v.Findings)
	}
	return err
}

func TestUsage(t *testing.T) {
	s := newStore(t)
	one := sealRun(t, s, "r1", "one", bigStages())
	two := sealRun(t, s, "r2", "two", map[string]map[string]string{"gen": smallStages()["gen"], "own": {"outputs/x/f": noise(3*largeFileBytes, 9)}})
	u, err := s.Usage(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Runs) != 2 || u.Runs[0].Digest != two || u.Runs[1].Digest != one || u.Runs[0].UniqueBytes < 3*largeFileBytes {
		t.Fatalf("%+v, want run two, which has more of its own, first", u.Runs)
	}
	if u.SharedBytes == 0 || u.OtherBytes != 0 || u.UniqueBytes+u.SharedBytes != u.Bytes || u.Runs[0].UniqueBytes+u.Runs[1].UniqueBytes != u.UniqueBytes ||
		u.Runs[0].SharedBytes != u.SharedBytes || u.Runs[1].SharedBytes != u.SharedBytes {
		t.Errorf("sums do not agree: %+v", u)
	}
	// Unique is what removing frees.
	remove(t, s, two)
	age(t, s)
	if r := collect(t, s, GCOptions{Apply: true, Grace: time.Minute}); r.GarbageBytes != u.Runs[0].UniqueBytes {
		t.Errorf("%d bytes freed, %d were unique", r.GarbageBytes, u.Runs[0].UniqueBytes)
	}
}

// Packs that were filled up for the manifest do not replace those that trees point
// into: a stage that is reused later needs these.
func TestCollectKeepsWhatTreesName(t *testing.T) {
	defer func(n int) { layerLimit = n }(layerLimit)
	layerLimit = fixedLayers + 3
	s := newStore(t)
	stages := map[string]map[string]string{}
	for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
		stages[n] = map[string]string{"outputs/x/f": noise(3000, uint64(n[0])), "logs/stage.log": n}
	}
	d := sealRun(t, s, "r1", "", stages)
	age(t, s)
	if r := collect(t, s, GCOptions{Apply: true}); len(r.Garbage) != 0 {
		t.Errorf("%d blobs deleted", len(r.Garbage))
	}
	run, err := s.Run(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range run.Config.Records {
		if err := s.CheckTree(context.Background(), r.Record.Tree); err != nil {
			t.Error(err)
		}
	}
}
