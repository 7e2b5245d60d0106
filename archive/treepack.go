package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"assay/internal/statcache"
	"assay/schemas"
)

// packFiles writes the small files of a tree into packs, several at a time, and
// fills in their digests and parts.
func (x *treePut) packFiles(ctx context.Context, small []int) ([]schemas.Blob, error) {
	buckets := bucketFiles(len(small),
		func(i int) string { return x.src.found[small[i]].entry.Path },
		func(i int) int64 { return x.src.found[small[i]].entry.Size })
	blobs := make([]schemas.Blob, len(buckets))
	parts := make([]schemas.Part, len(small)) // one allocation for all
	group, gctx := newGroup(ctx)
	for n, bucket := range buckets {
		if len(bucket) == 0 {
			continue
		}
		files := make([]int, len(bucket))
		for i, b := range bucket {
			files[i] = small[b]
			x.src.found[small[b]].entry.Parts = parts[b : b+1 : b+1]
		}
		group.Go(func() (err error) {
			blobs[n], err = x.pack(gctx, files)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := blobs[:0]
	for _, b := range blobs {
		if b.Digest != "" {
			out = append(out, b)
		}
	}
	return out, nil
}

// pack stores one pack. When every file of it is known, and so is the pack, none
// is read; when it turns out to be known once they are read, it is not
// compressed again.
func (x *treePut) pack(ctx context.Context, files []int) (schemas.Blob, error) {
	if x.lookup(files) {
		b, ok, err := x.s.caches.stored(x.s, x.packKey(files), false)
		if ok || err != nil {
			return b, errors.Join(err, x.packed(files, b, nil))
		}
	}
	p := packImages.Get().(*packImage)
	defer packImages.Put(p)
	p.reset()
	room := int64(2048)
	for _, i := range files {
		room += tarCost(x.src.found[i].entry.Path, x.src.found[i].entry.Size)
	}
	p.Grow(int(room)) // once: growing leaves as much behind
	for _, i := range files {
		if err := x.load(ctx, p, i); err != nil {
			return schemas.Blob{}, err
		}
	}
	p.Write(make([]byte, 1024))
	key := x.packKey(files)
	var b schemas.Blob
	ok, err := false, error(nil)
	if !x.rehash { // the cache itself is not believed then
		b, ok, err = x.s.caches.stored(x.s, key, true)
	}
	if err == nil && !ok {
		if b, err = x.putImage(p); err == nil {
			x.s.caches.remember(key, b)
		}
	}
	if err != nil {
		return b, err
	}
	return b, x.packed(files, b, p.offsets)
}

// lookup fills in the digests of files that are known and unchanged.
func (x *treePut) lookup(files []int) (all bool) {
	for _, i := range files {
		sum, ok := x.known(i)
		if !ok {
			return false
		}
		x.src.found[i].entry.Digest = schemas.DigestFromSum(sum[:])
	}
	return true
}

// packKey names the content of a pack.
func (x *treePut) packKey(files []int) []byte {
	h := sha256.New()
	_, _ = io.WriteString(h, "pack/1")
	var buf []byte
	for _, i := range files {
		e := &x.src.found[i].entry
		mode := byte(0)
		if e.Executable {
			mode = 1
		}
		buf = binary.LittleEndian.AppendUint64(append(buf[:0], mode), uint64(e.Size))
		buf = append(append(append(buf, e.Digest...), e.Path...), 0)
		h.Write(buf)
	}
	return h.Sum(nil)
}

// packed fills in where the files of a stored pack begin; offsets nil computes it.
func (x *treePut) packed(files []int, b schemas.Blob, offsets []int64) error {
	if b.Digest == "" {
		return nil
	}
	at := int64(0)
	for n, i := range files {
		e := &x.src.found[i].entry
		if offsets == nil {
			head, err := headerBytes(e.Path, e.Executable, e.Size)
			if err != nil {
				return fmt.Errorf("store %s: %w", x.src.full(i), err)
			}
			e.Parts[0] = schemas.Part{Blob: b.Digest, Offset: at + head, Length: e.Size}
			at += head + (e.Size+511)/512*512
			x.progress.add(e.Size)
			continue
		}
		e.Parts[0] = schemas.Part{Blob: b.Digest, Offset: offsets[n], Length: e.Size}
	}
	return nil
}

// headerBytes is how long the tar header of a file is.
func headerBytes(name string, executable bool, size int64) (int64, error) {
	if len(name) <= 100 && isASCII(name) {
		return 512, nil
	}
	var b bytes.Buffer
	err := tar.NewWriter(&b).WriteHeader(packHeader(name, executable, size))
	return int64(b.Len()), err
}

// packImage is an uncompressed pack in memory, at most packLimitBytes.
type packImage struct {
	bytes.Buffer
	offsets []int64
	turns   []int // where files that look random begin or end
	flat    bool
}

func (p *packImage) reset() {
	p.Reset()
	p.offsets, p.turns, p.flat = p.offsets[:0], p.turns[:0], false
}

// load reads one file into an image and takes its digest from what was read.
func (x *treePut) load(ctx context.Context, p *packImage, i int) error {
	e := &x.src.found[i].entry
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := x.src.openSmall(i)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	began, start := time.Now(), p.Len()
	if err := tar.NewWriter(p).WriteHeader(packHeader(e.Path, e.Executable, e.Size)); err != nil {
		return fmt.Errorf("store %s: %w", x.src.full(i), err)
	}
	size := int(e.Size)
	p.offsets = append(p.offsets, int64(p.Len()))
	p.Grow(size + 512)
	room := p.AvailableBuffer()[:size+1]
	// One byte more than expected shows a file that grew.
	n, err := io.ReadFull(f, room)
	if n != size {
		if err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = fmt.Errorf("it has %d bytes or more, had %d: it changed while it was being stored", n, size)
		}
		return fmt.Errorf("store %s: %w", x.src.full(i), err)
	}
	sum := sha256.Sum256(room[:size])
	p.Write(room[:size])
	if flat := isFlat(room[:size]); flat != p.flat {
		p.flat, p.turns = flat, append(p.turns, start)
	}
	p.Write(make([]byte, (512-size%512)%512))
	e.Digest = schemas.DigestFromSum(sum[:])
	now, regular, err := f.stamp()
	if err := x.settleStamp(i, now, regular, err, began, sum); err != nil {
		return err
	}
	x.progress.add(e.Size)
	return nil
}

// settle makes sure that a file is still what it was, and remembers it.
func (x *treePut) settle(i int, f statter, began time.Time, sum statcache.Sum) error {
	info, err := f.Stat()
	if err != nil {
		return x.settleStamp(i, statcache.Stamp{}, false, err, began, sum)
	}
	return x.settleStamp(i, statcache.StampOf(info), info.Mode().IsRegular(), nil, began, sum)
}

func (x *treePut) settleStamp(i int, now statcache.Stamp, regular bool, err error, began time.Time, sum statcache.Sum) error {
	if err == nil {
		err = x.src.sameStamp(i, now, regular)
	}
	if err != nil {
		return fmt.Errorf("store %s: it changed while it was read, or cannot be read: %w", x.src.full(i), err)
	}
	x.s.caches.files.Remember(x.src.found[i].stamp, now, began, sum, x.src.dir)
	return nil
}

// putImage compresses a pack and lets it be published. A block of the compressed
// stream never holds text and random bytes together: one code would fit neither.
func (x *treePut) putImage(p *packImage) (schemas.Blob, error) {
	w, err := x.s.newBlob()
	if err != nil {
		return schemas.Blob{}, err
	}
	defer w.abort()
	image, at := p.Bytes(), 0
	enc := newEncoder(packEncoders, w)
	for _, turn := range p.turns {
		_, werr := enc.Write(image[at:turn])
		err = errors.Join(err, werr, enc.Flush())
		at = turn
	}
	_, werr := enc.Write(image[at:])
	if err = errors.Join(err, werr, enc.Close()); err != nil {
		return schemas.Blob{}, fmt.Errorf("store pack: %w", err)
	}
	packEncoders.Put(enc)
	size := w.size
	d, err := w.publishLater(&x.disk)
	if err != nil {
		return schemas.Blob{}, err
	}
	return schemas.Blob{MediaType: MediaPack, Digest: d, Size: size, ContentDigest: schemas.DigestOf(image), ContentSize: int64(len(image))}, nil
}
