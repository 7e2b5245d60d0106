package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/internal/durable"
	"assay/schemas"
)

// BlobRef names a blob of a run as its manifest does.
type BlobRef struct {
	MediaType string
	Digest    schemas.Digest
	Size      int64
}

// MaxManifestBytes is the longest manifest that is read or written.
const MaxManifestBytes = maxManifestBytes

// ManifestBlobs checks the shape of a run's manifest and lists the blobs it is
// made of: its config first, then its layers in order.
func ManifestBlobs(manifest []byte) ([]BlobRef, error) {
	m, err := parseManifest(manifest)
	if err != nil {
		return nil, err
	}
	list := make([]BlobRef, 0, len(m.Layers)+1)
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		list = append(list, BlobRef{string(d.MediaType), digestOf(d), d.Size})
	}
	return list, nil
}

// ManifestBytes returns a run's manifest, checked against its digest.
func (l *Layout) ManifestBytes(run schemas.Digest) ([]byte, error) {
	return l.readBlob(run, maxManifestBytes)
}

// OpenBlob opens the stored bytes of a blob from offset on, and says how long the
// whole blob is. The bytes are not checked.
func (l *Layout) OpenBlob(d schemas.Digest, offset int64) (io.ReadCloser, int64, error) {
	if !d.Valid() {
		return nil, 0, fmt.Errorf("open blob: %q is no digest", string(d))
	}
	r, size, err := l.src.open(blobName(d))
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", d, err)
	}
	if offset == 0 {
		return r, size, nil
	}
	if s, ok := r.(io.Seeker); ok {
		_, err = s.Seek(offset, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, r, offset)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open blob %s at byte %d: %w", d, offset, err), r.Close())
	}
	return r, size, nil
}

// CheckBlob reads a whole blob: nil when its bytes are those that digest and
// size promise, fs.ErrNotExist when it is not there, else a *CorruptError.
func (l *Layout) CheckBlob(ctx context.Context, d schemas.Digest, size int64) error {
	r, have, err := l.OpenBlob(d, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	if have != size {
		return &CorruptError{Blob: d, Err: fmt.Errorf("it has %d bytes, want %d", have, size)}
	}
	h := newHashReader(ctx, r)
	if _, err := h.drain(); err != nil {
		return fmt.Errorf("read blob %s: %w", d, err)
	}
	if h.n != size || h.digest() != d {
		return &CorruptError{Blob: d, Err: fmt.Errorf("its %d bytes hash to %s", h.n, h.digest())}
	}
	return nil
}

// PutBlob stores what r gives as the blob d. Other bytes than digest and size
// promise are refused with a *CorruptError and leave nothing behind; right ones
// replace a blob of that name, which may have been damaged. Its bytes are durable
// then; AddRun makes the names of blobs durable before the run's manifest.
func (s *Store) PutBlob(ctx context.Context, d schemas.Digest, size int64, r io.Reader) error {
	return s.putBlob(ctx, d, size, func(*durable.File) io.Reader { return r })
}

// putBlob is PutBlob of what from gives for the file that it is written to.
func (s *Store) putBlob(ctx context.Context, d schemas.Digest, size int64, from func(*durable.File) io.Reader) error {
	if !d.Valid() || size < 0 {
		return fmt.Errorf("store blob: %q of %d bytes is not well formed", string(d), size)
	}
	f, err := durable.Create(s.path(blobsDir + "/new"))
	if err != nil {
		return fmt.Errorf("store blob %s: %w", d, err)
	}
	defer f.Abort()
	in := newHashReader(ctx, io.LimitReader(from(f), size+1))
	if _, err := io.Copy(f, in); err != nil {
		return fmt.Errorf("store blob %s: %w", d, err)
	}
	switch got := in.digest(); {
	case in.n > size:
		return &CorruptError{Blob: d, Err: fmt.Errorf("more than %d bytes came for it", size)}
	case in.n < size:
		return &CorruptError{Blob: d, Err: fmt.Errorf("%d of %d bytes came for it", in.n, size)}
	case got != d:
		return &CorruptError{Blob: d, Err: fmt.Errorf("the %d bytes that came for it hash to %s", in.n, got)}
	}
	if err := s.publish(f, d); err != nil {
		return fmt.Errorf("store blob %s: %w", d, err)
	}
	return nil
}

// KeepBlob is CheckBlob for a blob that is about to be used: under a lease it
// also keeps it from being collected.
func (s *Store) KeepBlob(ctx context.Context, d schemas.Digest, size int64) error {
	have, err := s.haveBlob(d, size)
	if err == nil && !have {
		err = fmt.Errorf("blob %s of %d bytes: %w", d, size, fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	return s.CheckBlob(ctx, d, size)
}

// AddRun makes a run of which every blob is stored one of this store, under the
// tags given: manifest, then index, as Seal does. Blobs are checked by size and
// documents by digest and shape; their content was checked when it was stored.
// The results of its stages are reused from then on like those of any other run.
func (s *Store) AddRun(ctx context.Context, manifest []byte, tags ...string) (schemas.Digest, error) {
	d := schemas.DigestOf(manifest)
	fail := func(err error) (schemas.Digest, error) { return "", fmt.Errorf("add run %s: %w", d.Short(), err) }
	for _, t := range tags {
		if err := CheckTag(t); err != nil {
			return fail(err)
		}
	}
	blobs, err := ManifestBlobs(manifest)
	if err != nil {
		return fail(err)
	}
	for _, b := range blobs {
		have, err := s.haveBlob(b.Digest, b.Size)
		if err == nil && !have {
			err = fmt.Errorf("blob %s of %d bytes: %w", b.Digest, b.Size, fs.ErrNotExist)
		}
		if err != nil {
			return fail(err)
		}
	}
	if err := s.syncBlobs(); err != nil {
		return fail(err)
	}
	if _, err := s.putBytes(manifest); err != nil {
		return fail(err)
	}
	run, err := s.Run(ctx, d)
	if err != nil {
		return fail(err)
	}
	// What the index says of a run comes from its config, never from whoever sent
	// the manifest: an annotation could be a tag.
	notes := runAnnotations(run.Config)
	if !maps.Equal(run.Manifest.Annotations, notes) {
		return fail(errors.New("the manifest's annotations are not those that its config gives"))
	}
	if err := s.enterRecords(ctx, run); err != nil {
		return fail(err)
	}
	desc, err := descriptor(mediaManifest, d, int64(len(manifest)), "")
	if err != nil {
		return fail(err)
	}
	desc.ArtifactType, desc.Annotations = ArtifactType, notes
	err = s.updateIndex(func(x *v1.IndexManifest) error {
		for _, t := range append([]string{""}, tags...) {
			if err := addRun(x, *desc.DeepCopy(), t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	return d, nil
}

// SourcesOf lists the source runs that the stored config of a run names.
func (l *Layout) SourcesOf(config BlobRef) ([]schemas.Digest, error) {
	b, err := l.readBlob(config.Digest, maxDocBytes)
	if err != nil {
		return nil, err
	}
	var run schemas.Run
	if err := decodeStrict(b, &run); err != nil {
		return nil, fmt.Errorf("config %s: %w", config.Digest.Short(), err)
	}
	var list []schemas.Digest
	for _, s := range run.Sources {
		if !s.Digest.Valid() {
			return nil, fmt.Errorf("config %s: source run %q is no digest", config.Digest.Short(), string(s.Digest))
		}
		list = append(list, s.Digest)
	}
	return list, nil
}

// HasRun says whether the index lists the run.
func (l *Layout) HasRun(ctx context.Context, run schemas.Digest) bool {
	runs, err := l.Runs(ctx)
	if err != nil {
		return false
	}
	for _, r := range runs {
		if r.Digest == run {
			return true
		}
	}
	return false
}
