package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"assay/schemas"
)

// BlobSource gives the bytes of blobs that do not lie in files.
type BlobSource interface {
	// OpenBlob opens a blob and says how many bytes it has there; fs.ErrNotExist
	// when there is none. The bytes are not checked. An error that says nothing
	// about the blob wraps ErrUnreachable.
	OpenBlob(d schemas.Digest) (io.ReadCloser, int64, error)
}

// ErrUnreachable is wrapped when blobs could not be asked for. They may be whole.
var ErrUnreachable = errors.New("cannot be reached")

// LayoutOf is a layout with one run whose blobs, its manifest among them, come
// from src. Nothing is read before it is needed, and nothing is believed: all
// methods check what they read as they do for a layout of files.
func LayoutOf(name string, src BlobSource, run schemas.Digest) *Layout {
	return &Layout{src: blobSource{src, run}, name: name}
}

// Ref is a resolved reference to a run of this layout.
func (l *Layout) Ref(name string, run schemas.Digest) Ref {
	return Ref{Name: name, Digest: run, Place: l.name, layout: l}
}

type blobSource struct {
	blobs BlobSource
	run   schemas.Digest
}

func (s blobSource) open(name string) (io.ReadCloser, int64, error) {
	if name == indexName {
		return s.index()
	}
	hex, ok := strings.CutPrefix(name, blobsDir+"/")
	if d := schemas.Digest("sha256:" + hex); ok && d.Valid() {
		return s.blobs.OpenBlob(d)
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (s blobSource) index() (io.ReadCloser, int64, error) {
	r, size, err := s.blobs.OpenBlob(s.run)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	raw, err := readBounded(r, size, maxManifestBytes, "the manifest")
	if err != nil {
		return nil, 0, err
	}
	d, err := runDescriptor(s.run, raw)
	if err != nil {
		return nil, 0, err
	}
	b, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{d}})
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), err
}

// runDescriptor describes a run's manifest as an index does; one that cannot be
// read has no annotations.
func runDescriptor(run schemas.Digest, raw []byte) (v1.Descriptor, error) {
	d, err := descriptor(mediaManifest, run, int64(len(raw)), "")
	if err != nil {
		return d, err
	}
	d.ArtifactType, d.Annotations = ArtifactType, map[string]string{}
	if m, err := parseManifest(raw); err == nil {
		for k, v := range m.Annotations {
			d.Annotations[k] = v
		}
	}
	return d, nil
}
