package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"assay/schemas"
)

// sourceReader turns what goes wrong while reading a blob into a CorruptError,
// so that it cannot be taken for trouble on the writing side.
type sourceReader struct {
	r    io.Reader
	blob schemas.Digest
}

func (s sourceReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && !isCancel(err) {
		err = asCorrupt(s.blob, err)
	}
	return n, err
}

func isCancel(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// asCorrupt blames the blob, unless the file system refused to read it or it could
// not be asked for.
func asCorrupt(d schemas.Digest, err error) error {
	var pathErr *fs.PathError
	if errors.Is(err, ErrUnreachable) || errors.As(err, &pathErr) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read blob %s: %w", d, err)
	}
	return &CorruptError{Blob: d, Err: err}
}

// streamBlob reads a blob once from end to end. It hands fn the content of each
// span, in order, and checks sizes, the content's digest and the blob's own. fn
// must read all it is given; its error ends the reading, so the first span that
// fails is the first that is wrong.
func (l *Layout) streamBlob(ctx context.Context, b schemas.Blob, spans []span, fn func(span, io.Reader) error) error {
	f, size, err := l.src.open(blobName(b.Digest))
	if err != nil {
		return asCorrupt(b.Digest, err)
	}
	defer f.Close()
	raw := newHashReader(ctx, f)
	var plain io.Reader = raw
	if b.MediaType != MediaPart {
		dec, err := newDecoder(raw)
		if err != nil {
			return asCorrupt(b.Digest, err)
		}
		defer dec.Close()
		plain = dec
	}
	content := newHashReader(ctx, sourceReader{io.LimitReader(plain, contentSize(b)+1), b.Digest})
	content.h = contentHash(b)
	for _, sp := range spans {
		if _, err := io.CopyN(io.Discard, content, sp.offset-content.n); err != nil {
			return short(b.Digest, err)
		}
		if err := fn(sp, io.LimitReader(content, sp.length)); err != nil {
			return short(b.Digest, err)
		}
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err
	}
	return checkEnd(b, size, content, raw)
}

// contentHash hashes the content of a blob that has a digest of it. A pack has
// none: its own digest and those of its files cover every byte.
func contentHash(b schemas.Blob) hash.Hash {
	if b.ContentDigest == "" {
		return noHash{sha256.New()}
	}
	return sha256.New()
}

type noHash struct{ hash.Hash }

func (noHash) Write(b []byte) (int, error) { return len(b), nil }

func short(d schemas.Digest, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			return &CorruptError{Blob: d, Err: errors.New("its content ends too early")}
		}
	}
	return err
}

// checkEnd compares everything that is known once the whole content was read.
func checkEnd(b schemas.Blob, size int64, content, raw *hashReader) error {
	if _, err := io.Copy(io.Discard, raw); err != nil {
		if isCancel(err) {
			return err
		}
		return asCorrupt(b.Digest, err)
	}
	fail := func(format string, args ...any) error {
		return &CorruptError{Blob: b.Digest, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case size != b.Size || raw.n != b.Size:
		return fail("it has %d bytes, want %d", raw.n, b.Size)
	case raw.digest() != b.Digest:
		return fail("its %d bytes hash to %s", raw.n, raw.digest())
	case content.n != contentSize(b):
		return fail("its content has %d bytes or more, want %d", content.n, contentSize(b))
	case b.ContentDigest != "" && content.digest() != b.ContentDigest:
		return fail("its content hashes to %s, want %s", content.digest(), b.ContentDigest)
	}
	return nil
}

// sink takes the bytes of one entry; nil to check only.
type sink func(e schemas.TreeEntry) (io.WriteCloser, error)

// readEntry copies the content of one span to every entry it belongs to and
// checks it against their digests.
func readEntry(entries []schemas.TreeEntry, sp span, blob schemas.Digest, r io.Reader, out sink) error {
	o, err := openOutputs(entries, sp, out)
	if err != nil {
		return err
	}
	defer o.abort()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(append(o.writers, h)...), r)
	if err == nil && n != sp.length {
		err = &CorruptError{Blob: blob, Err: fmt.Errorf("the content ends after %d of %d bytes", n, sp.length)}
	}
	if err == nil {
		err = o.check(blob, schemas.DigestFromSum(h.Sum(nil)))
	}
	if err != nil {
		return atPath(err, entries[sp.entries[0]].Path)
	}
	return o.close()
}

// atPath names the path in a CorruptError that has none.
func atPath(err error, p string) error {
	var c *CorruptError
	if errors.As(err, &c) && c.Path == "" {
		return &CorruptError{Blob: c.Blob, Path: p, Err: c.Err}
	}
	return err
}

// readSeveral copies and checks a file that lies in several blobs. whole is
// called after each blob that is all the file's and was checked with it.
func (l *Layout) readSeveral(ctx context.Context, e schemas.TreeEntry, blobs map[schemas.Digest]schemas.Blob, out io.Writer, m *meter, whole func(schemas.Blob)) error {
	h := sha256.New()
	sinks := []io.Writer{h}
	if out != nil {
		sinks = append(sinks, out)
	}
	if m != nil {
		sinks = append(sinks, m)
	}
	for _, p := range e.Parts {
		b, sp := blobs[p.Blob], []span{{offset: p.Offset, length: p.Length}}
		var err error
		if isWhole(b, sp) {
			if _, err = l.readWhole(ctx, b, sinks...); err == nil {
				whole(b)
			}
		} else {
			err = l.streamBlob(ctx, b, sp, func(sp span, r io.Reader) error { return pump(ctx, r, sp.length, sinks...) })
		}
		if err != nil {
			return atPath(err, e.Path)
		}
	}
	if got := schemas.DigestFromSum(h.Sum(nil)); got != e.Digest {
		return &CorruptError{Blob: e.Parts[0].Blob, Path: e.Path, Err: fmt.Errorf("the file's content hashes to %s, want %s", got, e.Digest)}
	}
	return nil
}

func blobMap(blobs []schemas.Blob) map[schemas.Digest]schemas.Blob {
	m := make(map[schemas.Digest]schemas.Blob, len(blobs))
	for _, b := range blobs {
		m[b.Digest] = b
	}
	return m
}
