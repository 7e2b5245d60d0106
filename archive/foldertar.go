package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"assay/internal/durable"
	"assay/schemas"
)

// FolderTar is an uncompressed tar of a folder, such as an extracted run.
type FolderTar struct {
	place   string
	entries []schemas.TreeEntry
	offsets map[string]int64
}

// OpenFolderTar lists a tar strictly: clean relative names, none twice, regular files,
// folders, and symbolic links that stay inside. The one folder that `tar -cf x.tar DIR`
// puts everything into is taken off.
func OpenFolderTar(place string) (*FolderTar, error) {
	f, err := durable.OpenRegular(place)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := &FolderTar{place: place, offsets: map[string]int64{}}
	if err := t.list(f); err != nil {
		return nil, fmt.Errorf("%s is no tar of a folder (a compressed one must be decompressed first): %w", place, err)
	}
	return t, nil
}

func (t *FolderTar) list(f *os.File) error {
	tr := tar.NewReader(f)
	seen := map[string]bool{}
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(t.entries) >= maxEntries {
			return fmt.Errorf("more than %d entries", maxEntries)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if h.Typeflag == tar.TypeDir && (name == "" || name == ".") {
			continue
		}
		e, err := tarEntry(h, name)
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("%s is there twice", name)
		}
		seen[name] = true
		if t.offsets[name], err = f.Seek(0, io.SeekCurrent); err != nil {
			return err
		}
		t.entries = append(t.entries, e)
	}
	t.strip()
	return checkLinks(t.entries)
}

func tarEntry(h *tar.Header, name string) (schemas.TreeEntry, error) {
	e := schemas.TreeEntry{Path: name, Kind: schemas.EntryDir}
	switch h.Typeflag {
	case tar.TypeDir:
	case tar.TypeSymlink:
		e.Kind, e.Target = schemas.EntrySymlink, h.Linkname
	default:
		plain := *h
		plain.Name = name
		e.Kind, e.Size, e.Executable = schemas.EntryFile, h.Size, h.Mode&0o111 != 0
		return e, checkTarHeader(&plain)
	}
	return e, checkPath(name)
}

// strip takes the one folder off that everything is in.
func (t *FolderTar) strip() {
	if len(t.entries) == 0 {
		return
	}
	folder, _, _ := strings.Cut(t.entries[0].Path, "/")
	for _, e := range t.entries {
		if first, _, below := strings.Cut(e.Path, "/"); first != folder || !below && e.Kind != schemas.EntryDir {
			return
		}
	}
	kept, offsets := t.entries[:0], map[string]int64{}
	for _, e := range t.entries {
		rest := strings.TrimPrefix(strings.TrimPrefix(e.Path, folder), "/")
		if rest == "" {
			continue
		}
		offsets[rest] = t.offsets[e.Path]
		e.Path = rest
		kept = append(kept, e)
	}
	t.entries, t.offsets = kept, offsets
}

// Has says whether a file or folder of that path is in it.
func (t *FolderTar) Has(name string) bool { return hasEntry(t.entries, name) }

// Extract writes it to dir, which must not exist. dir appears at the end, whole.
func (t *FolderTar) Extract(ctx context.Context, dir string) error {
	f, err := durable.OpenRegular(t.place)
	if err != nil {
		return err
	}
	defer f.Close()
	err = writeFolder(ctx, dir, false, func(root *durable.Root) error {
		made := map[string]bool{}
		for _, e := range t.entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			lead := path.Dir(e.Path)
			if e.Kind == schemas.EntryDir {
				lead = e.Path
			}
			if err := makeFolders(root, lead, made); err != nil {
				return err
			}
			if e.Kind != schemas.EntryFile {
				continue
			}
			if err := t.extractFile(root, f, e); err != nil {
				return err
			}
		}
		for _, e := range t.entries { // last, so that nothing is written through one
			if e.Kind == schemas.EntrySymlink {
				if err := root.Symlink(e.Target, e.Path); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("extract %s: %w", t.place, err)
	}
	return nil
}

func (t *FolderTar) extractFile(root *durable.Root, f *os.File, e schemas.TreeEntry) error {
	mode := os.FileMode(0o644)
	if e.Executable {
		mode = 0o755
	}
	w, err := root.Create(e.Path, mode)
	if err != nil {
		return err
	}
	n, err := io.Copy(w, io.NewSectionReader(f, t.offsets[e.Path], e.Size))
	if err == nil && n != e.Size {
		err = fmt.Errorf("%s: the tar ends within it", e.Path)
	}
	return errors.Join(err, w.Close())
}

func makeFolders(root *durable.Root, dir string, made map[string]bool) error {
	var lead []string
	for ; dir != "." && !made[dir]; dir = path.Dir(dir) {
		lead = append(lead, dir)
	}
	for _, d := range slices.Backward(lead) {
		if err := root.Mkdir(d); err != nil {
			return err
		}
		made[d] = true
	}
	return nil
}
