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
	"slices"
	"sync"
	"time"

	"assay/internal/statcache"
	"assay/schemas"
)

// packFiles writes the small files of a tree into packs, several at a time, and
// fills in their digests and parts.
func (x *treePut) packFiles(ctx context.Context, small []int) ([]schemas.Blob, error) {
	buckets := bucketFiles(len(small),
		func(i int) string { return x.src.entries[small[i]].Path },
		func(i int) int64 { return x.src.entries[small[i]].Size })
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
			x.src.entries[small[b]].Parts = parts[b : b+1 : b+1]
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
	flat := make([]bool, len(files))
	if x.lookup(files, flat) {
		order := flatLast(files, flat)
		b, ok, err := x.s.caches.stored(x.s, x.packKey(order, flat))
		if ok || err != nil {
			return b, errors.Join(err, x.packed(order, b, nil))
		}
	}
	p := packImages.Get().(*packImage)
	defer packImages.Put(p)
	if err := x.read(ctx, p, files, flat); err != nil {
		return schemas.Blob{}, err
	}
	order := flatLast(files, flat)
	key := x.packKey(order, flat)
	var b schemas.Blob
	ok, err := false, error(nil)
	if !x.rehash { // the cache itself is not believed then
		b, ok, err = x.s.caches.stored(x.s, key)
	}
	if err == nil && !ok {
		if b, err = x.putImage(p); err == nil {
			x.s.caches.remember(key, b)
		}
	}
	if err != nil {
		return b, err
	}
	return b, x.packed(order, b, p.offsets())
}

// flatLast is the order of files in a pack: those that look random come after
// the others, so that one code for many bytes fits all of them.
func flatLast(files []int, flat []bool) []int {
	out := make([]int, 0, len(files))
	for _, want := range []bool{false, true} {
		for n, i := range files {
			if flat[n] == want {
				out = append(out, i)
			}
		}
	}
	return out
}

// lookup fills in the digests of files that are known and unchanged.
func (x *treePut) lookup(files []int, flat []bool) (all bool) {
	for n, i := range files {
		sum, mark, ok := x.known(i)
		if !ok {
			return false
		}
		x.src.entries[i].Digest, flat[n] = schemas.DigestFromSum(sum[:]), mark
	}
	return true
}

// packKey names the content of a pack: its files in order, and how many of them
// look random.
func (x *treePut) packKey(order []int, flat []bool) []byte {
	h := sha256.New()
	_, _ = io.WriteString(h, "pack/2")
	random := uint64(0)
	for _, is := range flat {
		if is {
			random++
		}
	}
	buf := binary.LittleEndian.AppendUint64(nil, random)
	h.Write(buf)
	for _, i := range order {
		e := &x.src.entries[i]
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
func (x *treePut) packed(order []int, b schemas.Blob, offsets []int64) error {
	if b.Digest == "" {
		return nil
	}
	at := int64(0)
	for n, i := range order {
		e := &x.src.entries[i]
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

// packImage is an uncompressed pack in memory, at most packLimitBytes: files that
// look random apart from the others, which they follow.
type packImage struct {
	plain, random imagePart
	out           []byte // compressed
}

type imagePart struct {
	bytes.Buffer
	offsets []int64
}

// offsets are where the files begin, in the pack's order. It is called once.
func (p *packImage) offsets() []int64 {
	out := p.plain.offsets
	for _, at := range p.random.offsets {
		out = append(out, at+int64(p.plain.Len()))
	}
	return out
}

// read makes the image of a pack of files and says which of them look random.
func (x *treePut) read(ctx context.Context, p *packImage, files []int, flat []bool) error {
	for _, part := range []*imagePart{&p.plain, &p.random} {
		part.Reset()
		part.offsets = part.offsets[:0]
	}
	var err error
	for n, i := range files {
		if flat[n], err = x.load(ctx, p, i); err != nil {
			return err
		}
	}
	p.random.Write(make([]byte, 1024))
	return nil
}

// load reads one file into an image and takes its digest from what was read.
func (x *treePut) load(ctx context.Context, p *packImage, i int) (flat bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	e := &x.src.entries[i]
	f, err := x.src.openSmall(i)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	buf := smallFiles.Get().(*[]byte)
	defer smallFiles.Put(buf)
	began, size := time.Now(), int(e.Size)
	*buf = slices.Grow((*buf)[:0], size+1)
	// One byte more than expected shows a file that grew.
	n, err := io.ReadFull(f, (*buf)[:size+1])
	if n != size {
		if err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = fmt.Errorf("it has %d bytes or more, had %d: it changed while it was being stored", n, size)
		}
		return false, fmt.Errorf("store %s: %w", x.src.full(i), err)
	}
	content := (*buf)[:size]
	sum := sha256.Sum256(content)
	e.Digest = schemas.DigestFromSum(sum[:])
	part := &p.plain
	if flat = isFlat(content); flat {
		part = &p.random
	}
	if err := part.add(e, content); err != nil {
		return false, fmt.Errorf("store %s: %w", x.src.full(i), err)
	}
	now, regular, err := f.stamp()
	if err := x.settleStamp(i, now, regular, err, began, sum, flat); err != nil {
		return false, err
	}
	x.progress.add(e.Size)
	return flat, nil
}

var smallFiles = sync.Pool{New: func() any { return new([]byte) }}

// add appends one file to an image.
func (p *imagePart) add(e *schemas.TreeEntry, content []byte) error {
	if err := tar.NewWriter(p).WriteHeader(packHeader(e.Path, e.Executable, e.Size)); err != nil {
		return err
	}
	p.offsets = append(p.offsets, int64(p.Len()))
	p.Write(content)
	p.Write(zeros[:(512-len(content)%512)%512])
	return nil
}

var zeros [512]byte

// settle makes sure that a file is still what it was, and remembers it.
func (x *treePut) settle(i int, f statter, began time.Time, sum statcache.Sum) error {
	info, err := f.Stat()
	if err != nil {
		return x.settleStamp(i, statcache.Stamp{}, false, err, began, sum, false)
	}
	return x.settleStamp(i, statcache.StampOf(info), info.Mode().IsRegular(), nil, began, sum, false)
}

func (x *treePut) settleStamp(i int, now statcache.Stamp, regular bool, err error, began time.Time, sum statcache.Sum, flat bool) error {
	if err == nil {
		err = x.src.sameStamp(i, now, regular)
	}
	if err != nil {
		return fmt.Errorf("store %s: it changed while it was read, or cannot be read: %w", x.src.full(i), err)
	}
	x.s.caches.files.RememberMarked(x.src.stamps[i], now, began, sum, flat, x.src.dir)
	return nil
}

// putImage compresses a pack and lets it be published: one frame for the files
// that can be compressed, one for those that look random.
func (x *treePut) putImage(p *packImage) (schemas.Blob, error) {
	w, err := x.s.newBlob()
	if err != nil {
		return schemas.Blob{}, err
	}
	defer w.abort()
	enc := newEncoder(packEncoders, nil)
	defer packEncoders.Put(enc)
	p.out = p.out[:0]
	for _, part := range []*imagePart{&p.plain, &p.random} {
		if part.Len() > 0 {
			p.out = enc.EncodeAll(part.Bytes(), p.out)
		}
	}
	if _, err := w.Write(p.out); err != nil {
		return schemas.Blob{}, fmt.Errorf("store pack: %w", err)
	}
	d, err := w.publishLater(&x.disk)
	if err != nil {
		return schemas.Blob{}, err
	}
	return schemas.Blob{MediaType: MediaPack, Digest: d, Size: int64(len(p.out)), ContentSize: int64(p.plain.Len() + p.random.Len())}, nil
}
