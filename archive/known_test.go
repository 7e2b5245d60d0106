package archive

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"assay/internal/statcache"
	"assay/schemas"
)

// onDisk is a folder on a disk of this host whose stamps can be relied on.
func onDisk(t *testing.T) string {
	t.Helper()
	if dir := t.TempDir(); statcache.LocalDisk(dir) {
		return dir
	}
	dir, err := os.MkdirTemp("/var/tmp", "archive-")
	if err != nil || !statcache.LocalDisk(dir) {
		t.Skipf("no folder for temporary files is on a known local disk: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// newDiskStore is newStore on such a disk.
func newDiskStore(t *testing.T) *Store {
	t.Helper()
	s, err := Create(filepath.Join(onDisk(t), "store"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// remembered is a store with a folder of small and large files that its caches
// know, all on a disk.
func remembered(t *testing.T) (s *Store, dir string, tree schemas.Tree, doc schemas.Digest) {
	t.Helper()
	base := onDisk(t)
	dir = filepath.Join(base, "tree")
	for name, content := range map[string]string{"small": noise(1000, 7), "text": strings.Repeat("text\n", 100), "large": noise(largeFileBytes+5, 8),
		"squeezed": strings.Repeat("some text\n", largeFileBytes/8)} {
		writeFile(t, filepath.Join(dir, name), []byte(content))
	}
	s, err := Create(filepath.Join(base, "store"))
	if err != nil {
		t.Fatal(err)
	}
	settle(t, dir)
	tree, doc = put(t, s, context.Background(), dir)
	settle(t, s.path(blobsDir))
	return s, dir, tree, doc
}

// A blob that was changed in place at its right size is found out before a new
// tree names it, also when no file of the tree has to be read.
func TestRottenBlobsAreNotNamed(t *testing.T) {
	ctx := context.Background()
	for name, rot := range map[string]func(path string, was os.FileInfo) error{
		"in place": func(path string, _ os.FileInfo) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("rot"), 100)
			return err
		},
		"in place, with its old times": func(path string, was os.FileInfo) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			if _, err = f.WriteAt([]byte("rot"), 100); err != nil {
				return err
			}
			return os.Chtimes(path, was.ModTime(), was.ModTime())
		},
		"replaced": func(path string, was os.FileInfo) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[100] ^= 1
			if err := os.WriteFile(path+"~", b, 0o600); err != nil {
				return err
			}
			if err := os.Chtimes(path+"~", was.ModTime(), was.ModTime()); err != nil {
				return err
			}
			return os.Rename(path+"~", path)
		},
	} {
		for _, process := range []string{"same", "new"} {
			t.Run(name+", "+process+" process", func(t *testing.T) {
				s, dir, tree, doc := remembered(t)
				for _, b := range tree.Blobs {
					info, err := os.Lstat(s.blobPath(b.Digest))
					if err == nil {
						err = rot(s.blobPath(b.Digest), info)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if process == "new" {
					s = reopen(t, s.Dir())
				}
				if _, got := put(t, s, ctx, dir); got != doc {
					t.Errorf("tree document %s, want %s", got, doc)
				}
				if err := s.CheckTree(ctx, doc); err != nil {
					t.Errorf("a rotten blob was named: %v", err)
				}
			})
		}
	}
}

// A row that is out of date is proved by reading the blob, once; nothing is
// written, and no file of the tree is read.
func TestStampsAreRenewed(t *testing.T) {
	ctx := context.Background()
	s, dir, tree, doc := remembered(t)
	var stored int64
	for _, b := range tree.Blobs {
		stored += b.Size
		now := time.Now()
		if err := os.Chtimes(s.blobPath(b.Digest), now, now); err != nil { // as another process freshens it
			t.Fatal(err)
		}
	}
	for _, want := range []struct {
		what    string
		atLeast int64
		atMost  int64
	}{{"after another process was there", stored, stored + 1<<20}, {"once more", 0, 1 << 20}} {
		s = reopen(t, s.Dir())
		blobs, read := counted(t, func() {
			if _, got := put(t, s, ctx, dir); got != doc {
				t.Errorf("tree document %s, want %s", got, doc)
			}
		})
		if blobs != 0 || read < want.atLeast || read > want.atMost {
			t.Errorf("%s: %d blobs written and %d bytes read, want 0 and from %d to %d", want.what, blobs, read, want.atLeast, want.atMost)
		}
	}
}

// rows reads the table of stored blobs.
func rows(t *testing.T, s *Store) map[string][]byte {
	t.Helper()
	table := statcache.NewTable(s.path(cacheDir+"/blobs"), 32, knownValue, statcache.DefaultMaxRows)
	if err := table.Load(); err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	table.Each(func(key, value []byte) bool {
		out[string(key)] = append([]byte(nil), value...)
		return true
	})
	return out
}

func setRow(t *testing.T, s *Store, key string, value []byte) {
	t.Helper()
	table := statcache.NewTable(s.path(cacheDir+"/blobs"), 32, knownValue, statcache.DefaultMaxRows)
	if err := table.Load(); err != nil {
		t.Fatal(err)
	}
	table.Put([]byte(key), value)
	if err := table.Save(); err != nil {
		t.Fatal(err)
	}
}

// lies are rows that say of one content that it lies where another does.
func lies(t *testing.T, s *Store, tree schemas.Tree, how string) int {
	t.Helper()
	n := 0
	for key, v := range rows(t, s) {
		b, _, ok := parseRow([]byte(key), v)
		if !ok {
			continue // a hint
		}
		for _, wrong := range tree.Blobs {
			if wrong.Digest == b.Digest || wrong.MediaType == MediaPack != (b.MediaType == MediaPack) && how == "believable" {
				continue
			}
			lie := (&s.caches).row(knownRow{[]byte(key), wrong})
			if how == "swapped" { // the value of another row, as it stands there
				for _, v := range rows(t, s) {
					if x, _, ok := parseRow([]byte(key), v); v[0] != 0 && (!ok || x.Digest != b.Digest) {
						lie = v
					}
				}
			}
			setRow(t, s, key, lie)
			n++
			break
		}
	}
	return n
}

// Whatever the table of stored blobs says, what is stored can be read back; fsck
// finds the lies, and a repair drops them.
func TestLyingRows(t *testing.T) {
	ctx := context.Background()
	for _, how := range []string{"unstamped", "swapped"} {
		t.Run(how, func(t *testing.T) {
			s, dir, tree, doc := remembered(t)
			s.whole.Clear() // rows that are made up have no stamp
			if lies(t, s, tree, how) == 0 {
				t.Fatal("no row to change")
			}
			other := reopen(t, s.Dir())
			if _, got := put(t, other, ctx, dir); got != doc {
				t.Errorf("tree document %s, want %s", got, doc)
			}
			if err := other.CheckTree(ctx, doc); err != nil {
				t.Errorf("a lie was believed: %v", err)
			}
			if lies(t, s, tree, how) == 0 {
				t.Fatal("no row to change")
			}
			if r := check(t, s, false); !strings.Contains(findingIDs(r), "cache/warning") {
				t.Errorf("fsck says %q", findingIDs(r))
			}
			check(t, s, true)
			if r := check(t, reopen(t, s.Dir()), false); findingIDs(r) != "" {
				t.Errorf("after the repair %q", findingIDs(r))
			}
		})
	}
}

// Every row that storing writes is one that reading the blob proves: fsck finds
// nothing to say of an honest table, and a false one even when its stamp is right.
func TestFsckProvesRows(t *testing.T) {
	s, _, tree, _ := remembered(t)
	if r := check(t, s, false); findingIDs(r) != "" {
		t.Fatalf("an honest table: %+v", r.Findings)
	}
	if lies(t, s, tree, "believable") == 0 {
		t.Fatal("no row to change")
	}
	if r := check(t, s, false); findingIDs(r) != "cache/warning" {
		t.Errorf("lies with stamps: %q", findingIDs(r))
	}
	check(t, s, true)
	if r := check(t, reopen(t, s.Dir()), false); findingIDs(r) != "" {
		t.Errorf("after the repair %+v", r.Findings)
	}
}

func TestNoCacheWithoutADisk(t *testing.T) {
	const shm = "/dev/shm"
	if _, err := os.Stat(shm); err != nil {
		t.Skip("no tmpfs at " + shm)
	}
	dir, err := os.MkdirTemp(shm, "archive-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dir)
	writeFile(t, filepath.Join(dir, "tree", "f"), []byte("content"))
	s, err := Create(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	settle(t, filepath.Join(dir, "tree"))
	put(t, s, context.Background(), filepath.Join(dir, "tree"))
	if _, err := os.Lstat(s.path(cacheDir + "/files")); err == nil {
		t.Error("files on a tmpfs are remembered by what stat says of them")
	}
	for key, v := range rows(t, s) {
		if _, stamp, ok := parseRow([]byte(key), v); ok && strings.Trim(stamp, "\x00") != "" {
			t.Error("a row has a stamp of a tmpfs")
		}
	}
}
