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

	"golang.org/x/sync/errgroup"

	"assay/internal/durable"
	"assay/schemas"
)

func blobName(d schemas.Digest) string { return blobsDir + "/" + d.Hex() }

func (s *Store) blobPath(d schemas.Digest) string { return s.path(blobName(d)) }

// blobWriter hashes what is written and makes it a blob at commit.
type blobWriter struct {
	s      *Store
	f      *durable.File
	h      hash.Hash
	size   int64
	handed bool // publishLater ends it
}

func (s *Store) newBlob() (*blobWriter, error) {
	f, err := durable.Create(s.path(blobsDir + "/new"))
	if err != nil {
		return nil, fmt.Errorf("store blob: %w", err)
	}
	return &blobWriter{s: s, f: f, h: sha256.New()}, nil
}

func (w *blobWriter) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	w.h.Write(b[:n])
	w.size += int64(n)
	return n, err
}

func (w *blobWriter) abort() {
	if !w.handed {
		w.f.Abort()
	}
}

// publish gives the blob its name. One that is there and whole is kept; one that is
// torn or rotten is replaced: the right bytes are at hand. The caller calls syncBlobs before
// it stores what names the blob.
func (w *blobWriter) publish() (schemas.Digest, error) {
	d := schemas.DigestFromSum(w.h.Sum(nil))
	have, err := w.s.haveWhole(d, w.size)
	if err == nil && !have {
		err = w.s.publish(w.f, d)
	}
	w.f.Abort()
	if err != nil {
		return "", fmt.Errorf("store blob %s: %w", d, err)
	}
	return d, nil
}

// publishLater is publish that lets group wait for the disk: the next blob is
// read meanwhile.
func (w *blobWriter) publishLater(group *errgroup.Group) (schemas.Digest, error) {
	d := schemas.DigestFromSum(w.h.Sum(nil))
	have, err := w.s.haveWhole(d, w.size)
	if have || err != nil {
		w.f.Abort()
		return d, err
	}
	w.handed = true
	group.Go(func() error {
		defer w.f.Abort()
		if err := w.s.publish(w.f, d); err != nil {
			return fmt.Errorf("store blob %s: %w", d, err)
		}
		return nil
	})
	return d, nil
}

// publish gives a file the name of the blob d. Where one is replaced, a gc that
// has just found the old one to be garbage must not delete the new one: the lock
// keeps it from being between the two.
func (s *Store) publish(f *durable.File, d schemas.Digest) error {
	path := s.blobPath(d)
	if _, err := os.Lstat(path); err == nil {
		unlock, err := durable.RLock(s.path(sweepLockName))
		if err != nil {
			return err
		}
		defer func() { _ = unlock() }()
	}
	if err := f.Publish(path); err != nil {
		if what := durable.CheckPlain(path); what != nil {
			err = fmt.Errorf("%w: %w: `assay fsck --repair` moves it to assay/quarantine", err, what)
		}
		return err
	}
	if at, err := s.stamp(d); err == nil {
		s.whole.Store(d, at)
	}
	return nil
}

func (w *blobWriter) commit() (schemas.Digest, error) {
	d, err := w.publish()
	if err == nil {
		err = w.s.syncBlobs()
	}
	return d, err
}

// syncBlobs makes the names of published blobs durable.
func (s *Store) syncBlobs() error {
	if err := durable.SyncDir(s.path(blobsDir)); err != nil {
		return fmt.Errorf("store blobs: %w", err)
	}
	return nil
}

// keepBlob reports whether the blob is there already, durably. It is freshened:
// what is reused is as new as what is written.
func (s *Store) keepBlob(d schemas.Digest, size int64) (bool, error) {
	have, err := s.haveWhole(d, size)
	if have && err == nil {
		err = s.syncBlobs()
	}
	if err != nil {
		return false, fmt.Errorf("store blob %s: %w", d, err)
	}
	return have, nil
}

// putBytes stores b as a blob.
func (s *Store) putBytes(b []byte) (schemas.Digest, error) {
	d := schemas.DigestOf(b)
	if have, err := s.keepBlob(d, int64(len(b))); have || err != nil {
		return d, err
	}
	w, err := s.newBlob()
	if err != nil {
		return "", err
	}
	if _, err := w.Write(b); err != nil {
		w.abort()
		return "", fmt.Errorf("store blob %s: %w", d, err)
	}
	return w.commit()
}

// blobSize returns the size of a stored blob.
func (s *Store) blobSize(d schemas.Digest) (int64, error) {
	info, err := os.Lstat(s.blobPath(d))
	if err != nil {
		return 0, fmt.Errorf("blob %s: %w", d, err)
	}
	if !info.Mode().IsRegular() {
		return 0, &CorruptError{Blob: d, Err: fmt.Errorf("it is a %s: %w", durable.TypeName(info.Mode()), durable.ErrNotRegular)}
	}
	return info.Size(), nil
}

// unread is the error of a blob that cannot be opened or read: one that is missing
// is a *CorruptError as one that is wrong.
func unread(d schemas.Digest, err error) error {
	var corrupt *CorruptError
	if errors.Is(err, fs.ErrNotExist) && !errors.As(err, &corrupt) {
		return &CorruptError{Blob: d, Err: err}
	}
	return fmt.Errorf("read blob %s: %w", d, err)
}

// readBlob returns a document blob whose bytes match its digest.
func (l *Layout) readBlob(d schemas.Digest, limit int64) ([]byte, error) {
	if !d.Valid() {
		return nil, fmt.Errorf("read blob: %q is no digest", string(d))
	}
	b, err := readAll(l.src, blobName(d), limit)
	if err != nil {
		return nil, unread(d, err)
	}
	if got := schemas.DigestOf(b); got != d {
		return nil, &CorruptError{Blob: d, Err: fmt.Errorf("its %d bytes hash to %s", len(b), got)}
	}
	return b, nil
}

// hashReader hashes what is read and stops when ctx ends.
type hashReader struct {
	ctx context.Context
	r   io.Reader
	h   hash.Hash
	n   int64
}

func newHashReader(ctx context.Context, r io.Reader) *hashReader {
	return &hashReader{ctx: ctx, r: r, h: sha256.New()}
}

func (r *hashReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(b)
	r.h.Write(b[:n])
	r.n += int64(n)
	return n, err
}

func (r *hashReader) digest() schemas.Digest { return schemas.DigestFromSum(r.h.Sum(nil)) }

// drain reads to the end.
func (r *hashReader) drain() (int64, error) {
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	return io.CopyBuffer(writeOnly{io.Discard}, r, *buf)
}

// writeOnly hides io.Discard's own, smaller buffers.
type writeOnly struct{ io.Writer }
