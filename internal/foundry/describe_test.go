package foundry

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

func kinds(a Archive) []string {
	var out []string
	for _, p := range a.Problems {
		out = append(out, p.Kind+" "+p.Path)
	}
	return out
}

func describe(t *testing.T, fsys fs.FS) Archive {
	t.Helper()
	a, err := Describe(context.Background(), fsys)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Another folder is of no known form, and nothing of it is taken for a graph.
func TestOtherFolder(t *testing.T) {
	a := describe(t, fstest.MapFS{"a.txt": {Data: []byte("x")}, "b/c.json": {Data: []byte("[1]")}, "b/broken.json": {Data: []byte("[1")}})
	if a.Layout != LayoutUnknown || len(a.Models) != 0 || a.Bytes != 6 || len(a.Files) != 3 || a.Files[0].SHA256 == "" {
		t.Errorf("%+v", a)
	}
	if got := kinds(a); !slices.Equal(got, []string{"json b/broken.json"}) {
		t.Errorf("problems %v", got)
	}
	if a := describe(t, fstest.MapFS{}); a.Layout != LayoutEmpty {
		t.Errorf("an empty folder: %+v", a)
	}
	if _, err := Describe(context.Background(), os.DirFS(filepath.Join(t.TempDir(), "none"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// growing is a file system whose files are longer than they were when they were listed.
type growing struct{ fstest.MapFS }

func (g growing) Open(name string) (fs.File, error) {
	f, err := g.MapFS.Open(name)
	if info, serr := fs.Stat(g.MapFS, name); err != nil || serr != nil || info.IsDir() {
		return f, err
	}
	return longer{f, io.MultiReader(f, strings.NewReader("more"))}, nil
}

type longer struct {
	fs.File
	r io.Reader
}

func (l longer) Read(b []byte) (int, error) { return l.r.Read(b) }

func TestWhileItIsWritten(t *testing.T) {
	a := describe(t, growing{fstest.MapFS{"a.txt": {Data: []byte("x")}, "rank_0/fatbin_entrypoint_packed.txt": {Data: []byte("x")}}})
	for _, want := range []string{"unreadable a.txt", "unreadable rank_0/fatbin_entrypoint_packed.txt"} {
		if !slices.Contains(kinds(a), want) {
			t.Errorf("no %s in %v", want, kinds(a))
		}
	}
}

// What is no file is not opened: a pipe would never answer.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "graph_0.json"), 0o600); err != nil {
		t.Skip("no pipes here: ", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if got := kinds(describe(t, root.FS())); !slices.Equal(got, []string{"special-file graph_0.json"}) {
		t.Errorf("problems %v", got)
	}
}

// A file that is too large is not read, however little of it there is on disk.
func TestLargeFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rank_0"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"graph_0_FULL_t1_r1_UX_pcN.cugraph", ManifestFile} {
		path := filepath.Join(dir, "rank_0", name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 1<<40); err != nil {
			t.Skip("no sparse files here: ", err)
		}
	}
	var a Archive
	if n := allocated(func() { a = describe(t, os.DirFS(dir)) }); n > 8<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	for _, want := range []string{"limit rank_0/graph_0_FULL_t1_r1_UX_pcN.cugraph", "limit rank_0/graph_manifest.json"} {
		if !slices.Contains(kinds(a), want) {
			t.Errorf("no %s in %v", want, kinds(a))
		}
	}
}

// Many problems are counted, not listed.
func TestManyProblems(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 2 * maxProblems {
		files["rank_0/"+GraphName{Index: i, Mode: "FULL", Tokens: 1}.String()+".json"] = &fstest.MapFile{Data: []byte("{")}
	}
	a := describe(t, files)
	if n := len(a.Problems); n != maxProblems+1 || a.Problems[n-1].Kind != Limit {
		t.Errorf("%d problems, the last is %+v", n, a.Problems[n-1])
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Describe(ctx, files); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v", err)
	}
}
