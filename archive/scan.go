package archive

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"unicode/utf8"

	"assay/schemas"
)

// scanned is an entry found in a folder, with what stat said of it.
type scanned struct {
	entry schemas.TreeEntry
	info  fs.FileInfo
}

// scan lists everything below root, byte-sorted by path. Whatever is no file,
// folder or symbolic link that stays inside, or cannot be read, is an error: an
// entry left out would be a digest that lies.
func scan(ctx context.Context, dir string, root *os.Root) ([]scanned, error) {
	var out []scanned
	err := filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if full == dir {
			return nil
		}
		rel, err := filepath.Rel(dir, full)
		if err != nil {
			return err
		}
		s, err := scanOne(root, filepath.ToSlash(rel), d)
		if err != nil {
			return fmt.Errorf("%s: %w", full, err)
		}
		if len(out) >= maxEntries {
			return fmt.Errorf("%s: more than %d entries", dir, maxEntries)
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	sort.Slice(out, func(i, j int) bool { return out[i].entry.Path < out[j].entry.Path })
	entries := make([]schemas.TreeEntry, len(out))
	for i := range out {
		entries[i] = out[i].entry
	}
	if err := checkLinks(entries); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return out, nil
}

func scanOne(root *os.Root, rel string, d fs.DirEntry) (scanned, error) {
	if !utf8.ValidString(rel) {
		return scanned{}, fmt.Errorf("the name %q is not UTF-8", rel)
	}
	if len(rel) > maxPathBytes {
		return scanned{}, fmt.Errorf("the path is longer than %d bytes", maxPathBytes)
	}
	info, err := d.Info()
	if err != nil {
		return scanned{}, err
	}
	e := schemas.TreeEntry{Path: rel}
	switch mode := info.Mode(); {
	case mode.IsDir():
		e.Kind = schemas.EntryDir
	case mode.IsRegular():
		e.Kind, e.Size, e.Executable = schemas.EntryFile, info.Size(), mode&0o111 != 0
	case mode&fs.ModeSymlink != 0:
		e.Kind = schemas.EntrySymlink
		if e.Target, err = root.Readlink(rel); err != nil {
			return scanned{}, err
		}
		if !utf8.ValidString(e.Target) {
			return scanned{}, fmt.Errorf("the link target %q is not UTF-8", e.Target)
		}
	default:
		return scanned{}, fmt.Errorf("is a %s: only files, folders and symbolic links can be stored", mode.Type())
	}
	return scanned{entry: e, info: info}, nil
}
