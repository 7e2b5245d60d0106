package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"assay/internal/durable"
	"assay/internal/statcache"
	"assay/schemas"
)

// settle waits until a change to any file below dir must show in its stat.
func settle(t testing.TB, dir string) {
	t.Helper()
	for settled := false; !settled; runtime.Gosched() {
		settled = true
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			settled = settled && err == nil && statcache.Settled(statcache.StampOf(info), time.Now())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func put(t interface{ Fatal(...any) }, s *Store, ctx context.Context, dir string) (schemas.Tree, schemas.Digest) {
	tree, doc, err := s.PutTree(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	return tree, doc
}

// manyFiles makes a folder of several packs and two large files, one of which
// compresses.
func manyFiles(t testing.TB, dir string) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{1})
	for i := range 60 {
		b := make([]byte, 700<<10)
		_, _ = random.Read(b)
		writeFile(t, filepath.Join(dir, fmt.Sprintf("d%d/file-%d-%s", i%7, i, strings.Repeat("ä", i%70))), b)
	}
	large := make([]byte, largeFileBytes+5)
	_, _ = random.Read(large)
	writeFile(t, filepath.Join(dir, "raw"), large)
	writeFile(t, filepath.Join(dir, "text"), bytes.Repeat([]byte("some text\n"), largeFileBytes/8))
	writeFile(t, filepath.Join(dir, "empty"), nil)
}

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// bytesRead is what this process has read so far.
func bytesRead(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skipf("no count of bytes read: %v", err)
	}
	var n int64
	if _, err := fmt.Sscanf(string(b), "rchar: %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// counted counts the blobs that get a name and the bytes that are read while fn
// runs.
func counted(t testing.TB, fn func()) (blobs int, read int64) {
	t.Helper()
	var mu sync.Mutex
	durable.SetHook(func(op durable.Op, path string) error {
		mu.Lock()
		defer mu.Unlock()
		if op == durable.OpRename && strings.Contains(path, blobsDir) {
			blobs++
		}
		return nil
	})
	defer durable.SetHook(nil)
	before := bytesRead(t)
	fn()
	return blobs, bytesRead(t) - before
}

// An unchanged folder is not read again, also by another process; a changed file
// costs its pack; the same content elsewhere is read and not written.
func TestPutTreeAgain(t *testing.T) {
	ctx := context.Background()
	s, dir := newDiskStore(t), filepath.Join(onDisk(t), "tree")
	manyFiles(t, dir)
	settle(t, dir)
	tree, doc := put(t, s, ctx, dir)
	if err := s.CheckTree(ctx, doc); err != nil {
		t.Fatal(err)
	}
	packs := 0
	for _, b := range tree.Blobs {
		if b.MediaType == MediaPack {
			packs++
		}
	}
	if packs < 2 {
		t.Fatalf("%d packs, want several", packs)
	}
	again, err := Open(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]*Store{"same process": s, "opened anew": again} {
		blobs, read := counted(t, func() {
			if _, got := put(t, store, ctx, dir); got != doc {
				t.Errorf("%s: tree document %s, want %s", name, got, doc)
			}
		})
		if blobs != 0 || read > 1<<20 {
			t.Errorf("%s: %d blobs written and %d bytes read for an unchanged folder", name, blobs, read)
		}
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if blobs, _ := counted(t, func() { put(t, s, ctx, copied) }); blobs != 0 {
		t.Errorf("%d blobs written for a copy of a stored folder", blobs)
	}
	if _, read := counted(t, func() { put(t, s, WithRehash(ctx), dir) }); read < 40<<20 {
		t.Errorf("%d bytes read with rehash, want all", read)
	}
	writeFile(t, filepath.Join(dir, "d1/file-1-ä"), []byte("changed"))
	settle(t, dir)
	var changed schemas.Digest
	blobs, read := counted(t, func() { _, changed = put(t, s, ctx, dir) })
	if blobs != 2 || read > packLimitBytes+1<<20 {
		t.Errorf("%d blobs written and %d bytes read for one changed file, want its pack and the tree document", blobs, read)
	}
	if _, want := put(t, newStore(t), ctx, dir); want != changed {
		t.Errorf("tree document %s, a new store gives %s", changed, want)
	}
	if err := s.CheckTree(ctx, changed); err != nil {
		t.Error(err)
	}
}

// A blob that was removed or torn since is written again.
func TestPutTreeAgainAfterLoss(t *testing.T) {
	ctx := context.Background()
	s, dir := newDiskStore(t), filepath.Join(onDisk(t), "tree")
	manyFiles(t, dir)
	settle(t, dir)
	tree, doc := put(t, s, ctx, dir)
	for i, b := range tree.Blobs {
		var err error
		if i%2 == 0 {
			err = os.Remove(s.blobPath(b.Digest))
		} else {
			err = os.Truncate(s.blobPath(b.Digest), b.Size-1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, got := put(t, s, ctx, dir); got != doc {
		t.Errorf("tree document %s, want %s", got, doc)
	}
	if err := s.CheckTree(ctx, doc); err != nil {
		t.Error(err)
	}
}

// However a folder is changed between two calls, and however quickly, a store
// that remembers gives what one that reads everything gives.
func TestPutTreeRemembersNothingWrong(t *testing.T) {
	ctx, disk := context.Background(), onDisk(t)
	rapid.Check(t, func(rt *rapid.T) {
		base, err := os.MkdirTemp(disk, "")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(base)
		dir := filepath.Join(base, "tree")
		s, err := Create(filepath.Join(base, "s"))
		if err != nil {
			rt.Fatal(err)
		}
		for i := range 4 {
			writeFile(t, filepath.Join(dir, fmt.Sprint("f", i)), []byte{byte(i), 1})
		}
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			if rapid.IntRange(0, 3).Draw(rt, "wait") == 0 {
				settle(t, dir)
			}
			tree, doc := put(rt, s, ctx, dir)
			want, wantDoc := put(rt, s, WithRehash(ctx), dir)
			if tree.Digest != want.Digest || doc != wantDoc {
				rt.Fatalf("tree %s in %s, want %s in %s", tree.Digest, doc, want.Digest, wantDoc)
			}
			for range rapid.IntRange(0, 3).Draw(rt, "changes") {
				change(rt, dir)
			}
		}
	})
}

// change does something to one of the four files that keeps its size.
func change(t *rapid.T, dir string) {
	name := filepath.Join(dir, fmt.Sprint("f", rapid.IntRange(0, 3).Draw(t, "file")))
	content := []byte{rapid.Byte().Draw(t, "byte"), 1}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	switch rapid.SampledFrom([]string{"write", "keep time", "replace", "swap", "mode"}).Draw(t, "change") {
	case "write":
		err = os.WriteFile(name, content, 0o644)
	case "keep time":
		if err = os.WriteFile(name, content, 0o644); err == nil {
			err = os.Chtimes(name, time.Time{}, info.ModTime())
		}
	case "replace":
		if err = os.WriteFile(name+".new", content, 0o644); err == nil {
			if err = os.Chtimes(name+".new", time.Time{}, info.ModTime()); err == nil {
				err = os.Rename(name+".new", name)
			}
		}
	case "swap":
		err = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, filepath.Join(dir, "f0"), unix.RENAME_EXCHANGE)
		if filepath.Base(name) == "f0" {
			err = nil
		}
	case "mode":
		err = os.Chmod(name, info.Mode()^0o111)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A pack is the tar that the tar writer makes, with files where trees say.
func TestPackIsTar(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zä]{1,60}(/[a-z]{1,60}){0,3}`), 1, 5, rapid.ID).Draw(rt, "names")
		s := newStore(t)
		p, err := s.newPack(MediaPack)
		if err != nil {
			rt.Fatal(err)
		}
		defer p.abort()
		at := int64(0)
		for i, n := range names {
			size := int64(rapid.IntRange(1, 1500).Draw(rt, "size"))
			head, err := headerBytes(n, i%2 == 0, size)
			if err != nil {
				rt.Fatal(err)
			}
			offset, err := p.add(n, i%2 == 0, size, bytes.NewReader(make([]byte, size)))
			if err != nil || offset != at+head {
				rt.Fatalf("%s begins at %d, computed %d, %v", n, offset, at+head, err)
			}
			at += head + (size+511)/512*512
		}
	})
}

// The content of a pack is the tar that the tar writer makes: files sorted by
// path, those that look random after the others, each where its tree says.
func TestPackContent(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	dir := t.TempDir()
	for i := range 50 {
		content := bytes.Repeat([]byte{byte(i), 'x'}, 1000*i+1)
		if i%3 == 1 {
			content = []byte(noise(500*i, uint64(i)))
		}
		writeFile(t, filepath.Join(dir, fmt.Sprintf("f%02d", i)), content)
	}
	tree, _ := put(t, s, ctx, dir)
	if len(tree.Blobs) != 1 {
		t.Fatalf("%d blobs, want 1", len(tree.Blobs))
	}
	var want bytes.Buffer
	tw := tar.NewWriter(&want)
	for _, random := range []bool{false, true} {
		for i, e := range tree.Entries {
			if (i%3 == 1) != random {
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, e.Path))
			if err != nil {
				t.Fatal(err)
			}
			err = tw.WriteHeader(packHeader(e.Path, e.Executable, e.Size))
			if err != nil || int64(want.Len()) != e.Parts[0].Offset {
				t.Fatalf("%s at %d, %v, the tree says %d", e.Path, want.Len(), err, e.Parts[0].Offset)
			}
			if _, err := tw.Write(b); err != nil {
				t.Fatal(err)
			}
			if err := tw.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(s.blobPath(tree.Blobs[0].Digest))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, release, err := decode(f)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	got, err := io.ReadAll(plain)
	if err != nil || !bytes.Equal(got, want.Bytes()) || tree.Blobs[0].ContentSize != int64(want.Len()) {
		t.Errorf("%d bytes of content, %v, %d announced; want the tar of %d bytes", len(got), err, tree.Blobs[0].ContentSize, want.Len())
	}
	// Known files and packs give the same tree without being read.
	again, _ := put(t, s, ctx, dir)
	if again.Digest != tree.Digest || !slices.EqualFunc(again.Entries, tree.Entries, func(a, b schemas.TreeEntry) bool {
		return a.Path == b.Path && slices.Equal(a.Parts, b.Parts)
	}) {
		t.Error("stored again, the tree is another")
	}
}

// Progress begins and ends each phase, never goes back, and ends at its total.
func TestProgress(t *testing.T) {
	var last Progress
	ctx := WithProgress(context.Background(), func(p Progress) {
		if p.Phase == last.Phase && p.Done < last.Done {
			t.Errorf("%+v after %+v", p, last)
		}
		if p.Phase != PhaseSync {
			last = p
		}
	})
	s := newStore(t)
	dir := filepath.Join(t.TempDir(), "tree")
	manyFiles(t, dir)
	tree, doc := put(t, s, ctx, dir)
	_, size := schemas.SumEntries(tree.Entries)
	if last.Phase != PhaseStore || last.Done != size || last.Total != size {
		t.Errorf("storing ended with %+v, want %d bytes", last, size)
	}
	put(t, s, ctx, dir)
	if last.Phase != PhaseStore || last.Done != size {
		t.Errorf("storing again ended with %+v, want %d bytes", last, size)
	}
	if err := s.CheckTree(ctx, doc); err != nil || last.Phase != PhaseVerify || last.Done != last.Total {
		t.Errorf("checking ended with %+v, %v", last, err)
	}
	if err := s.Materialize(ctx, doc, "", filepath.Join(t.TempDir(), "out")); err != nil || last.Phase != PhaseExtract || last.Done != size || last.Total != size {
		t.Errorf("writing ended with %+v, %v, want %d bytes", last, err, size)
	}
}

// What looks random does not spoil the code of its neighbours.
func TestPackKeepsRandomApart(t *testing.T) {
	ctx := context.Background()
	sizes := map[bool]int64{}
	for _, mixed := range []bool{false, true} {
		s, dir := newStore(t), t.TempDir()
		random := rand.New(rand.NewChaCha8([32]byte{5}))
		for i := range 200 {
			var text []byte
			for len(text) < 8000 {
				text = fmt.Appendf(text, "step=%d latency_ms=%.3f\n", random.IntN(1e6), random.Float64()*100)
			}
			writeFile(t, filepath.Join(dir, fmt.Sprintf("f%03d", i)), text)
			if mixed {
				writeFile(t, filepath.Join(dir, fmt.Sprintf("f%03d-random", i)), []byte(noise(8000, uint64(i))))
			}
		}
		tree, doc := put(t, s, ctx, dir)
		if err := s.CheckTree(ctx, doc); err != nil {
			t.Fatal(err)
		}
		sizes[mixed] = tree.Blobs[0].Size
	}
	if more, random := sizes[true]-sizes[false], int64(200*8000); more > random+random/50+200*100 {
		t.Errorf("%d random bytes made a pack of %d bytes %d bytes longer", random, sizes[false], more)
	}
	for text, want := range map[string]bool{"": false, "a": false, "some text that is text": false, noise(1024, 1): true, noise(100_000, 2): true} {
		if got := isFlat([]byte(text)); got != want {
			t.Errorf("%d bytes look random: %t, want %t", len(text), got, want)
		}
	}
}
