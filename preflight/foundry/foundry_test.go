package foundry

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	public "assay/internal/foundry"
	"assay/preflight"
	"assay/schemas"
)

const (
	rank     = "org%2Fa/rank_0/"
	graph    = rank + "graph_1_FULL_t2_r2_UX_pcN"
	first    = rank + "graph_0_FULL_t1_r1_UX_pcN"
	manifest = rank + public.ManifestFile
	images   = rank + public.ImagesFile
	entries  = rank + public.EntriesFile
	offset   = rank + public.OffsetFile
	state    = "org%2Fa/" + public.StateFile
	catalog  = "org%2Fa/" + public.CatalogFile
)

// sectionAt is where the table has the offset of a section; its size follows.
func sectionAt(i int) int { return public.HeaderBytes + i*public.EntryBytes + 8 }

// worse are the findings that are no passes.
func worse(list []schemas.Finding) []schemas.Finding {
	return slices.DeleteFunc(slices.Clone(list), func(f schemas.Finding) bool {
		return f.Severity == schemas.SeverityPass || f.Severity == schemas.SeverityInfo
	})
}

func TestIntact(t *testing.T) {
	whole := archive(t)
	got := Check(context.Background(), "archive", whole, wanted())
	if bad := worse(got); len(bad) > 0 {
		t.Errorf("false alarm: %+v", bad)
	}
	for _, id := range []string{"pair", "manifest-group", "binaries", "inventory-changed", "address", "offset", "model-missing", "saved-with"} {
		if !slices.ContainsFunc(got, func(f schemas.Finding) bool { return f.ID == prefix+id && f.Severity == schemas.SeverityPass }) {
			t.Errorf("no pass of %s", id)
		}
	}
	if bad := worse(Check(context.Background(), "archive", whole, Registered{})); len(bad) > 0 {
		t.Errorf("false alarm without anything registered: %+v", bad)
	}
}

type broken struct {
	name, id, path string
	severity       schemas.Severity // error unless it is given
	sealed         bool             // the catalog lists the files as they are
	change         change
}

func files() []broken {
	huge := uint64(1<<64 - 16)
	return []broken{
		{name: "a .cugraph is missing", id: "pair", path: graph + ".cugraph", sealed: true, change: remove(graph + ".cugraph")},
		{name: "a .json is missing", id: "pair", path: graph + ".json", sealed: true, change: remove(graph + ".json")},
		{name: "an empty .cugraph", id: "empty-file", path: graph + ".cugraph", sealed: true, change: cut(graph+".cugraph", 0)},
		{name: "an empty note", id: "empty-file", path: state, sealed: true, change: cut(state, 0)},
		{name: "magic", id: "cugraph", path: graph + ".cugraph", sealed: true, change: replace(graph+".cugraph", "CUGRAPH", "NOGRAPH")},
		{name: "version", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put32(graph+".cugraph", 8, 2)},
		{name: "number of sections", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put32(graph+".cugraph", 28, 12)},
		{name: "truncated header", id: "cugraph", path: graph + ".cugraph", sealed: true, change: cut(graph+".cugraph", 100)},
		{name: "truncated sections", id: "cugraph", path: graph + ".cugraph", sealed: true, change: cut(graph+".cugraph", 1000)},
		{name: "node table too short", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put32(graph+".cugraph", 16, 5)},
		{name: "a million nodes", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put32(graph+".cugraph", 16, 1_000_000)},
		{name: "too many dependencies", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put32(graph+".cugraph", 20, 1<<31)},
		{name: "too many generators", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put32(graph+".cugraph", 24, 1)},
		{name: "too many strings", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put32(graph+".cugraph", 32, 1<<30)},
		{name: "a section near 2^64", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put64(graph+".cugraph", sectionAt(public.SecParamData), huge)},
		{name: "a length near 2^64", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put64(graph+".cugraph", sectionAt(public.SecParamData)+8, huge)},
		{name: "a section in the header", id: "cugraph", path: graph + ".cugraph", sealed: true, change: put64(graph+".cugraph", sectionAt(public.SecTopologyKey), 8)},
		{name: "sections overlap", id: "cugraph", path: graph + ".cugraph", sealed: true, change: file(graph+".cugraph", func(b []byte) []byte {
			copy(b[sectionAt(public.SecTopologyKey):], b[sectionAt(public.SecNodes):sectionAt(public.SecNodes)+8])
			return b
		})},
		{name: "allocations of a .cugraph are no JSON", id: "cugraph", path: graph + ".cugraph", sealed: true, change: replace(graph+".cugraph", `"start_base_addr":`, `"start_base_addr";`)},
		{name: "allocations differ", id: "graph-differs", path: graph + ".cugraph", sealed: true, change: replace(graph+".cugraph", `"ptr":7`, `"ptr":8`)},
		{name: "nodes differ", id: "graph-differs", path: graph + ".cugraph", sealed: true, change: replace(graph+".json", `{"id":3,`, `{"id":9,"type":"EmptyNode"},{"id":3,`)},
		{name: "a graph is no JSON", id: "graph", path: graph + ".json", sealed: true, change: cut(graph+".json", 200)},
		{name: "a graph goes too deep", id: "graph", path: graph + ".json", sealed: true, change: replace(graph+".json", `"generators":[]`, `"generators":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000))},
		{name: "a key twice", id: "graph", path: graph + ".json", sealed: true, change: replace(graph+".json", `"generators":[]`, `"generators":[],"nodes":[]`)},
		{name: "a hash beyond 64 bits", id: "graph", path: graph + ".json", sealed: true, change: replace(graph+".json", `"kernel_source_binary_hash":`, `"kernel_source_binary_hash":999999`)},
		{name: "a node twice", id: "graph", path: graph + ".json", sealed: true, change: replace(graph+".json", `{"id":3,`, `{"id":2,`)},
		{name: "a dependency on nothing", id: "graph", path: first + ".json", sealed: true, change: replace(first+".json", `"to":3`, `"to":33`)},
		{name: "no allocations", id: "graph", path: graph + ".json", sealed: true, change: replace(graph+".json", `"start_base_addr"`, `"start"`)},
		{name: "an unknown event", id: "graph", path: graph + ".json", sealed: true, change: replace(graph+".json", `"type":"alloc"`, `"type":"leak"`)},
		{name: "the manifest is missing", id: "manifest", path: manifest, sealed: true, change: remove(manifest)},
		{name: "the manifest is no JSON", id: "manifest", path: manifest, sealed: true, change: cut(manifest, 50)},
		{name: "the manifest has no groups", id: "manifest", path: manifest, sealed: true, change: replace(manifest, "topology_groups", "groups")},
		{name: "a graph in no group", id: "manifest-group", path: manifest, sealed: true, change: replace(manifest, `,"graph_1_FULL_t2_r2_UX_pcN.json"`, ``)},
		{name: "a graph in a group twice", id: "manifest-group", path: manifest, sealed: true, change: replace(manifest, `"graph_1_FULL_t2_r2_UX_pcN.json"`, `"graph_0_FULL_t1_r1_UX_pcN.json"`)},
		{name: "a member that is not there", id: "manifest-group", path: manifest, sealed: true, change: replace(manifest, `"graph_1_FULL_t2`, `"graph_9_FULL_t2`)},
		{name: "a template that is not the first", id: "manifest-group", path: manifest, sealed: true, change: replace(manifest, `"template":"graph_0_FULL_t1_r1`, `"template":"graph_1_FULL_t2_r2`)},
		{name: "another topology", id: "manifest-group", path: manifest, sealed: true, change: replace(manifest, `"topology_key":"`, `"topology_key":"0`)},
		{name: "no images", id: "images", path: images, sealed: true, change: remove(images)},
		{name: "truncated images", id: "images", path: images, sealed: true, change: cut(images, 30)},
		{name: "an image near 2^64", id: "images", path: images, sealed: true, change: put64(images, 8, huge)},
		{name: "segments near 2^64", id: "images", path: images, sealed: true, change: both(put64(images, 8, 0), put64(images, 16, huge))},
		{name: "no entry points", id: "entries", path: entries, sealed: true, change: remove(entries)},
		{name: "truncated entry points", id: "entries", path: entries, sealed: true, change: cut(entries, 60)},
		{name: "too many entry points", id: "entries", path: entries, sealed: true, change: replace(entries, "\n4\n", "\n18446744073709551615\n")},
		{name: "another hash", id: "binaries", path: entries, sealed: true, change: file(images, func(b []byte) []byte { b[0]++; return b })},
		{name: "an image more", id: "binaries", path: entries, sealed: true, change: file(images, func(b []byte) []byte { return append(b, b...) })},
		{name: "segments differ", id: "binaries", path: entries, sealed: true, change: replace(entries, "binary_flags=0", "binary_flags=0,num_segments=2")},
		{name: "a kernel that is not listed", id: "kernel", path: graph + ".json", sealed: true, change: replace(graph+".json", "lm_head_gemm_kernel", "another_kernel")},
		{name: "a binary that is not there", id: "kernel", path: graph + ".json", sealed: true, change: replace(graph+".json", `"kernel_source_binary_hash":`, `"kernel_source_binary_hash":7,"was":`)},
		{name: "the offset is no JSON", id: "offset", path: offset, sealed: true, change: cut(offset, 10)},
		{name: "the offset is beyond the region", id: "offset", path: offset, sealed: true, change: replace(offset, ":", ":99999999")},
		{name: "the state is no JSON", id: "warmup-state", path: state, sealed: true, change: cut(state, 10)},
		{name: "the state has another offset", id: "warmup-offset", path: state, severity: schemas.SeverityWarning, sealed: true, change: replace(state, `"final_alloc_offset":`, `"final_alloc_offset":1`)},
		{name: "another .json that is none", id: "json", path: rank + "notes.json", sealed: true, change: add(rank+"notes.json", "{")},
		{name: "a link out of the folder", id: "link", path: graph + ".json", sealed: true, change: link(graph+".json", "../../../graph.json")},
		{name: "a link to an absolute path", id: "link", path: graph + ".json", sealed: true, change: link(graph+".json", "/etc/hostname")},
		{name: "a link to nothing", id: "link", path: rank + "more", sealed: true, change: link(rank+"more", "nothing")},
		{name: "a link to a folder", id: "link", path: "org%2Fa/rank_1", sealed: true, change: link("org%2Fa/rank_1", "rank_0")},
		{name: "a changed file", id: "inventory-changed", path: entries, change: replace(entries, "decode.cubin", "decode.CUBIN")},
		{name: "a longer file", id: "inventory-changed", path: offset, change: file(offset, func(b []byte) []byte { return append(b, '\n') })},
		{name: "a missing file", id: "inventory-missing", path: state, change: remove(state)},
		{name: "a file more", id: "inventory-extra", path: rank + "notes.txt", change: add(rank+"notes.txt", "x")},
		{name: "the catalog is no JSON", id: "catalog", path: catalog, change: cut(catalog, 100)},
		{name: "an obsolete catalog", id: "catalog", path: catalog, change: replace(catalog, `"abi":1`, `"abi":7`)},
		{name: "a catalog that leads out", id: "catalog", path: catalog, change: replace(catalog, `"path":"`, `"path":"../`)},
	}
}

func wants() []broken {
	return []broken{
		{name: "another base", id: "address", path: graph + ".json", change: want(func(w *Registered) { w.BaseAddress = ptr(uint64(base + 1<<40)) })},
		{name: "an address outside", id: "address", path: graph + ".json", sealed: true, change: replace(graph+".json", `"start_base_addr":70368744177664`, `"start_base_addr":1`)},
		{name: "an allocation outside", id: "address", path: graph + ".json", sealed: true, change: replace(graph+".json", `"ptr":7`, `"ptr":8`)},
		{name: "an allocation beyond the last address", id: "address", path: graph + ".json", sealed: true, change: replace(graph+".json", `"size":2097152`, `"size":18446744073709551615`)},
		{name: "a smaller region", id: "saved-with", path: catalog, change: want(func(w *Registered) { w.RegionSizeBytes = ptr(uint64(region / 2)) })},
		{name: "another scratch", id: "saved-with", path: catalog, change: want(func(w *Registered) { w.ScratchSizeBytes = ptr(uint64(2 << 20)) })},
		{name: "another bucket", id: "saved-with", path: catalog, change: want(func(w *Registered) { w.SeqLenBucket = ptr(4096) })},
		{name: "fewer batch sizes", id: "saved-with", path: catalog, change: want(func(w *Registered) { w.BatchSizes = []int{1, 2} })},
		{name: "a batch size without graph", id: "batch-missing", path: strings.TrimSuffix(rank, "/"), change: want(func(w *Registered) { w.BatchSizes = []int{1, 2, 4, 8} })},
		{name: "a model without archive", id: "model-missing", change: want(func(w *Registered) { w.Models = []string{"org/a", "org/b", "org/c"} })},
		{name: "a rank without graphs", id: "rank-missing", path: "org%2Fa/rank_1", change: want(func(w *Registered) { w.Ranks = ptr(2) })},
		{name: "a hostile number of ranks", id: "rank-missing", path: "org%2Fa/rank_1", change: want(func(w *Registered) { w.Ranks = ptr(1 << 31) })},
		{name: "not aligned", id: "alignment", change: want(func(w *Registered) { w.ScratchSizeBytes = ptr(uint64(4<<20 + 1)) })},
		{name: "scratch as large as the region", id: "alignment", change: want(func(w *Registered) { w.ScratchSizeBytes = ptr(uint64(region)) })},
		{name: "a region beyond the last address", id: "alignment", change: want(func(w *Registered) { w.BaseAddress = ptr(uint64(1<<64 - 2<<20)) })},
		{name: "a small GPU", id: "gpu-memory", path: offset, change: want(func(w *Registered) { w.GPUMemoryBytes = ptr(uint64(1 << 20)) })},
		{name: "another record", id: "inventory-missing", path: "gone", change: want(func(w *Registered) { w.Files = []public.File{{Path: "gone", Size: 1}} })},
		{name: "saving over an archive", id: "save-folder", change: want(func(w *Registered) { w.Mode = Save })},
		{name: "loading nothing", id: "load-folder", change: func(_ *testing.T, files fstest.MapFS, _ *Registered) { clear(files) }},
		{name: "models are not known", id: "registered", severity: schemas.SeverityUnknown, change: want(func(w *Registered) { w.Models = nil })},
		{name: "ranks are not known", id: "registered", severity: schemas.SeverityUnknown, change: want(func(w *Registered) { w.Ranks = nil })},
		{name: "batch sizes are not known", id: "registered", severity: schemas.SeverityUnknown, change: want(func(w *Registered) { w.BatchSizes = nil })},
		{name: "no catalogs: nothing records the files", id: "inventory", severity: schemas.SeverityUnknown, change: remove(catalog, "org%2Fb/catalog.json")},
		{name: "no catalogs: nothing records the layout", id: "saved-with", path: "org%2Fa", severity: schemas.SeverityUnknown, change: remove(catalog, "org%2Fb/catalog.json")},
		{name: "one catalog less", id: "layout", severity: schemas.SeverityUnknown, change: remove(catalog)},
		{name: "region is not known", id: "address", severity: schemas.SeverityUnknown, change: both(remove(catalog), want(func(w *Registered) { w.RegionSizeBytes = nil }))},
	}
}

// TestBroken breaks an intact archive one way at a time: each is told with its ID, the
// file and what to do, and is no worse than the catalog says.
func TestBroken(t *testing.T) {
	whole := archive(t)
	known := map[string]preflight.Entry{}
	for _, e := range Catalog() {
		known[e.ID] = e
	}
	for _, b := range append(files(), wants()...) {
		got, w := clone(whole), wanted()
		b.change(t, got, &w)
		if b.sealed {
			seal(t, got)
		}
		if b.severity == "" {
			b.severity = schemas.SeverityError
		}
		found := Check(context.Background(), "archive", got, w)
		if !slices.ContainsFunc(found, func(f schemas.Finding) bool {
			return f.ID == prefix+b.id && f.Severity == b.severity && f.Path == b.path && strings.Contains(f.Message, b.path) && f.Remedy != ""
		}) {
			t.Errorf("%s: want %s of %q, got %+v", b.name, b.id, b.path, worse(found))
		}
		for _, f := range worse(found) {
			if known[f.ID].ID == "" {
				t.Errorf("%s: %s stands in no catalog", b.name, f.ID)
			}
		}
	}
	if n := len(files()) + len(wants()); n < 80 {
		t.Errorf("%d ways of breaking an archive", n)
	}
}

func TestFolders(t *testing.T) {
	ctx := context.Background()
	empty, missing := os.DirFS(t.TempDir()), os.DirFS(filepath.Join(t.TempDir(), "none"))
	for _, fsys := range []fs.FS{empty, missing} {
		if bad := worse(Check(ctx, "archive", fsys, Registered{Mode: Save})); len(bad) > 0 {
			t.Errorf("saving into a new folder: %+v", bad)
		}
		if bad := worse(Check(ctx, "archive", fsys, wanted())); len(bad) != 1 || bad[0].ID != "foundry.load-folder" {
			t.Errorf("loading from nothing: %+v", bad)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if bad := worse(Check(ended, "archive", archive(t), wanted())); len(bad) != 1 || bad[0].Severity != schemas.SeverityUnknown {
		t.Errorf("without time to read: %+v", bad)
	}
}

// TestRoot reads a real folder: links within are followed, those out of it are refused.
func TestRoot(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	for p, f := range archive(t) {
		at := filepath.Join(dir, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func() []schemas.Finding {
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		return worse(Check(context.Background(), "archive", root.FS(), wanted()))
	}
	name := filepath.Join(dir, filepath.FromSlash(entries))
	move := func(to, target string) {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	move(filepath.Join(dir, "org%2Fb", "shared.txt"), "../../org%2Fb/shared.txt")
	if bad := check(); len(bad) != 1 || bad[0].ID != "foundry.inventory-extra" || bad[0].Path != "org%2Fb/shared.txt" {
		t.Errorf("a link within: %+v", bad)
	}
	move(filepath.Join(out, "entries.txt"), filepath.Join(out, "entries.txt"))
	if bad := check(); !slices.ContainsFunc(bad, func(f schemas.Finding) bool { return f.ID == "foundry.link" && f.Path == entries }) {
		t.Errorf("a link out of the folder: %+v", bad)
	}
}

// without makes of an archive what integrations into serving engines write: no catalogs.
func without(t *testing.T) fstest.MapFS {
	got := archive(t)
	remove(catalog, "org%2Fb/catalog.json")(t, got, nil)
	return got
}

// TestLayouts: what folders and names do not tell is unknown, and information when the
// archive is known to load.
func TestLayouts(t *testing.T) {
	rename := func(got fstest.MapFS, from, to string) {
		for p, f := range clone(got) {
			if strings.Contains(p, from) {
				delete(got, p)
				got[strings.Replace(p, from, to, 1)] = f
			}
		}
	}
	one := clone(without(t))
	for p := range one {
		if strings.HasPrefix(p, "org%2Fb") {
			delete(one, p)
		}
	}
	rename(one, "org%2Fa/", "")
	ranks := without(t)
	rename(ranks, "org%2Fa/", "a/")
	rename(ranks, "org%2Fb/", "org--b/")
	other := without(t)
	rename(other, "org%2Fa/rank_0/", "first/")
	rename(other, "org%2Fb/rank_0/", "second/")
	for name, c := range map[string]struct {
		files   fstest.MapFS
		models  []string
		layout  string
		unknown []string
	}{
		"one model":       {one, models[:1], public.LayoutRanks, []string{"inventory", "saved-with"}},
		"folders a model": {ranks, models, public.LayoutRanks, []string{"inventory", "saved-with"}},
		"other folders":   {other, models, public.LayoutUnknown, []string{"inventory", "layout", "model-missing", "saved-with"}},
	} {
		a, err := public.Describe(context.Background(), c.files)
		if err != nil || a.Layout != c.layout || len(a.Problems) > 0 {
			t.Errorf("%s: layout %s, %v, %+v", name, a.Layout, err, a.Problems)
		}
		w := wanted()
		w.Models = c.models
		var ids []string
		for _, f := range worse(Judge("archive", a, w)) {
			if f.Severity != schemas.SeverityUnknown {
				t.Errorf("%s: %+v", name, f)
			}
			ids = append(ids, strings.TrimPrefix(f.ID, prefix))
		}
		slices.Sort(ids)
		if ids = slices.Compact(ids); !slices.Equal(ids, c.unknown) {
			t.Errorf("%s: unknown are %v, want %v", name, ids, c.unknown)
		}
		w.Proven = true
		if bad := worse(Judge("archive", a, w)); len(bad) > 0 {
			t.Errorf("%s, which was loaded: %+v", name, bad)
		}
	}
}

func TestOfReport(t *testing.T) {
	r := schemas.Validated{ArchiveRoot: "archive", Graph: schemas.ValidatedGraph{BatchSizes: []int{4, 1, 2}, SeqLenBucket: 2048, BaseAddress: base, RegionSizeBytes: region, ScratchSizeBytes: scratch}}
	for _, m := range models {
		r.Models = append(r.Models, schemas.ValidatedModel{Name: m, Ranks: 1})
	}
	whole := archive(t)
	a, err := public.Describe(context.Background(), whole)
	if err != nil {
		t.Fatal(err)
	}
	r.Files = append(r.Files, schemas.ValidatedFile{Path: "multi-model-load.yaml"})
	for _, f := range a.Files {
		r.Files = append(r.Files, schemas.ValidatedFile{Path: "archive/" + f.Path, Size: f.Size, SHA256: f.SHA256})
	}
	if bad := worse(Judge("archive", a, OfReport(r, 40<<30))); len(bad) > 0 {
		t.Errorf("false alarm: %+v", bad)
	}
	r.Files[1].SHA256 = strings.Repeat("0", 64)
	if bad := worse(Judge("archive", a, OfReport(r, 0))); len(bad) != 1 || bad[0].ID != "foundry.inventory-changed" {
		t.Errorf("another digest in the report: %+v", bad)
	}
	r.Models[0].Ranks = 2
	if got := OfReport(r, 0); *got.Ranks != 2 || got.GPUMemoryBytes != nil {
		t.Errorf("%+v", got)
	}
	if r.Emulated = true; *OfReport(r, 0).Ranks != 1 {
		t.Error("the emulated engine saves one rank")
	}
}
