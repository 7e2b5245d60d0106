package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"assay/schemas"
)

// snapshot lists a folder without the store's help.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			out[rel] = "dir"
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			out[rel] = "link " + target
			return err
		default:
			b, err := os.ReadFile(p)
			out[rel] = fmt.Sprintf("file %t %s", info.Mode()&0o100 != 0, schemas.DigestOf(b))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var nameGen = rapid.StringMatching(`[a-zA-Zé .\-_]{1,12}`).Filter(func(s string) bool { return s != "." && s != ".." })

func drawFiles(rt *rapid.T) map[string]string {
	files := map[string]string{}
	taken := map[string]bool{}
	for range rapid.IntRange(0, 12).Draw(rt, "entries") {
		parts := rapid.SliceOfN(nameGen, 1, 3).Draw(rt, "path")
		name := strings.Join(parts, "/")
		free := !taken[name]
		for i := range parts {
			free = free && !strings.HasSuffix(files[strings.Join(parts[:i], "/")], "\x00")
			if _, isFile := files[strings.Join(parts[:i], "/")]; isFile {
				free = false
			}
		}
		if !free {
			continue
		}
		for i := range parts {
			taken[strings.Join(parts[:i+1], "/")] = true
		}
		switch rapid.IntRange(0, 39).Draw(rt, "kind") {
		case 0, 5, 6, 7, 8:
			files[name+"/"] = ""
		case 1, 9, 10, 11, 12:
			files[name] = "->" + rapid.SampledFrom([]string{"x", "./x", strings.Repeat("../", len(parts)-1) + "top"}).Draw(rt, "target")
		case 2, 13, 14, 15:
			files[name] = "#!" + noise(rapid.IntRange(0, 2000).Draw(rt, "size"), 3)
		case 3:
			files[name] = strings.Repeat("log line\n", rapid.IntRange(largeFileBytes/9-1, largeFileBytes/9+2).Draw(rt, "lines"))
		case 4:
			files[name] = noise(largeFileBytes+rapid.IntRange(-1, 1).Draw(rt, "size"), 4)
		default:
			files[name] = noise(rapid.IntRange(0, 1500).Draw(rt, "size"), uint64(len(files)))
		}
	}
	return files
}

func TestTreeRoundTrip(t *testing.T) {
	ctx := context.Background()
	s, other := newStore(t), newStore(t)
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "in")
		if err != nil {
			rt.Fatal(err)
		}
		fillFiles(t, dir, drawFiles(rt))
		tree, doc, err := s.PutTree(ctx, dir)
		if err != nil {
			rt.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out")
		if err := s.Materialize(ctx, doc, "", out); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(snapshot(t, dir), snapshot(t, out)); diff != "" {
			rt.Fatalf("what came back differs (-stored +materialized):\n%s", diff)
		}
		// The copy has other times and inodes, and is stored elsewhere.
		again, doc2, err := other.PutTree(ctx, out)
		if err != nil || doc2 != doc || !cmp.Equal(again, tree) {
			rt.Fatalf("the copy is stored as %s, %v, want %s", doc2, err, doc)
		}
		if err := s.CheckTree(ctx, doc); err != nil {
			rt.Fatal(err)
		}
	})
}

// One changed file changes one pack and nothing else.
func TestOneChangeOnePack(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("f%02d", i)] = noise(1<<20, uint64(i))
	}
	dir := writeFiles(t, files)
	before, _, err := s.PutTree(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Blobs) < 3 {
		t.Fatalf("%d packs, want several", len(before.Blobs))
	}
	if err := os.WriteFile(filepath.Join(dir, "f07"), []byte(noise(1<<20, 99)), 0o644); err != nil {
		t.Fatal(err)
	}
	after, _, err := s.PutTree(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, b := range after.Blobs {
		if !slices.Contains(before.Blobs, b) {
			changed++
		}
		if b.ContentSize > packLimitBytes {
			t.Errorf("pack of %d bytes", b.ContentSize)
		}
	}
	if changed != 1 || len(after.Blobs) != len(before.Blobs) {
		t.Errorf("%d of %d packs changed, want 1", changed, len(after.Blobs))
	}
}

func TestMaterializeSub(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	_, doc, err := s.PutTree(ctx, writeFiles(t, map[string]string{"outputs/a/f": "1", "outputs/a/up": "->../../logs/l", "outputs/b/f": "2", "logs/l": "3"}))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "b")
	if err := s.Materialize(ctx, doc, "outputs/b", out); err != nil {
		t.Fatal(err)
	}
	if got := snapshot(t, out); len(got) != 1 || got["f"] == "" {
		t.Errorf("outputs/b holds %v, want f", got)
	}
	if err := s.Materialize(ctx, doc, "outputs/b", out); !errors.Is(err, fs.ErrExist) {
		t.Errorf("into a folder that exists: %v", err)
	}
	file := filepath.Join(t.TempDir(), "one")
	if err := s.Materialize(ctx, doc, "outputs/b/f", file); err != nil || snapshot(t, file)["f"] == "" {
		t.Errorf("one file: %v, %v", snapshot(t, file), err)
	}
	if err := s.Materialize(ctx, doc, "outputs/none", filepath.Join(t.TempDir(), "c")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is not there: %v", err)
	}
	if err := s.Materialize(ctx, doc, "outputs/a", filepath.Join(t.TempDir(), "d")); err == nil || !strings.Contains(err.Error(), "outside") {
		t.Errorf("a link that leads out of the part: %v", err)
	}
}

func TestPutTreeRefuses(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"link absolute": func(d string) error { return os.Symlink("/etc/passwd", filepath.Join(d, "bad")) },
		"link outside":  func(d string) error { return os.Symlink("../x", filepath.Join(d, "bad")) },
		"link by a link": func(d string) error {
			return errors.Join(os.MkdirAll(filepath.Join(d, "a/b"), 0o755), os.Symlink("..", filepath.Join(d, "a/b/up")),
				os.Symlink("a/b/up/../../x", filepath.Join(d, "bad")))
		},
		"pipe":       func(d string) error { return syscall.Mkfifo(filepath.Join(d, "bad"), 0o644) },
		"not UTF-8":  func(d string) error { return os.WriteFile(filepath.Join(d, "bad\xff"), nil, 0o644) },
		"unreadable": unreadable,
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFiles(t, map[string]string{"good": "1"})
			if err := make(dir); errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			_, _, err := newStore(t).PutTree(context.Background(), dir)
			if err == nil || !strings.Contains(err.Error(), "bad") {
				t.Errorf("error %v does not name the path", err)
			}
		})
	}
	if _, _, err := newStore(t).PutTree(context.Background(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
}

func unreadable(dir string) error {
	p := filepath.Join(dir, "bad")
	if err := os.WriteFile(p, []byte("x"), 0); err != nil {
		return err
	}
	if f, err := os.Open(p); err == nil {
		_ = f.Close()
		return fmt.Errorf("this user may read everything: %w", errors.ErrUnsupported)
	}
	return nil
}

// A file that grows while it is stored is an error, not a digest of neither state.
func TestFileThatChanges(t *testing.T) {
	dir := writeFiles(t, map[string]string{"small": "12345", "large": noise(largeFileBytes, 1)})
	s := newStore(t)
	for _, name := range []string{"small", "large"} {
		src, err := openTree(context.Background(), dir)
		if err != nil {
			t.Fatal(err)
		}
		defer src.close()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("!")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.putFiles(context.Background(), src); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s grew: %v", name, err)
		}
	}
}
