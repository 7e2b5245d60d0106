package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type member struct {
	name, text, link string
	kind             byte
}

func folderTar(t testing.TB, members ...member) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		if m.kind == 0 {
			m.kind = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: m.name, Typeflag: m.kind, Size: int64(len(m.text)), Linkname: m.link, Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(p, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFolderTar(t *testing.T) {
	for name, members := range map[string][]member{
		"in a folder": {{name: "run/", kind: tar.TypeDir}, {name: "run/report.json", text: "{}"}, {name: "run/a/", kind: tar.TypeDir}, {name: "run/a/b", text: "bytes"}, {name: "run/link", kind: tar.TypeSymlink, link: "a/b"}},
		"at the top":  {{name: "./", kind: tar.TypeDir}, {name: "./report.json", text: "{}"}, {name: "./a/b", text: "bytes"}, {name: "./link", kind: tar.TypeSymlink, link: "a/b"}},
	} {
		ft, err := OpenFolderTar(folderTar(t, members...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !ft.Has("report.json") || ft.Has("run/report.json") {
			t.Errorf("%s: %+v", name, ft.entries)
		}
		dir := filepath.Join(t.TempDir(), "out")
		if err := ft.Extract(context.Background(), dir); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range []string{"a/b", "link"} {
			if b, err := os.ReadFile(filepath.Join(dir, p)); err != nil || string(b) != "bytes" {
				t.Errorf("%s: %s: %q, %v", name, p, b, err)
			}
		}
		if err := ft.Extract(context.Background(), dir); err == nil {
			t.Errorf("%s: extracted over what was there", name)
		}
	}
}

func TestFolderTarRefuses(t *testing.T) {
	for name, members := range map[string][]member{
		"a path out":          {{name: "../x", text: "x"}},
		"an absolute path":    {{name: "/etc/x", text: "x"}},
		"a link out":          {{name: "a/l", kind: tar.TypeSymlink, link: "../../x"}},
		"an absolute link":    {{name: "l", kind: tar.TypeSymlink, link: "/etc/passwd"}},
		"a hard link":         {{name: "a", text: "x"}, {name: "b", kind: tar.TypeLink, link: "a"}},
		"a device":            {{name: "d", kind: tar.TypeBlock}},
		"a pipe":              {{name: "p", kind: tar.TypeFifo}},
		"a file twice":        {{name: "a", text: "x"}, {name: "a", text: "y"}},
		"a file below a link": {{name: "l", kind: tar.TypeSymlink, link: "a"}, {name: "a", text: "x"}, {name: "l/b", text: "y"}},
	} {
		ft, err := OpenFolderTar(folderTar(t, members...))
		if err == nil {
			err = ft.Extract(context.Background(), filepath.Join(t.TempDir(), "out"))
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	cut := folderTar(t, member{name: "a", text: strings.Repeat("x", 4096)})
	if err := os.Truncate(cut, 1024); err != nil {
		t.Fatal(err)
	}
	ft, err := OpenFolderTar(cut)
	if err == nil {
		err = ft.Extract(context.Background(), filepath.Join(t.TempDir(), "out"))
	}
	if err == nil {
		t.Error("a cut tar was accepted")
	}
}

// FuzzFolderTar: whatever is extracted lies inside.
func FuzzFolderTar(f *testing.F) {
	for _, members := range [][]member{{{name: "run/a", text: "x"}, {name: "run/l", kind: tar.TypeSymlink, link: "a"}}, {{name: "a/b/c", text: "y"}}} {
		b, err := os.ReadFile(folderTar(f, members...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		base := t.TempDir()
		p := filepath.Join(base, "x.tar")
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		ft, err := OpenFolderTar(p)
		if err != nil || len(ft.entries) > 100 {
			return
		}
		if err := ft.Extract(context.Background(), filepath.Join(base, "out")); err != nil {
			return
		}
		list, err := os.ReadDir(base)
		if err != nil || len(list) > 2 {
			t.Fatalf("%v, %v", list, err)
		}
	})
}
