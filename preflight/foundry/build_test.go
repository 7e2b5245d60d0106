package foundry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"assay/internal/engines/emulated/foundry"
	public "assay/internal/foundry"
)

const (
	base    = 0x400000000000
	region  = 1 << 30
	scratch = 4 << 20
)

var models = []string{"org/a", "org/b"}

// archive is what the emulated engine saves for two models, in memory.
func archive(t testing.TB) fstest.MapFS {
	t.Helper()
	dir := t.TempDir()
	for _, m := range models {
		s := foundry.Spec{Model: m, Binding: "weights of " + m, BatchSizes: []int{1, 2, 4}, SeqLenBucket: 2048, BaseAddress: base, RegionSizeBytes: region, ScratchSizeBytes: scratch}
		if _, err := foundry.Save(dir, s); err != nil {
			t.Fatal(err)
		}
	}
	out := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path.Join(dir, p))
		out[p] = &fstest.MapFile{Data: b, Mode: 0o644}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func clone(from fstest.MapFS) fstest.MapFS {
	out := fstest.MapFS{}
	for p, f := range from {
		out[p] = &fstest.MapFile{Data: append([]byte(nil), f.Data...), Mode: f.Mode}
	}
	return out
}

// seal makes the catalogs list the files as they are: what somebody who changes a file
// can do too.
func seal(t testing.TB, files fstest.MapFS) {
	t.Helper()
	for _, m := range models {
		dir := public.Folder(m)
		at := dir + "/" + public.CatalogFile
		if files[at] == nil {
			continue
		}
		var c public.Catalog
		if err := json.Unmarshal(files[at].Data, &c); err != nil {
			t.Fatal(err)
		}
		c.Files = nil
		for p, f := range files {
			if rest, ok := strings.CutPrefix(p, dir+"/"); ok && p != at && f.Mode.IsRegular() {
				sum := sha256.Sum256(f.Data)
				c.Files = append(c.Files, public.File{Path: rest, Size: int64(len(f.Data)), SHA256: hex.EncodeToString(sum[:])})
			}
		}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		files[at].Data = b
	}
}

func ptr[T any](v T) *T { return &v }

func wanted() Registered {
	return Registered{Mode: Load, Models: models, Ranks: ptr(1), BatchSizes: []int{1, 2, 4}, SeqLenBucket: ptr(2048),
		BaseAddress: ptr(uint64(base)), RegionSizeBytes: ptr(uint64(region)), ScratchSizeBytes: ptr(uint64(scratch)), GPUMemoryBytes: ptr(uint64(40 << 30))}
}

// change alters the files of an archive, or what is wanted of it.
type change func(t *testing.T, files fstest.MapFS, want *Registered)

func file(name string, f func(b []byte) []byte) change {
	return func(t *testing.T, files fstest.MapFS, _ *Registered) {
		if files[name] == nil {
			t.Fatalf("no file %s", name)
		}
		files[name].Data = f(files[name].Data)
	}
}

func replace(name, from, to string) change {
	return func(t *testing.T, files fstest.MapFS, want *Registered) {
		if files[name] == nil || !strings.Contains(string(files[name].Data), from) {
			t.Fatalf("no %q in %s", from, name)
		}
		file(name, func(b []byte) []byte { return []byte(strings.Replace(string(b), from, to, 1)) })(t, files, want)
	}
}

func cut(name string, most int) change {
	return file(name, func(b []byte) []byte { return b[:min(most, len(b))] })
}

func remove(names ...string) change {
	return func(t *testing.T, files fstest.MapFS, _ *Registered) {
		for _, n := range names {
			if files[n] == nil {
				t.Fatalf("no file %s", n)
			}
			delete(files, n)
		}
	}
}

func put32(name string, at int, n uint32) change {
	return file(name, func(b []byte) []byte { binary.LittleEndian.PutUint32(b[at:], n); return b })
}

func put64(name string, at int, n uint64) change {
	return file(name, func(b []byte) []byte { binary.LittleEndian.PutUint64(b[at:], n); return b })
}

func link(name, target string) change {
	return func(_ *testing.T, files fstest.MapFS, _ *Registered) {
		files[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
	}
}

func add(name, content string) change {
	return func(_ *testing.T, files fstest.MapFS, _ *Registered) {
		files[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
	}
}

func want(f func(w *Registered)) change {
	return func(_ *testing.T, _ fstest.MapFS, w *Registered) { f(w) }
}

// both makes two changes.
func both(list ...change) change {
	return func(t *testing.T, files fstest.MapFS, w *Registered) {
		for _, c := range list {
			c(t, files, w)
		}
	}
}
