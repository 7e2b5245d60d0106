package foundry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"assay/internal/foundry"
)

var spec = Spec{Model: "org/a", Binding: "weights", BatchSizes: []int{1, 2, 4}, SeqLenBucket: 2048, BaseAddress: 0x400000000000, RegionSizeBytes: 1 << 30, ScratchSizeBytes: 4 << 20}

func saved(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if n, err := Save(dir, spec); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	return dir
}

func TestSaveAndLoad(t *testing.T) {
	dir := saved(t)
	if n, err := Load(dir, spec); err != nil || n != 3 {
		t.Errorf("%d graphs, %v", n, err)
	}
	if _, err := Save(dir, spec); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("saved over an archive: %v", err)
	}
	for _, name := range []string{"..", ".", "a/../b"} { // stays in its folder
		if f := Folder(dir, name); filepath.Dir(f) != dir || f == dir {
			t.Errorf("model %q in %s", name, f)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := saved(t)
	for want, change := range map[string]func(*Spec){
		"archive incomplete: model":    func(s *Spec) { s.Model = "other" },
		"binding mismatch":             func(s *Spec) { s.Binding = "other weights" },
		"layout mismatch: base":        func(s *Spec) { s.BaseAddress += 2 << 20 },
		"there is no graph":            func(s *Spec) { s.BatchSizes = []int{1, 2, 4, 8} },
		"layout mismatch: batch_sizes": func(s *Spec) { s.BatchSizes = []int{1, 2} },
	} {
		s := spec
		change(&s)
		if _, err := Load(dir, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestLoadSeesDamage: whatever is missing or changed is an error, and so is each
// contradiction between files whose digests are right.
func TestLoadSeesDamage(t *testing.T) {
	root := func(dir string) string { return Folder(dir, spec.Model) }
	var names []string
	first := saved(t)
	if err := filepath.WalkDir(root(first), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(root(first), path)
			names = append(names, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(names) != 12 {
		t.Fatalf("files %v", names)
	}
	for _, name := range names {
		dir := saved(t)
		path := filepath.Join(root(dir), name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b[:len(b)/2], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, spec); err == nil {
			t.Errorf("%s cut in half is taken", name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, spec); err == nil || !strings.Contains(err.Error(), "archive incomplete") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// folder is an archive in memory whose catalog lists its files as they are.
func folder(files map[string][]byte) fstest.MapFS {
	c := foundry.Catalog{ABI: foundry.CatalogABI, Spec: spec}
	out := fstest.MapFS{}
	for name, b := range files {
		sum := sha256.Sum256(b)
		c.Files = append(c.Files, foundry.File{Path: name, Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:])})
		out[name] = &fstest.MapFile{Data: b}
	}
	out[foundry.CatalogFile] = &fstest.MapFile{Data: encode(c)}
	return out
}

func TestContradictions(t *testing.T) {
	graphFile := rankFolder + "/graph_1_FULL_t2_r2_UX_pcN"
	edit := func(name, from, to string) func(map[string][]byte) {
		return func(files map[string][]byte) {
			b := string(files[name])
			if !strings.Contains(b, from) {
				t.Fatalf("no %q in %s", from, name)
			}
			files[name] = []byte(strings.Replace(b, from, to, 1))
		}
	}
	for want, change := range map[string]func(map[string][]byte){
		"outside of the region": edit(graphFile+".json", `"start_base_addr":70368744177664`, `"start_base_addr":1`),
		"no binary":             edit(graphFile+".json", "lm_head_gemm_kernel", "another_kernel"),
		"topology key":          edit(graphFile+".json", `"topology_key":"`, `"topology_key":"0`),
		"wrong magic":           edit(graphFile+".cugraph", "CUGRAPH", "NOGRAPH"),
		"is not its first":      edit(rankFolder+"/"+foundry.ManifestFile, `"template":"graph_0`, `"template":"graph_1`),
		"in two groups":         edit(rankFolder+"/"+foundry.ManifestFile, "graph_1_FULL_t2_r2", "graph_0_FULL_t1_r1"),
		"beyond the region":     edit(rankFolder+"/"+foundry.OffsetFile, `:`, `:999`),
		"hash mismatch":         func(f map[string][]byte) { f[rankFolder+"/"+foundry.ImagesFile][0]++ },
		"it is missing":         func(f map[string][]byte) { delete(f, rankFolder+"/"+foundry.EntriesFile) },
		"nodes: 3 here, 4": func(f map[string][]byte) {
			b := f[graphFile+".cugraph"]
			binary.LittleEndian.PutUint32(b[16:], 3)
			entry := b[foundry.HeaderBytes+foundry.SecNodes*foundry.EntryBytes:]
			binary.LittleEndian.PutUint64(entry[16:], 3*foundry.NodeBytes)
		},
	} {
		files := contents(spec)
		change(files)
		if err := check(folder(files), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if err := check(folder(contents(spec)), spec); err != nil {
		t.Error(err)
	}
}

// TestAnyArchive: whatever is saved is loaded, and entry points come back.
func TestAnyArchive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := spec
		s.BatchSizes = rapid.SliceOfNDistinct(rapid.IntRange(1, 200), 1, 8, rapid.ID[int]).Draw(rt, "sizes")
		slices.Sort(s.BatchSizes)
		s.Binding = rapid.String().Draw(rt, "binding")
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := Save(dir, s); err != nil {
			rt.Fatal(err)
		}
		if _, err := Load(dir, s); err != nil {
			rt.Error(err)
		}
	})
}
