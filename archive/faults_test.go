package archive

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// fault is how an operation goes wrong.
type fault struct {
	name string
	err  error
	only durable.Op // "" for every operation
	on   bool       // and every one after it, too
}

var faults = []fault{
	{"no space", syscall.ENOSPC, "", false}, {"no space any more", syscall.ENOSPC, "", true},
	{"I/O error", syscall.EIO, "", false}, {"I/O errors from then on", syscall.EIO, "", true},
	{"over quota", syscall.EDQUOT, "", false}, {"over quota from then on", syscall.EDQUOT, "", true},
	{"read-only", syscall.EROFS, "", false}, {"read-only from then on", syscall.EROFS, "", true},
	{"short write", &durable.ShortWrite{N: 5, Err: syscall.ENOSPC}, durable.OpWrite, false},
	{"short write, then full", &durable.ShortWrite{N: 5, Err: syscall.ENOSPC}, durable.OpWrite, true},
	{"killed", errKilled, "", true},
}

// injector fails the at-th operation.
func (f fault) injector(at int64) (hook durable.Hook, count *atomic.Int64, hit *atomic.Bool) {
	count, hit = new(atomic.Int64), new(atomic.Bool)
	return func(op durable.Op, _ string) error {
		n := count.Add(1)
		switch {
		case n == at && (f.only == "" || f.only == op):
			hit.Store(true)
			return f.err
		case n > at && f.on && hit.Load():
			return f.err
		}
		return nil
	}, count, hit
}

// faultCase is one job that is hit at each of its operations.
type faultCase struct {
	name string
	// prepare makes of a copy of the base store what the job needs.
	prepare func(t *testing.T, s *Store)
	act     func(t *testing.T, s *Store, out string) error
	// check looks at a store, opened anew, and at what is in out; done says that
	// the job was told it had succeeded.
	check func(t *testing.T, s *Store, out string, done bool)
}

// faultBase is a store with two runs, tagged, the second removed from nothing yet.
type faultBase struct {
	dir           string
	first, second schemas.Digest
}

func newFaultBase(t *testing.T) faultBase {
	s := newStore(t)
	b := faultBase{dir: s.Dir(), first: sealRun(t, s, "r0", "kept", smallStages())}
	b.second = sealRun(t, s, "r1", "old", map[string]map[string]string{"gen": {"outputs/x/f": "the second", "outputs/x/g": "more of it"}})
	return b
}

// age makes blobs older than any grace period.
func age(t testing.TB, s *Store) {
	t.Helper()
	list, err := s.blobs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		old := time.Now().Add(-3 * DefaultGrace)
		if err := os.Chtimes(s.blobPath(b.digest), old, old); err != nil {
			t.Fatal(err)
		}
	}
}

func flip(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// listed verifies every run in the index and returns their digests.
func listed(t *testing.T, s *Store) []schemas.Digest {
	t.Helper()
	runs, err := s.Runs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var out []schemas.Digest
	for _, r := range runs {
		v, err := s.Verify(context.Background(), r.Digest)
		wantVerdict(t, v, err, Valid)
		out = append(out, r.Digest)
	}
	return out
}

func wantListed(t *testing.T, s *Store, must ...schemas.Digest) []schemas.Digest {
	t.Helper()
	have := listed(t, s)
	for _, d := range must {
		if !slices.Contains(have, d) {
			t.Fatalf("run %s is lost: there are %v", d.Short(), have)
		}
	}
	return have
}

func tagOf(t *testing.T, s *Store, name string) schemas.Digest {
	t.Helper()
	runs, err := s.Runs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var found []schemas.Digest
	for _, r := range runs {
		if slices.Contains(r.Tags, name) {
			found = append(found, r.Digest)
		}
	}
	if len(found) > 1 {
		t.Fatalf("tag %s names %d runs", name, len(found))
	}
	return append(found, "")[0]
}

func (b faultBase) commit() faultCase {
	return faultCase{name: "commit", act: func(t *testing.T, s *Store, _ string) error {
		release, err := s.Lease(context.Background(), "r2")
		if err != nil {
			return err
		}
		req, err := runRequest(t, s, "r2", tinyStages())
		if err == nil {
			req.Tag = "fresh"
			_, err = s.Seal(context.Background(), req)
		}
		return errors.Join(err, release())
	}, check: func(t *testing.T, s *Store, _ string, done bool) {
		have := wantListed(t, s, b.first, b.second)
		if fresh := tagOf(t, s, "fresh"); len(have) > 3 || (len(have) == 3) != (fresh != "") || done && fresh == "" {
			t.Fatalf("%d runs, tag fresh names %q, success reported: %v", len(have), fresh, done)
		}
	}}
}

func (b faultBase) gc() faultCase {
	return faultCase{name: "gc", prepare: func(t *testing.T, s *Store) {
		if _, err := s.Remove(context.Background(), []schemas.Digest{b.second}, false); err != nil {
			t.Fatal(err)
		}
		age(t, s)
	}, act: func(_ *testing.T, s *Store, _ string) error {
		_, err := s.Collect(context.Background(), GCOptions{Apply: true})
		return err
	}, check: func(t *testing.T, s *Store, _ string, done bool) {
		wantListed(t, s, b.first)
		r, err := s.Collect(context.Background(), GCOptions{})
		if err != nil || done && len(r.Garbage) > 0 {
			t.Fatalf("%d blobs of garbage left, %v", len(r.Garbage), err)
		}
		if _, err := s.Run(context.Background(), b.second); err == nil && done {
			t.Fatal("the removed run is still there")
		}
	}}
}

func (b faultBase) rm() faultCase {
	return faultCase{name: "rm", act: func(_ *testing.T, s *Store, _ string) error {
		_, err := s.Remove(context.Background(), []schemas.Digest{b.second}, false)
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed already
		}
		return err
	}, check: func(t *testing.T, s *Store, _ string, done bool) {
		have := wantListed(t, s, b.first)
		if there := slices.Contains(have, b.second); there != (tagOf(t, s, "old") == b.second) || done && there {
			t.Fatalf("run there: %v, its tag: %q, success reported: %v", there, tagOf(t, s, "old"), done)
		}
	}}
}

func (b faultBase) tag() faultCase {
	return faultCase{name: "tag", act: func(_ *testing.T, s *Store, _ string) error {
		return s.Tag(context.Background(), "kept", b.second)
	}, check: func(t *testing.T, s *Store, _ string, done bool) {
		wantListed(t, s, b.first, b.second)
		if d := tagOf(t, s, "kept"); d != b.first && d != b.second || done && d != b.second {
			t.Fatalf("the tag names %q, success reported: %v", d, done)
		}
	}}
}

func (b faultBase) export() faultCase {
	return faultCase{name: "export", act: func(_ *testing.T, s *Store, out string) error {
		file := filepath.Join(out, "run.tar")
		if _, err := os.Lstat(file); err == nil {
			return nil
		}
		_, err := s.SaveTar(context.Background(), b.first, "kept", file)
		return err
	}, check: func(t *testing.T, s *Store, out string, done bool) {
		wantListed(t, s, b.first, b.second)
		file := filepath.Join(out, "run.tar")
		if _, err := os.Lstat(file); err != nil {
			if done {
				t.Fatal(err)
			}
			return
		}
		ref, err := s.Resolve(context.Background(), file)
		if err != nil || ref.Digest != b.first {
			t.Fatalf("the tar holds %s, %v", ref.Digest.Short(), err)
		}
		v, err := ref.Verify(context.Background())
		wantVerdict(t, v, err, Valid)
	}}
}

// repair has everything to do: a changed blob, a damaged index, a torn record
// index and a journal that nobody can read.
func (b faultBase) repair(t *testing.T) faultCase {
	s, err := Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.manifestOf(b.second)
	if err != nil {
		t.Fatal(err)
	}
	blob := digestOf(layersOf(m, MediaPack)[0])
	const wrong = `{"schemaVersion":7,"manifests":[]}`
	var flipped []byte
	return faultCase{name: "fsck --repair", prepare: func(t *testing.T, s *Store) {
		flipped = flip(t, s.blobPath(blob))
		for name, text := range map[string]string{indexName: wrong, recordIndexName: "torn", "assay/journals/r9.jsonl": "{torn\n{}\n"} {
			if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}, act: func(_ *testing.T, s *Store, _ string) error {
		_, err := s.Fsck(context.Background(), FsckOptions{Repair: true})
		return err
	}, check: func(t *testing.T, s *Store, _ string, done bool) {
		for want, places := range map[string][]string{
			string(flipped):  {blobName(blob), quarantineDir + "/" + blob.Hex()},
			wrong:            {indexName, quarantineDir + "/index.json"},
			"{torn\n{}\n":    {"assay/journals/r9.jsonl", quarantineDir + "/r9.jsonl"},
			b.manifest(t, s): {blobName(b.first)},
		} {
			if !slices.ContainsFunc(places, func(p string) bool { got, err := os.ReadFile(s.path(p)); return err == nil && string(got) == want }) {
				t.Fatalf("what was in %s is lost", places[0])
			}
		}
		v, err := s.Verify(context.Background(), b.first)
		if err != nil || done && v.Verdict != Valid {
			t.Fatalf("%+v, %v", v, err)
		}
		if !done {
			return
		}
		runs, err := s.Runs(context.Background())
		if err != nil || !slices.ContainsFunc(runs, func(r RunInfo) bool { return r.Digest == b.first }) {
			t.Fatalf("runs %+v, %v", runs, err)
		}
		recs, err := s.RecordsByStage(context.Background(), "demo/sample", "replay")
		if err != nil || len(recs) != 1 {
			t.Fatalf("%d records, %v", len(recs), err)
		}
	}}
}

func (b faultBase) manifest(t *testing.T, _ *Store) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.dir, blobName(b.first)))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestFaults lets each operation of each job go wrong in each way (without
// ASSAY_EXHAUSTIVE in one way, another each time). After each: every run whole or not there,
// nothing of the user's touched, the store opens, and the job can be done again.
func TestFaults(t *testing.T) {
	b := newFaultBase(t)
	seed := rand.Int64N(int64(len(faults)))
	for _, c := range []faultCase{b.commit(), b.gc(), b.rm(), b.tag(), b.export(), b.repair(t)} {
		t.Run(c.name, func(t *testing.T) {
			points, tried := 0, 0
			for at := int64(1); ; at++ {
				reached := false
				for i, f := range faults {
					if os.Getenv("ASSAY_EXHAUSTIVE") == "" && int(at+seed)%len(faults) != i {
						continue
					}
					hit, more := b.try(t, c, f, at)
					reached = reached || more
					if hit {
						tried++
					}
				}
				if !reached {
					break
				}
				points++
			}
			if points < 4 {
				t.Errorf("only %d write points were seen", points)
			}
			t.Logf("%d write points, %d faults, 0 violations", points, tried)
		})
	}
}

// try hits one operation; more says that the job has at least that many.
func (b faultBase) try(t *testing.T, c faultCase, f fault, at int64) (hit, more bool) {
	t.Helper()
	top := t.TempDir()
	defer os.RemoveAll(top)
	dir, out := filepath.Join(top, "s"), filepath.Join(top, "out")
	mine := filepath.Join(out, "mine.txt")
	err := errors.Join(os.CopyFS(dir, os.DirFS(b.dir)), os.Mkdir(out, 0o755), os.WriteFile(mine, []byte("the user's"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	s := reopen(t, dir)
	if c.prepare != nil {
		c.prepare(t, s)
	}
	hook, count, wasHit := f.injector(at)
	durable.SetHook(hook)
	err = c.act(t, s, out)
	durable.SetHook(nil)
	if t.Failed() {
		t.Fatalf("%s at operation %d", f.name, at)
	}
	if err != nil && !wasHit.Load() {
		t.Fatalf("operation %d was not hit, and yet: %v", at, err)
	}
	defer func() {
		if t.Failed() {
			t.Logf("%s at operation %d of %s; error %v", f.name, at, c.name, err)
		}
	}()
	c.check(t, reopen(t, dir), out, err == nil)
	if err := c.act(t, reopen(t, dir), out); err != nil {
		t.Fatalf("done again: %v", err)
	}
	c.check(t, reopen(t, dir), out, true)
	if got, err := os.ReadFile(mine); err != nil || string(got) != "the user's" {
		t.Fatalf("the user's file: %q, %v", got, err)
	}
	return wasHit.Load(), count.Load() >= at
}

func reopen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What a commit reads is the user's: the same bytes, times and modes afterwards.
func TestFaultsLeaveInputsAlone(t *testing.T) {
	s := newStore(t)
	dir := writeFiles(t, smallStages()["replay"])
	look := func() string {
		var b bytes.Buffer
		err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			b.WriteString(strings.TrimPrefix(p, dir) + info.Mode().String() + info.ModTime().String())
			if info.Mode().IsRegular() {
				content, err := os.ReadFile(p)
				b.Write(content)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	before := look()
	for at := int64(1); ; at++ {
		hook, _, hit := faults[0].injector(at)
		durable.SetHook(hook)
		_, _, err := s.PutTree(context.Background(), dir)
		durable.SetHook(nil)
		if look() != before {
			t.Fatalf("operation %d changed what was stored", at)
		}
		if !hit.Load() {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}
