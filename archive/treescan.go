package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"assay/schemas"
)

// treeCheck checks a tree entry by entry, in order, with everything that can be
// checked without its blobs.
type treeCheck struct {
	sums  *schemas.TreeHasher
	blobs map[schemas.Digest]int64
	dirs  map[string]bool
	dir   string // the last one that was found in dirs
	links []schemas.TreeEntry
	prev  string
	count int
	total int64
}

func newTreeCheck(blobs []schemas.Blob) (*treeCheck, error) {
	c := &treeCheck{sums: schemas.NewTreeHasher(), blobs: make(map[schemas.Digest]int64, len(blobs)), dirs: map[string]bool{".": true}, dir: "."}
	for _, b := range blobs {
		if err := checkBlob(b); err != nil {
			return nil, err
		}
		c.blobs[b.Digest] = contentSize(b)
	}
	return c, nil
}

// add keeps nothing of a file, so that entries may come from a stream.
func (c *treeCheck) add(e schemas.TreeEntry) error {
	if c.count++; c.count > maxEntries {
		return fmt.Errorf("more entries than the limit of %d", maxEntries)
	}
	if err := checkPath(e.Path); err != nil {
		return err
	}
	if c.count > 1 && c.prev >= e.Path {
		return fmt.Errorf("entry %q is out of order or doubled", e.Path)
	}
	c.prev = e.Path
	if dir := dirOf(e.Path); dir != c.dir {
		if !c.dirs[dir] {
			return fmt.Errorf("entry %q is in no folder of the tree", e.Path)
		}
		c.dir = dir
	}
	if err := checkEntry(e, c.blobs); err != nil {
		return fmt.Errorf("entry %q: %w", e.Path, err)
	}
	switch e.Kind {
	case schemas.EntryDir:
		c.dirs[strings.Clone(e.Path)] = true
	case schemas.EntrySymlink:
		c.links = append(c.links, schemas.TreeEntry{Path: strings.Clone(e.Path), Kind: e.Kind, Target: strings.Clone(e.Target)})
	}
	if c.total += e.Size; c.total > maxTreeBytes {
		return fmt.Errorf("more than %d bytes of files", maxTreeBytes)
	}
	return c.sums.Add(e)
}

// dirOf is path.Dir of a clean relative path.
func dirOf(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return "."
}

// end checks what only all entries together show, and returns their digest.
func (c *treeCheck) end(t schemas.Tree) (schemas.Digest, error) {
	if t.Schema != schemas.TreeV1 {
		return "", fmt.Errorf("schema is %q, want %q", t.Schema, schemas.TreeV1)
	}
	return c.sums.Digest(), checkLinks(c.links)
}

// checkTreeShape checks everything but the digest, which it returns.
func checkTreeShape(t schemas.Tree) (schemas.Digest, error) {
	c, err := newTreeCheck(t.Blobs)
	if err != nil {
		return "", err
	}
	for i := range t.Entries {
		if err := c.add(t.Entries[i]); err != nil {
			return "", err
		}
	}
	return c.end(t)
}

// scanTree reads a tree document, checks everything in it that can be checked
// without its blobs, and hands on each entry once it is known to be sound by
// itself. The tree that it returns has no entries. Whatever it accepts the
// published schema accepts.
func scanTree(r io.Reader, each func(schemas.TreeEntry) error) (schemas.Tree, error) {
	var check *treeCheck
	head, err := schemas.ReadTree(r, func(t *schemas.Tree, e schemas.TreeEntry) (err error) {
		if check == nil {
			if check, err = newTreeCheck(t.Blobs); err != nil {
				return err
			}
		}
		if err := check.add(e); err != nil {
			return err
		}
		return each(e)
	})
	if err != nil {
		return head, err
	}
	if check == nil {
		check, err = newTreeCheck(head.Blobs)
	}
	var d schemas.Digest
	if err == nil {
		d, err = check.end(head)
	}
	if err == nil && d != head.Digest {
		err = fmt.Errorf("digest is %s, its entries hash to %s", head.Digest, d)
	}
	if err != nil {
		return head, fmt.Errorf("tree document: %w", err)
	}
	return head, nil
}

// collectTree reads a whole tree of a document of size bytes into memory.
func collectTree(r io.Reader, size int64) (schemas.Tree, error) {
	in := &counter{r: r}
	list := []schemas.TreeEntry{}
	t, err := scanTree(in, func(e schemas.TreeEntry) error {
		if len(list) == cap(list) {
			list = growEntries(list, size, in.n)
		}
		list = append(list, e)
		return nil
	})
	t.Entries = list
	return t, err
}

// growEntries makes room for all entries of a document of which some are read, so
// that a long list is not copied again and again.
func growEntries(list []schemas.TreeEntry, size, read int64) []schemas.TreeEntry {
	const few = 1 << 14
	room := max(64, 2*len(list))
	if len(list) >= few && read > 0 {
		all := float64(len(list)) * float64(size) / float64(read)
		room = min(int(all*1.02), maxEntries) + 64
	}
	return append(make([]schemas.TreeEntry, 0, max(room, len(list)+len(list)/8)), list...)
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

func parseTree(b []byte) (schemas.Tree, error) {
	return collectTree(bytes.NewReader(b), int64(len(b)))
}

// openDoc opens a document of any length; its last Read fails with a
// *CorruptError when its bytes are not those of the digest.
func (l *Layout) openDoc(d schemas.Digest) (io.ReadCloser, int64, error) {
	if !d.Valid() {
		return nil, 0, fmt.Errorf("read blob: %q is no digest", string(d))
	}
	f, size, err := l.src.open(blobName(d))
	if err != nil {
		return nil, 0, unread(d, err)
	}
	if size > maxTreeDocBytes {
		return nil, 0, errors.Join(fmt.Errorf("read blob %s: %d bytes are more than the limit of %d", d, size, int64(maxTreeDocBytes)), f.Close())
	}
	return &checkedDoc{newHashReader(context.Background(), io.LimitReader(f, size)), f, d, ""}, size, nil
}

// checkedDoc fails at its end when its bytes are not those of its digest.
type checkedDoc struct {
	*hashReader
	f    io.Closer
	d    schemas.Digest
	path string
}

func (c *checkedDoc) Read(b []byte) (int, error) {
	n, err := c.hashReader.Read(b)
	if errors.Is(err, io.EOF) && c.digest() != c.d {
		return n, &CorruptError{Blob: c.d, Path: c.path, Err: fmt.Errorf("its %d bytes hash to %s", c.n, c.digest())}
	}
	return n, err
}

func (c *checkedDoc) Close() error { return c.f.Close() }

// drainDoc lets use read an open document, and reads the rest. That the bytes are
// wrong counts for more than what use makes of them.
func drainDoc(r io.ReadCloser, use func(io.Reader) error) error {
	defer r.Close()
	var err error
	if use != nil {
		err = use(r)
	}
	if _, end := io.Copy(io.Discard, r); end != nil {
		return end
	}
	return err
}

// readTree reads the tree document in a blob.
func (l *Layout) readTree(d schemas.Digest) (t schemas.Tree, err error) {
	r, size, err := l.openDoc(d)
	if err != nil {
		return t, err
	}
	defer boundMemory(size > longTreeDoc)()
	err = drainDoc(r, func(r io.Reader) error {
		t, err = collectTree(r, size)
		return err
	})
	return t, inBlob(d, err)
}

// eachEntry is readTree without keeping the entries. What it handed on counts only
// when it returns no error.
func (l *Layout) eachEntry(d schemas.Digest, each func(schemas.TreeEntry) error) (t schemas.Tree, err error) {
	r, _, err := l.openDoc(d)
	if err != nil {
		return t, err
	}
	err = drainDoc(r, func(r io.Reader) error {
		t, err = scanTree(r, each)
		return err
	})
	return t, inBlob(d, err)
}

func inBlob(d schemas.Digest, err error) error {
	var corrupt *CorruptError
	var pathErr *fs.PathError
	if err == nil || errors.As(err, &corrupt) || errors.As(err, &pathErr) {
		return err
	}
	return fmt.Errorf("blob %s: %w", d, err)
}

// treeBlobs reads which blobs a tree document names. Nothing else in it is checked
// but its bytes.
func (l *Layout) treeBlobs(d schemas.Digest) (t schemas.Tree, err error) {
	r, _, err := l.openDoc(d)
	if err != nil {
		return t, err
	}
	err = drainDoc(r, func(r io.Reader) error {
		t, err = schemas.ReadTree(r, func(*schemas.Tree, schemas.TreeEntry) error { return nil })
		return err
	})
	return t, inBlob(d, err)
}
