package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/schemas"
)

// repack copies the files of small packs into fuller ones, so that a run of very
// many small trees fits a manifest. Trees keep pointing into their own packs;
// the file list is what says where a run's bytes are.
func (s *Store) repack(ctx context.Context, list schemas.Tree) (schemas.Tree, error) {
	var small []int
	var blobs []schemas.Blob
	packs := map[schemas.Digest]bool{}
	for _, b := range list.Blobs {
		if b.MediaType == MediaPack {
			packs[b.Digest] = true
		} else {
			blobs = append(blobs, b)
		}
	}
	for i, e := range list.Entries {
		if len(e.Parts) == 1 && packs[e.Parts[0].Blob] {
			small = append(small, i)
		}
	}
	entries := append([]schemas.TreeEntry(nil), list.Entries...)
	known := blobMap(list.Blobs)
	for len(small) > 0 {
		n, total := 0, int64(0)
		for n < len(small) && (n == 0 || total+tarCost(entries[small[n]].Path, entries[small[n]].Size) <= packLimitBytes-1024) {
			total += tarCost(entries[small[n]].Path, entries[small[n]].Size)
			n++
		}
		b, err := s.repackOne(ctx, known, entries, small[:n])
		if err != nil {
			return list, fmt.Errorf("pack anew: %w", err)
		}
		blobs, small = append(blobs, b), small[n:]
	}
	list.Entries, list.Blobs = entries, uniqueBlobs(blobs)
	return list, nil
}

// repackOne reads the old packs one after the other, holding the files of one
// new pack (at most packLimitBytes) in memory.
func (s *Store) repackOne(ctx context.Context, known map[schemas.Digest]schemas.Blob, entries []schemas.TreeEntry, take []int) (schemas.Blob, error) {
	chosen := make([]schemas.TreeEntry, len(take))
	at := map[string]int{}
	need := map[schemas.Digest]bool{}
	for i, t := range take {
		chosen[i] = entries[t]
		at[chosen[i].Path] = i
		need[chosen[i].Parts[0].Blob] = true
	}
	var old []schemas.Blob
	for d := range need {
		old = append(old, known[d])
	}
	content := make([]closingBuffer, len(take))
	err := s.readContent(ctx, chosen, old, func(e schemas.TreeEntry) (io.WriteCloser, error) { return &content[at[e.Path]], nil }, nil, nil)
	if err != nil {
		return schemas.Blob{}, err
	}
	p, err := s.newPack(MediaPack)
	if err != nil {
		return schemas.Blob{}, err
	}
	offsets := make([]int64, len(take))
	for i, e := range chosen {
		if offsets[i], err = p.add(e.Path, e.Executable, e.Size, &content[i]); err != nil {
			p.abort()
			return schemas.Blob{}, err
		}
	}
	b, err := p.commit()
	for i, t := range take {
		entries[t].Parts = []schemas.Part{{Blob: b.Digest, Offset: offsets[i], Length: entries[t].Size}}
	}
	return b, err
}

type closingBuffer struct{ bytes.Buffer }

func (*closingBuffer) Close() error { return nil }

// bundle writes documents into tars named by their digests. A very long one stays
// as it is.
func (s *Store) bundle(docs []docRef) ([]docRef, error) {
	sort.Slice(docs, func(i, j int) bool { return docs[i].digest < docs[j].digest })
	var out, long []docRef
	for _, d := range docs {
		size, err := s.blobSize(d.digest)
		if err != nil {
			return nil, fmt.Errorf("bundle documents: %w", err)
		}
		if size > maxDocBytes {
			long = append(long, d)
		}
	}
	docs = slices.DeleteFunc(docs, func(d docRef) bool { return slices.Contains(long, d) })
	for len(docs) > 0 {
		p, err := s.newPack(MediaDocuments)
		if err != nil {
			return nil, err
		}
		n := 0
		for n < len(docs) && (n == 0 || p.size < packTargetBytes) {
			b, err := s.readBlob(docs[n].digest, maxDocBytes)
			if err == nil {
				_, err = p.add(blobName(docs[n].digest), false, int64(len(b)), bytes.NewReader(b))
			}
			if err != nil {
				p.abort()
				return nil, fmt.Errorf("bundle documents: %w", err)
			}
			n++
		}
		b, err := p.commit()
		if err != nil {
			return nil, fmt.Errorf("bundle documents: %w", err)
		}
		out, docs = append(out, docRef{MediaDocuments, b.Digest, ""}), docs[n:]
	}
	return append(out, long...), nil
}

// documents finds the documents of a run: as blobs, or in its bundles.
type documents struct {
	l       *Layout
	bundles []v1.Descriptor
	found   map[schemas.Digest][]byte
	err     error
}

func (l *Layout) documentsOf(m v1.Manifest) *documents {
	return &documents{l: l, bundles: layersOf(m, MediaDocuments)}
}

// read returns the bytes of a document, checked against its digest.
func (d *documents) read(digest schemas.Digest) ([]byte, error) {
	b, err := d.l.readBlob(digest, maxDocBytes)
	if err != nil && errors.Is(err, fs.ErrNotExist) {
		return d.bundled(digest, err)
	}
	return b, err
}

// open is read for a document that may be long: its last Read fails when the bytes
// are not those of the digest.
func (d *documents) open(digest schemas.Digest) (io.ReadCloser, error) {
	r, _, err := d.l.openDoc(digest)
	if err != nil && errors.Is(err, fs.ErrNotExist) {
		b, err := d.bundled(digest, err)
		return io.NopCloser(&byteReader{b}), err
	}
	return r, err
}

// bundled looks for a document that is no blob of its own.
func (d *documents) bundled(digest schemas.Digest, missing error) ([]byte, error) {
	if len(d.bundles) == 0 {
		return nil, missing
	}
	if d.found == nil {
		d.found = map[schemas.Digest][]byte{}
		for _, desc := range d.bundles {
			d.err = errors.Join(d.err, d.unpack(desc))
		}
	}
	if b, ok := d.found[digest]; ok {
		return b, nil
	}
	return nil, errors.Join(missing, d.err)
}

func (d *documents) unpack(desc v1.Descriptor) error {
	raw, err := d.l.readBlob(digestOf(desc), maxDocBytes)
	if err != nil {
		return err
	}
	dec, err := newDecoder(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	defer dec.Close()
	return walkTar(io.LimitReader(dec, 2*maxDocBytes), func(h *tar.Header, r io.Reader) error {
		hex, ok := strings.CutPrefix(h.Name, blobsDir+"/")
		if !ok {
			return fmt.Errorf("%s is no document", h.Name)
		}
		b, err := readBounded(r, h.Size, maxDocBytes, h.Name)
		if err != nil {
			return err
		}
		digest := schemas.DigestOf(b)
		if digest.Hex() != hex {
			return &CorruptError{Blob: digestOf(desc), Path: h.Name, Err: fmt.Errorf("the document hashes to %s", digest)}
		}
		d.found[digest] = b
		return nil
	})
}
