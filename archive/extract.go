package archive

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"assay/internal/durable"
	"assay/schemas"
)

// Tree returns the tree document in a blob, checked.
func (l *Layout) Tree(_ context.Context, treeBlob schemas.Digest) (schemas.Tree, error) {
	return l.readTree(treeBlob)
}

// CheckTree reads every blob of a stored tree and checks its digest and that of
// every file. A fault is a *CorruptError.
func (l *Layout) CheckTree(ctx context.Context, treeBlob schemas.Digest) error {
	t, err := l.readTree(treeBlob)
	if err != nil {
		return fmt.Errorf("check tree: %w", err)
	}
	if err := l.readContent(ctx, t.Entries, t.Blobs, nil, nil, newMeter(ctx, PhaseVerify, sumBytes(t.Entries))); err != nil {
		return fmt.Errorf("check tree %s: %w", treeBlob.Short(), err)
	}
	return nil
}

// Materialize writes the part of a stored tree below sub ("" for all) to dir,
// which must not exist, checking every byte. When sub is a file, dir holds that
// file alone. dir appears at the end, whole.
func (l *Layout) Materialize(ctx context.Context, treeBlob schemas.Digest, sub, dir string) error {
	t, err := l.readTree(treeBlob)
	if err == nil {
		err = l.materialize(ctx, t, sub, dir)
	}
	if err != nil {
		return fmt.Errorf("materialize tree %s: %w", treeBlob.Short(), err)
	}
	return nil
}

func (l *Layout) materialize(ctx context.Context, t schemas.Tree, sub, dir string) error {
	entries := t.Entries
	if sub != "" {
		if !hasEntry(entries, sub) {
			return fmt.Errorf("%s: %w", sub, fs.ErrNotExist)
		}
		entries = schemas.SubTree(entries, sub)
		if err := checkLinks(entries); err != nil {
			return fmt.Errorf("%s: %w", sub, err)
		}
	}
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%s: %w", dir, fs.ErrExist)
	}
	return writeFolder(ctx, dir, false, func(root *durable.Root) error {
		return l.writeEntries(ctx, entries, t.Blobs, root, plainMembers)
	})
}

func hasEntry(entries []schemas.TreeEntry, p string) bool {
	for _, e := range entries {
		if e.Path == p {
			return true
		}
	}
	return false
}

// writeFolder fills a temporary sibling of dir and renames it to dir.
func writeFolder(ctx context.Context, dir string, sync bool, fill func(*durable.Root) error) (err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	parent := filepath.Dir(abs)
	if err := durable.MkdirAll(parent); err != nil {
		return err
	}
	if sync {
		sweepBeside(abs)
	}
	temp, err := durable.TempDir(parent)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, durable.RemoveAll(temp))
		}
	}()
	root, err := durable.OpenRoot(temp)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := fill(root); err != nil {
		return err
	}
	if sync {
		newMeter(ctx, PhaseSync, 0)
		if err := root.Sync(); err != nil {
			return err
		}
	}
	// An empty folder that is there gives way; one that is not empty stays.
	if err := durable.Remove(abs); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.Rename(temp, abs)
}

// sweepBeside removes what an assay that died while it wrote to path left beside
// it. What cannot be looked at stays.
func sweepBeside(path string) { _ = durable.SweepTemps(filepath.Dir(path)) }

// writeEntries writes checked entries: folders, files, and links last, so that
// no file is ever written through one.
func (l *Layout) writeEntries(ctx context.Context, entries []schemas.TreeEntry, blobs []schemas.Blob, root *durable.Root, members packCheck) error {
	create := func(e schemas.TreeEntry) (io.WriteCloser, error) {
		mode := fs.FileMode(0o644)
		if e.Executable {
			mode = 0o755
		}
		return root.Create(e.Path, mode)
	}
	for _, e := range entries {
		switch {
		case e.Kind == schemas.EntryDir:
			if err := root.Mkdir(e.Path); err != nil {
				return err
			}
		case e.Kind == schemas.EntryFile && e.Size == 0:
			f, err := create(e)
			if err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
	}
	if err := l.readContent(ctx, entries, blobs, create, members, newMeter(ctx, PhaseExtract, sumBytes(entries))); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Kind == schemas.EntrySymlink {
			if err := root.Symlink(e.Target, e.Path); err != nil {
				return err
			}
		}
	}
	return nil
}

// packCheck judges the members of a pack that is in memory.
type packCheck func(content []byte, entries []schemas.TreeEntry, spans []span) error

// plainMembers wants files with clean names, of which not all may be listed.
func plainMembers(content []byte, _ []schemas.TreeEntry, _ []span) error {
	return walkTar(bytes.NewReader(content), func(*tar.Header, io.Reader) error { return nil })
}

// readContent reads every blob that entries lie in, once, checks it, the members of
// packs, and every entry's digest, and hands the bytes to out.
func (l *Layout) readContent(ctx context.Context, entries []schemas.TreeEntry, blobs []schemas.Blob, out sink, members packCheck, m *meter) error {
	spans, several, err := spansByBlob(entries)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Kind == schemas.EntryFile && e.Size == 0 && e.Digest != emptyDigest() {
			return fmt.Errorf("%s: its digest is not that of no bytes", e.Path)
		}
	}
	known := blobMap(blobs)
	group, ctx := newGroup(ctx)
	for _, i := range several {
		group.Go(func() error { return l.readSeveralTo(ctx, entries[i], known, out, m) })
	}
	for _, b := range largestFirst(blobs) {
		if list := spans[b.Digest]; len(list) > 0 {
			group.Go(func() error { return l.readBlobOf(ctx, b, entries, list, out, m, membersOf(b, entries, list, members)) })
		}
	}
	err = group.Wait()
	m.end()
	return err
}

func membersOf(b schemas.Blob, entries []schemas.TreeEntry, spans []span, check packCheck) func([]byte) error {
	if check == nil {
		return nil
	}
	return func(content []byte) error {
		if err := check(content, entries, spans); err != nil {
			return &CorruptError{Blob: b.Digest, Err: err}
		}
		return nil
	}
}

// largestFirst lets processors end at about the same time.
func largestFirst(blobs []schemas.Blob) []schemas.Blob {
	out := slices.Clone(blobs)
	slices.SortStableFunc(out, func(a, b schemas.Blob) int { return cmp.Compare(b.Size, a.Size) })
	return out
}

func sumBytes(entries []schemas.TreeEntry) int64 {
	_, n := schemas.SumEntries(entries)
	return n
}

func (l *Layout) readSeveralTo(ctx context.Context, e schemas.TreeEntry, blobs map[schemas.Digest]schemas.Blob, out sink, m *meter) error {
	checked := func(schemas.Blob) {}
	if out == nil {
		return l.readSeveral(ctx, e, blobs, nil, m, checked)
	}
	w, err := out(e)
	if err != nil {
		return err
	}
	if err := l.readSeveral(ctx, e, blobs, w, m, checked); err != nil {
		return errors.Join(err, w.Close())
	}
	return w.Close()
}
