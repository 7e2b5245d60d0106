package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"assay/internal/statcache"
	"assay/schemas"
)

// treeSource is a folder on its way into the store.
type treeSource struct {
	dir    string
	root   *os.Root
	opener *opener
	// by path; stamps are dropped once all files are stored
	entries []schemas.TreeEntry
	stamps  []statcache.Stamp
}

// openTree lists the folder.
func openTree(ctx context.Context, dir string) (*treeSource, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	t := &treeSource{dir: dir, root: root}
	if t.opener, err = newOpener(root); err == nil {
		t.entries, t.stamps, err = scan(ctx, dir, root)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *treeSource) close() {
	if t.opener != nil {
		_ = t.opener.Close()
	}
	_ = t.root.Close()
}

func (t *treeSource) full(i int) string { return filepath.Join(t.dir, t.entries[i].Path) }

// openFile opens a scanned file and makes sure it is still the one that was
// scanned, not a link put in its place.
func (t *treeSource) openFile(i int) (*os.File, error) {
	f, err := t.root.OpenFile(t.entries[i].Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", t.full(i), err)
	}
	info, err := f.Stat()
	if err == nil {
		err = t.same(i, info)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", t.full(i), err), f.Close())
	}
	return f, nil
}

type statter interface{ Stat() (fs.FileInfo, error) }

// same compares what stat says now with what it said when the folder was scanned.
func (t *treeSource) same(i int, info fs.FileInfo) error {
	return t.sameStamp(i, statcache.StampOf(info), info.Mode().IsRegular())
}

func (t *treeSource) sameStamp(i int, now statcache.Stamp, regular bool) error {
	was := t.stamps[i]
	was.CTime, now.CTime = 0, 0 // a new link or mode is no other content
	if was != now || !regular {
		return errors.New("it changed while it was being stored")
	}
	return nil
}

// treePut is a folder being stored.
type treePut struct {
	s        *Store
	src      *treeSource
	rehash   bool
	progress *meter
	disk     errgroup.Group // blobs that wait for the disk
}

// publishing is how many blobs wait for the disk at once: it works best on many.
const publishing = 16

type rehashKey struct{}

// WithRehash lets PutTree called with the returned context read every file, also
// those that look as they did when they were last read.
func WithRehash(ctx context.Context) context.Context {
	return context.WithValue(ctx, rehashKey{}, true)
}

// PutTree stores everything below dir: the blobs first, then the tree document.
// Only path, kind, executable bit, link target and content count; equal folders
// give equal blobs. A special file, a link that leads outside, an unreadable
// file, or one that changes meanwhile is an error that names it. A file that
// stat shows to be the one that was read before is not read again.
func (s *Store) PutTree(ctx context.Context, dir string) (schemas.Tree, schemas.Digest, error) {
	none := schemas.Tree{}
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "read", Path: dir, Err: errors.New("is no folder")}
	}
	if err != nil {
		return none, "", fmt.Errorf("store tree: %w", err)
	}
	src, err := openTree(ctx, dir)
	if err != nil {
		return none, "", fmt.Errorf("store tree: %w", err)
	}
	defer src.close()
	defer boundMemory(len(src.entries) > manyEntries)()
	blobs, err := s.putFiles(ctx, src)
	if err != nil {
		return none, "", err
	}
	return s.putTreeDoc(src.entries, blobs)
}

// putFiles stores the content of all files and fills in digests and parts. Once
// it returns, all blobs are durable.
func (s *Store) putFiles(ctx context.Context, src *treeSource) ([]schemas.Blob, error) {
	s.caches.open(s)
	var total int64
	var small, large []int
	for i := range src.entries {
		switch e := &src.entries[i]; {
		case e.Kind != schemas.EntryFile:
		case e.Size >= largeFileBytes:
			large = append(large, i)
		case e.Size > 0:
			small = append(small, i)
		default:
			f, err := src.openSmall(i) // unreadable is an error here as elsewhere
			if err != nil {
				return nil, err
			}
			_ = f.Close()
			e.Digest = emptyDigest()
		}
		total += src.entries[i].Size
	}
	rehash, _ := ctx.Value(rehashKey{}).(bool)
	x := &treePut{s: s, src: src, rehash: rehash, progress: newMeter(ctx, PhaseStore, total)}
	x.disk.SetLimit(publishing)
	blobs, err := x.largeFiles(ctx, large)
	if err == nil {
		var packs []schemas.Blob
		packs, err = x.packFiles(ctx, small)
		blobs = append(blobs, packs...)
	}
	x.progress.end()
	if err == nil {
		newMeter(ctx, PhaseSync, 0)
	}
	if err = errors.Join(err, x.disk.Wait()); err != nil || len(blobs) == 0 {
		return nil, err
	}
	src.stamps = nil // many stamps are much memory
	return blobs, errors.Join(s.syncBlobs(), s.caches.save())
}

var emptyDigest = sync.OnceValue(func() schemas.Digest { return schemas.DigestOf(nil) })

// known returns the digest of a scanned file that was read before and is
// unchanged, and whether it looks random.
func (x *treePut) known(i int) (sum statcache.Sum, flat, ok bool) {
	if x.rehash {
		return sum, false, false
	}
	return x.s.caches.files.LookupMarked(x.src.stamps[i])
}

func newGroup(ctx context.Context) (*errgroup.Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	return group, ctx
}

// putTreeDoc stores the document of a tree whose blobs are stored.
func (s *Store) putTreeDoc(entries []schemas.TreeEntry, blobs []schemas.Blob) (schemas.Tree, schemas.Digest, error) {
	t := schemas.Tree{Schema: schemas.TreeV1, Entries: entries, Blobs: uniqueBlobs(blobs)}
	var err error
	if t.Digest, err = checkTreeShape(t); err != nil {
		return schemas.Tree{}, "", fmt.Errorf("store tree: %w", err)
	}
	doc, err := s.putTreeBytes(t)
	if err != nil {
		return schemas.Tree{}, "", fmt.Errorf("store tree: %w", err)
	}
	return t, doc, nil
}

// putTreeBytes writes a tree document without ever holding it whole. It is
// encoded twice: mostly it is there already.
func (s *Store) putTreeBytes(t schemas.Tree) (schemas.Digest, error) {
	h := &blobWriter{h: sha256.New()}
	if err := schemas.WriteTree(hashOnly{h}, t); err != nil {
		return "", err
	}
	if h.size > maxTreeDocBytes {
		return "", fmt.Errorf("its document has %d bytes, more than the limit of %d: store it as several trees", h.size, int64(maxTreeDocBytes))
	}
	d := schemas.DigestFromSum(h.h.Sum(nil))
	if have, err := s.keepBlob(d, h.size); have || err != nil {
		return d, err
	}
	w, err := s.newBlob()
	if err != nil {
		return "", err
	}
	defer w.abort()
	if err := schemas.WriteTree(w, t); err != nil {
		return "", err
	}
	return w.commit()
}

// hashOnly counts and hashes what a blob would be.
type hashOnly struct{ w *blobWriter }

func (h hashOnly) Write(b []byte) (int, error) {
	h.w.size += int64(len(b))
	return h.w.h.Write(b)
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
