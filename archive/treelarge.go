package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"assay/internal/durable"
	"assay/internal/statcache"
	"assay/schemas"
)

// largeFiles stores every large file in parts of its own, several files at a time.
func (x *treePut) largeFiles(ctx context.Context, large []int) ([]schemas.Blob, error) {
	found := make([][]schemas.Blob, len(large))
	group, gctx := newGroup(ctx)
	for n, i := range large {
		group.Go(func() (err error) {
			found[n], err = x.large(gctx, i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var blobs []schemas.Blob
	for _, f := range found {
		blobs = append(blobs, f...)
	}
	return blobs, nil
}

func (x *treePut) large(ctx context.Context, i int) ([]schemas.Blob, error) {
	if sum, _, ok := x.known(i); ok {
		if blobs, ok, err := x.storedParts(i, schemas.DigestFromSum(sum[:])); ok || err != nil {
			x.progress.add(x.src.entries[i].Size)
			return blobs, err
		}
	}
	f, err := x.src.openFile(i)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	blobs, err := x.readLarge(ctx, i, f)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("it changed while it was being stored: %w", err)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("store %s: %w", x.src.full(i), err)
	}
	return blobs, err
}

func (x *treePut) readLarge(ctx context.Context, i int, f *os.File) ([]schemas.Blob, error) {
	e := &x.src.entries[i]
	began := time.Now()
	squeeze, sample, err := sampleFile(f, e.Size)
	if err != nil {
		return nil, err
	}
	if _, ok := x.s.caches.known.Get(sample); ok {
		// It looks like one that is stored: reading it is cheaper than writing it.
		blobs, ok, err := x.hashFirst(ctx, i, f, began)
		if ok || err != nil {
			return blobs, err
		}
	}
	whole := sha256.New()
	var blobs []schemas.Blob
	e.Parts = nil
	for at := int64(0); at < e.Size; at += partLimit {
		length := min(e.Size-at, partLimit)
		b, err := x.putPart(ctx, f, at, length, e.Size, squeeze, whole)
		if err != nil {
			return nil, err
		}
		blobs = append(blobs, b)
		e.Parts = append(e.Parts, schemas.Part{Blob: b.Digest, Length: length})
	}
	sum := statcache.Sum(whole.Sum(nil))
	if len(blobs) == 1 {
		// One hash served both the blob and the file.
		d := blobs[0].ContentDigest
		if blobs[0].MediaType == MediaPart {
			d = blobs[0].Digest
		}
		sum = statcache.Sum(appendDigest(nil, d))
	}
	e.Digest = schemas.DigestFromSum(sum[:])
	if err := x.settle(i, f, began, sum); err != nil {
		return nil, err
	}
	for n, b := range blobs {
		x.s.caches.remember(partKey(e.Digest, n), b)
	}
	x.s.caches.hint(sample)
	return blobs, nil
}

// hashFirst reads a file that may be stored already.
func (x *treePut) hashFirst(ctx context.Context, i int, f *os.File, began time.Time) ([]schemas.Blob, bool, error) {
	e := &x.src.entries[i]
	h := sha256.New()
	if err := pump(ctx, io.NewSectionReader(f, 0, e.Size), e.Size, h); err != nil {
		return nil, false, err
	}
	sum := statcache.Sum(h.Sum(nil))
	if x.rehash {
		return nil, false, nil // the cache is not believed then
	}
	blobs, ok, err := x.storedParts(i, schemas.DigestFromSum(sum[:]))
	if !ok || err != nil {
		return nil, false, err
	}
	x.progress.add(e.Size)
	return blobs, true, x.settle(i, f, began, sum)
}

// partKey names a part of a large file by the file's content.
func partKey(file schemas.Digest, n int) []byte {
	return knownKey("part/1", string(file), int64(n), partLimit)
}

// storedParts fills in the parts of a file whose content is stored already.
func (x *treePut) storedParts(i int, d schemas.Digest) ([]schemas.Blob, bool, error) {
	e := &x.src.entries[i]
	var blobs []schemas.Blob
	var parts []schemas.Part
	for n, left := 0, e.Size; left > 0; n, left = n+1, left-min(left, partLimit) {
		b, ok, err := x.s.caches.stored(x.s, partKey(d, n))
		if !ok || err != nil || contentSize(b) != min(left, partLimit) {
			return nil, false, err
		}
		blobs = append(blobs, b)
		parts = append(parts, schemas.Part{Blob: b.Digest, Length: contentSize(b)})
	}
	e.Digest, e.Parts = d, parts
	return blobs, true, nil
}

// putPart stores length bytes of f from offset on. whole takes them too, unless
// the part is all of the file: the part's own hash serves then.
func (x *treePut) putPart(ctx context.Context, f *os.File, offset, length, size int64, squeeze bool, whole hash.Hash) (schemas.Blob, error) {
	w, err := x.s.newBlob()
	if err != nil {
		return schemas.Blob{}, err
	}
	defer w.abort()
	var sinks []io.Writer
	if x.progress != nil {
		sinks = append(sinks, x.progress)
	}
	if length < size {
		sinks = append(sinks, whole)
	}
	in := io.NewSectionReader(f, offset, length)
	if !squeeze {
		if err := w.fill(ctx, f, in, sinks); err != nil {
			return schemas.Blob{}, err
		}
		d, err := w.publishLater(&x.disk)
		return schemas.Blob{MediaType: MediaPart, Digest: d, Size: length}, err
	}
	content, enc := sha256.New(), newEncoder(encoders, w)
	err = pump(ctx, in, length, append(sinks, enc, content)...)
	if err = errors.Join(err, enc.Close()); err != nil {
		return schemas.Blob{}, err
	}
	encoders.Put(enc)
	compressed := w.size
	d, err := w.publishLater(&x.disk)
	return schemas.Blob{MediaType: MediaPartZstd, Digest: d, Size: compressed,
		ContentDigest: schemas.DigestFromSum(content.Sum(nil)), ContentSize: length}, err
}

// fill makes the blob a copy of a section of f. Where the file system can share
// blocks it does, and it is the clone that is hashed: the bytes that are stored
// are always the bytes that were hashed.
func (w *blobWriter) fill(ctx context.Context, f *os.File, in *io.SectionReader, sinks []io.Writer) error {
	_, offset, length := in.Outer()
	w.size = length
	cloned, err := w.f.Clone(f, offset, length)
	switch {
	case err != nil:
		return err
	case cloned:
		return pump(ctx, io.NewSectionReader(w.f, 0, length), length, append(sinks, w.h)...)
	}
	return pump(ctx, in, length, append(sinks, &eagerFile{File: w.f}, w.h)...)
}

// sampleFile says whether zstd saves at least a twentieth on samples of the file,
// and gives a name to size and samples. It reads content only, so equal files are
// stored alike.
func sampleFile(f io.ReaderAt, size int64) (squeeze bool, name []byte, err error) {
	enc := newEncoder(encoders, nil)
	defer encoders.Put(enc)
	const sample = 128 << 10
	var in, out int
	buf := make([]byte, sample)
	h := sha256.New()
	for _, at := range []int64{0, size / 3, 2 * size / 3, size - sample} {
		n, err := f.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, nil, err
		}
		in += n
		out += len(enc.EncodeAll(buf[:n], nil))
		h.Write(buf[:n])
	}
	return out <= in-in/20, knownKey("sample/1", size, string(h.Sum(nil)), partLimit), nil
}

// eagerFile lets the disk begin while the rest is still read.
type eagerFile struct {
	*durable.File
	written, started int64
}

func (f *eagerFile) Write(b []byte) (int, error) {
	const every = 8 << 20
	n, err := f.File.Write(b)
	f.written += int64(n)
	if f.written-f.started >= every {
		f.StartWriteback(f.started, f.written-f.started)
		f.started = f.written
	}
	return n, err
}
