package foundry

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// tree is what lies in a folder: sizes of files by path.
type tree struct {
	ctx      context.Context
	fsys     fs.FS
	files    map[string]int64
	problems []Problem
}

// list looks for the files. The error is that of the folder itself, or of ctx.
func list(ctx context.Context, fsys fs.FS) (*tree, error) {
	t := &tree{ctx: ctx, fsys: fsys, files: map[string]int64{}}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && p == ".":
			return err
		case err != nil:
			t.add(Unreadable, p, "%v", plain(err))
			return nil
		case d.IsDir():
			return nil
		case len(t.files) >= MaxFiles:
			t.add(Limit, p, "the folder has more than %d files", MaxFiles)
			return fs.SkipAll
		}
		t.entry(p, d)
		return nil
	})
	return t, err
}

func (t *tree) add(kind, at, format string, args ...any) {
	t.problems = append(t.problems, problem(kind, at, format, args...))
}

// plain leaves out the name that a problem has already.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (t *tree) entry(p string, d fs.DirEntry) {
	switch {
	case d.Type()&fs.ModeSymlink != 0:
		t.link(p)
	case !d.Type().IsRegular():
		t.add(Special, p, "it is neither a file nor a folder")
	default:
		info, err := d.Info()
		if err != nil {
			t.add(Unreadable, p, "%v", plain(err))
			return
		}
		t.file(p, info.Size())
	}
}

func (t *tree) file(p string, size int64) {
	t.files[p] = size
	if size == 0 {
		t.add(Empty, p, "it is empty")
	}
}

// link takes a symbolic link for the file that it leads to inside of the folder.
func (t *tree) link(p string) {
	target, err := fs.ReadLink(t.fsys, p)
	if err != nil {
		t.add(Link, p, "it is a symbolic link that cannot be followed")
		return
	}
	if path.IsAbs(target) || !fs.ValidPath(path.Join(path.Dir(p), target)) {
		t.add(Link, p, "it is a symbolic link to %.200q, which is outside of the folder", target)
		return
	}
	info, err := fs.Stat(t.fsys, p)
	switch {
	case err != nil:
		t.add(Link, p, "it is a symbolic link to %.200q, which cannot be followed: %v", target, plain(err))
	case !info.Mode().IsRegular():
		t.add(Link, p, "it is a symbolic link to %.200q, which is no file", target)
	default:
		t.file(p, info.Size())
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// byFolder lists the names of the files of every folder, sorted.
func (t *tree) byFolder() map[string][]string {
	out := map[string][]string{}
	for _, p := range sortedKeys(t.files) {
		out[path.Dir(p)] = append(out[path.Dir(p)], path.Base(p))
	}
	return out
}

// holdsGraphs says whether a folder looks like one of a rank, whatever its name.
func holdsGraphs(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		switch n {
		case ManifestFile, ImagesFile, EntriesFile:
			return true
		}
		stem, isJSON := strings.CutSuffix(n, jsonSuffix)
		_, named := ParseGraphName(stem)
		return strings.HasSuffix(n, packedSuffix) || (isJSON && named)
	})
}
