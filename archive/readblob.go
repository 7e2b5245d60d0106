package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"assay/schemas"
)

// decoders are kept, since each has a window of some megabytes.
var decoders = sync.Pool{New: func() any {
	d, err := newDecoder(nil)
	if err != nil {
		panic(fmt.Sprintf("zstd options: %v", err)) // they are constants
	}
	return d
}}

// decode returns the content of a compressed blob; release gives back what it
// was read with.
func decode(raw io.Reader) (plain io.Reader, release func(), err error) {
	d := decoders.Get().(*zstd.Decoder)
	if err := d.Reset(raw); err != nil {
		d.Close()
		return nil, nil, err
	}
	return d, func() {
		if d.Reset(nil) == nil {
			decoders.Put(d)
		}
	}, nil
}

// isWhole says that a blob is all one file, or one part of it.
func isWhole(b schemas.Blob, spans []span) bool {
	if b.MediaType != MediaPart && b.MediaType != MediaPartZstd {
		return false
	}
	return len(spans) == 0 || (len(spans) == 1 && spans[0].offset == 0 && spans[0].length == contentSize(b))
}

// readWhole hands the content of a part to the sinks, all at the same time, and
// checks sizes and digests. It hashes raw content once and compressed content
// once on either side, and returns the digest of the content.
func (l *Layout) readWhole(ctx context.Context, b schemas.Blob, sinks ...io.Writer) (schemas.Digest, error) {
	f, size, err := l.src.open(blobName(b.Digest))
	if err != nil {
		return "", asCorrupt(b.Digest, err)
	}
	defer f.Close()
	if size != b.Size {
		return "", &CorruptError{Blob: b.Digest, Err: fmt.Errorf("it has %d bytes, want %d", size, b.Size)}
	}
	h := sha256.New()
	if b.MediaType == MediaPart {
		if err := pump(ctx, sourceReader{f, b.Digest}, size, append(sinks, h)...); err != nil {
			return "", short(b.Digest, err)
		}
		if got := schemas.DigestFromSum(h.Sum(nil)); got != b.Digest {
			return "", &CorruptError{Blob: b.Digest, Err: fmt.Errorf("its %d bytes hash to %s", size, got)}
		}
		return b.Digest, nil
	}
	raw := newHashReader(ctx, f)
	plain, release, err := decode(raw)
	if err != nil {
		return "", asCorrupt(b.Digest, err)
	}
	defer release()
	plain = sourceReader{plain, b.Digest}
	if err := pump(ctx, plain, contentSize(b), append(sinks, h)...); err != nil {
		return "", short(b.Digest, err)
	}
	content := &hashReader{ctx: ctx, r: plain, h: h, n: contentSize(b)}
	if _, err := io.CopyN(io.Discard, content, 1); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return content.digest(), checkEnd(b, size, content, raw)
}

// readPart is readWhole for the entries whose content it is.
func (l *Layout) readPart(ctx context.Context, b schemas.Blob, entries []schemas.TreeEntry, spans []span, out sink, m *meter) error {
	if len(spans) == 0 {
		_, err := l.readWhole(ctx, b)
		return err
	}
	o, err := openOutputs(entries, spans[0], out)
	if err != nil {
		return err
	}
	defer o.abort()
	sinks := o.writers
	if m != nil {
		sinks = append(sinks, m)
	}
	got, err := l.readWhole(ctx, b, sinks...)
	m.add(spans[0].length * int64(len(spans[0].entries)-1))
	if err == nil {
		err = o.check(b.Digest, got)
	}
	if err != nil {
		return atPath(err, entries[spans[0].entries[0]].Path)
	}
	return o.close()
}

// outputs are the files that one content is written to.
type outputs struct {
	entries []schemas.TreeEntry
	writers []io.Writer
	closers []io.Closer
}

func openOutputs(entries []schemas.TreeEntry, sp span, out sink) (*outputs, error) {
	o := &outputs{}
	for _, i := range sp.entries {
		o.entries = append(o.entries, entries[i])
		if out == nil {
			continue
		}
		w, err := out(entries[i])
		if err != nil {
			o.abort()
			return nil, err
		}
		o.writers, o.closers = append(o.writers, w), append(o.closers, w)
	}
	return o, nil
}

func (o *outputs) abort() { _ = o.close() }

func (o *outputs) close() error {
	closers := o.closers
	o.closers = nil
	var errs []error
	for _, c := range closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// check compares a content's digest with those of the entries it belongs to.
func (o *outputs) check(blob, got schemas.Digest) error {
	for _, e := range o.entries {
		if got != e.Digest {
			return &CorruptError{Blob: blob, Path: e.Path, Err: fmt.Errorf("the file's content hashes to %s, want %s", got, e.Digest)}
		}
	}
	return nil
}

// readPack unpacks a pack into memory, at most packLimitBytes, hands each span
// to its entries, and checks them, the content and the blob. When something is
// wrong the error names the first path it shows in. use gets the whole content
// and must not keep it; nil for no use.
func (l *Layout) readPack(ctx context.Context, b schemas.Blob, entries []schemas.TreeEntry, spans []span, out sink, m *meter, use func([]byte) error) error {
	f, size, err := l.src.open(blobName(b.Digest))
	if err != nil {
		return asCorrupt(b.Digest, err)
	}
	defer f.Close()
	raw := newHashReader(ctx, f)
	plain, release, err := decode(raw)
	if err != nil {
		return asCorrupt(b.Digest, err)
	}
	defer release()
	pooled := packImages.Get().(*packImage)
	defer packImages.Put(pooled)
	image := &pooled.plain.Buffer
	image.Reset()
	_, readErr := image.ReadFrom(sourceReader{io.LimitReader(plain, contentSize(b)+1), b.Digest})
	if isCancel(readErr) {
		return readErr
	}
	for _, sp := range spans {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := packSpan(image.Bytes(), readErr, b.Digest, entries, sp, out); err != nil {
			return err
		}
		m.add(sp.length * int64(len(sp.entries)))
	}
	if readErr != nil {
		return readErr
	}
	content := &hashReader{ctx: ctx, r: bytes.NewReader(nil), h: contentHash(b), n: int64(image.Len())}
	content.h.Write(image.Bytes())
	if err := checkEnd(b, size, content, raw); err != nil || use == nil {
		return err
	}
	return use(image.Bytes())
}

func packSpan(content []byte, readErr error, blob schemas.Digest, entries []schemas.TreeEntry, sp span, out sink) error {
	first := entries[sp.entries[0]].Path
	if sp.offset+sp.length > int64(len(content)) {
		if readErr == nil {
			readErr = io.ErrUnexpectedEOF
		}
		return atPath(short(blob, readErr), first)
	}
	part := content[sp.offset : sp.offset+sp.length]
	o, err := openOutputs(entries, sp, out)
	if err != nil {
		return err
	}
	defer o.abort()
	if err := o.check(blob, schemas.DigestOf(part)); err != nil {
		return err
	}
	for _, w := range o.writers {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return o.close()
}

// readBlobOf reads one blob of a run's files in the cheapest way that checks all
// of it.
func (l *Layout) readBlobOf(ctx context.Context, b schemas.Blob, entries []schemas.TreeEntry, spans []span, out sink, m *meter, use func([]byte) error) error {
	switch {
	case b.MediaType == MediaPack && contentSize(b) <= packLimitBytes:
		return l.readPack(ctx, b, entries, spans, out, m, use)
	case isWhole(b, spans):
		return l.readPart(ctx, b, entries, spans, out, m)
	}
	return l.streamBlob(ctx, b, spans, func(sp span, r io.Reader) error {
		m.add(sp.length * int64(len(sp.entries)))
		return readEntry(entries, sp, b.Digest, r, out)
	})
}
