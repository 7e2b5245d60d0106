package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"syscall"

	"assay/schemas"
)

// treeSource is a folder on its way into the store.
type treeSource struct {
	dir   string
	root  *os.Root
	found []scanned
}

func (t *treeSource) full(i int) string { return filepath.Join(t.dir, t.found[i].entry.Path) }

// openFile opens a scanned file and makes sure it is still the one that was
// scanned, not a link put in its place.
func (t *treeSource) openFile(i int) (*os.File, error) {
	f, err := t.root.OpenFile(t.found[i].entry.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", t.full(i), err)
	}
	if err := t.unchanged(i, f); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", t.full(i), err), f.Close())
	}
	return f, nil
}

func (t *treeSource) unchanged(i int, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if was := t.found[i].info; !os.SameFile(was, info) || was.Size() != info.Size() || !was.ModTime().Equal(info.ModTime()) {
		return errors.New("it changed while it was being stored")
	}
	return nil
}

// PutTree stores everything below dir: the blobs first, then the tree document.
// Only path, kind, executable bit, link target and content count; equal folders
// give equal blobs. A special file, a link that leads outside, an unreadable
// file, or one that changes meanwhile is an error that names it.
func (s *Store) PutTree(ctx context.Context, dir string) (schemas.Tree, schemas.Digest, error) {
	none := schemas.Tree{}
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "read", Path: dir, Err: errors.New("is no folder")}
	}
	if err != nil {
		return none, "", fmt.Errorf("store tree: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return none, "", fmt.Errorf("store tree: %w", err)
	}
	defer root.Close()
	src := &treeSource{dir: dir, root: root}
	if src.found, err = scan(ctx, dir, root); err != nil {
		return none, "", fmt.Errorf("store tree: %w", err)
	}
	blobs, err := s.putFiles(ctx, src)
	if err != nil {
		return none, "", err
	}
	entries := make([]schemas.TreeEntry, len(src.found))
	for i := range src.found {
		entries[i] = src.found[i].entry
	}
	return s.putTreeDoc(entries, blobs)
}

// putFiles stores the content of all files and fills in digests and parts.
func (s *Store) putFiles(ctx context.Context, src *treeSource) ([]schemas.Blob, error) {
	var small []int
	var blobs []schemas.Blob
	for i := range src.found {
		e := &src.found[i].entry
		switch {
		case e.Kind != schemas.EntryFile:
		case e.Size >= largeFileBytes:
			parts, err := s.putLarge(ctx, src, i)
			if err != nil {
				return nil, err
			}
			blobs = append(blobs, parts...)
		case e.Size == 0:
			f, err := src.openFile(i)
			if err != nil {
				return nil, err
			}
			_ = f.Close()
			e.Digest = schemas.DigestOf(nil)
		default:
			small = append(small, i)
		}
	}
	packs, err := s.packFiles(ctx, src, small)
	return append(blobs, packs...), err
}

// putTreeDoc stores the document of a tree whose blobs are stored.
func (s *Store) putTreeDoc(entries []schemas.TreeEntry, blobs []schemas.Blob) (schemas.Tree, schemas.Digest, error) {
	d, err := schemas.TreeDigest(entries)
	if err != nil {
		return schemas.Tree{}, "", err
	}
	t := schemas.Tree{Schema: schemas.TreeV1, Digest: d, Entries: entries, Blobs: uniqueBlobs(blobs)}
	if err := checkTreeDoc(t); err != nil {
		return schemas.Tree{}, "", fmt.Errorf("store tree: %w", err)
	}
	b, err := schemas.Encode(t)
	if err != nil {
		return schemas.Tree{}, "", fmt.Errorf("store tree: %w", err)
	}
	doc, err := s.putBytes(b)
	return t, doc, err
}

// uniqueBlobs sorts by digest and drops repetitions; it is never nil.
func uniqueBlobs(blobs []schemas.Blob) []schemas.Blob {
	out := []schemas.Blob{}
	seen := map[schemas.Digest]bool{}
	for _, b := range blobs {
		if !seen[b.Digest] {
			seen[b.Digest] = true
			out = append(out, b)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Digest < out[j].Digest })
	return out
}

// putLarge stores one large file in parts of its own.
func (s *Store) putLarge(ctx context.Context, src *treeSource, i int) ([]schemas.Blob, error) {
	e := &src.found[i].entry
	f, err := src.openFile(i)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	squeeze, err := compressible(f, e.Size)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", src.full(i), err)
	}
	whole := newHashReader(ctx, f)
	var blobs []schemas.Blob
	for left := e.Size; left > 0; left -= min(left, partLimit) {
		length := min(left, partLimit)
		b, err := s.putPart(whole, length, squeeze)
		if err != nil {
			return nil, fmt.Errorf("store %s: %w", src.full(i), err)
		}
		blobs = append(blobs, b)
		e.Parts = append(e.Parts, schemas.Part{Blob: b.Digest, Length: length})
	}
	if err := src.unchanged(i, f); err != nil {
		return nil, fmt.Errorf("store %s: %w", src.full(i), err)
	}
	e.Digest = whole.digest()
	return blobs, nil
}

func (s *Store) putPart(r io.Reader, length int64, squeeze bool) (schemas.Blob, error) {
	w, err := s.newBlob()
	if err != nil {
		return schemas.Blob{}, err
	}
	defer w.abort()
	if !squeeze {
		if err := copyExactly(w, r, length); err != nil {
			return schemas.Blob{}, err
		}
		d, err := w.commit()
		return schemas.Blob{MediaType: MediaPart, Digest: d, Size: length}, err
	}
	content := sha256.New()
	if err := squeezeInto(w, content, r, length); err != nil {
		return schemas.Blob{}, err
	}
	size := w.size
	d, err := w.commit()
	return schemas.Blob{MediaType: MediaPartZstd, Digest: d, Size: size,
		ContentDigest: schemas.DigestFromSum(content.Sum(nil)), ContentSize: length}, err
}

func squeezeInto(w io.Writer, content hash.Hash, r io.Reader, length int64) error {
	enc, err := newEncoder(w)
	if err != nil {
		return err
	}
	if err := copyExactly(io.MultiWriter(content, enc), r, length); err != nil {
		_ = enc.Close()
		return err
	}
	return enc.Close()
}

func copyExactly(w io.Writer, r io.Reader, length int64) error {
	n, err := io.CopyN(w, r, length)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("it ended after %d bytes, %d more were expected: it changed while it was being stored", n, length-n)
	}
	return err
}

// compressible says whether zstd saves at least a twentieth on samples of the
// file. It reads content only, so equal files are stored alike.
func compressible(f io.ReaderAt, size int64) (bool, error) {
	enc, err := newEncoder(nil)
	if err != nil {
		return false, err
	}
	defer enc.Close()
	const sample = 128 << 10
	var in, out int
	buf := make([]byte, sample)
	for _, at := range []int64{0, size / 3, 2 * size / 3, size - sample} {
		n, err := f.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		in += n
		out += len(enc.EncodeAll(buf[:n], nil))
	}
	return out <= in-in/20, nil
}
