package archive

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/schemas"
)

// A run that had to travel as an image lies in a wrapper: an image manifest whose
// first layer is the run's manifest and whose other layers are the run's blobs.
// The image config keeps the run's digest as a label and the digests of the blobs
// as diff_ids. Tools that copy images drop annotations and compress layers, but
// leave the config as it is: what a layer was follows from it.

// WrappedRun is the label, and the annotation, that holds a wrapped run's digest.
const WrappedRun = "vnd.assay.wrapped.run"

// MediaImageConfig is the type of a wrapper's config.
const MediaImageConfig = "application/vnd.oci.image.config.v1+json"

// Wrapper says where the parts of a wrapped run are.
type Wrapper struct {
	Run    schemas.Digest
	Config BlobRef
	layers []BlobRef
	at     map[schemas.Digest]BlobRef
	said   schemas.Digest // by the annotation
}

// ParseWrapper reads a manifest that may be a wrapper; nil when it is none. Learn
// must be given the config then, which may show that it is none either.
func ParseWrapper(manifest []byte) *Wrapper {
	var m v1.Manifest
	if len(manifest) > maxManifestBytes || json.Unmarshal(manifest, &m) != nil || m.ArtifactType != "" {
		return nil
	}
	if string(m.Config.MediaType) != MediaImageConfig {
		return nil
	}
	w := &Wrapper{Config: blobRef(m.Config), said: schemas.Digest(m.Annotations[WrappedRun])}
	for _, l := range m.Layers {
		w.layers = append(w.layers, blobRef(l))
	}
	return w
}

func blobRef(d v1.Descriptor) BlobRef { return BlobRef{string(d.MediaType), digestOf(d), d.Size} }

// Learn takes what the config says; false when the image wraps no run.
func (w *Wrapper) Learn(config []byte) (bool, error) {
	var c struct {
		Config struct {
			Labels map[string]string `json:"Labels"`
		} `json:"config"`
		RootFS struct {
			DiffIDs []schemas.Digest `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		if w.said == "" {
			return false, nil
		}
		return false, fmt.Errorf("config of a wrapper: %w", err)
	}
	if w.Run = schemas.Digest(c.Config.Labels[WrappedRun]); w.Run == "" {
		w.Run = w.said
	}
	ids := c.RootFS.DiffIDs
	switch {
	case w.Run == "":
		return false, nil
	case !w.Run.Valid():
		return false, errors.New("a wrapper names a run by what is no digest")
	case len(ids) != len(w.layers) || len(ids) == 0 || ids[0] != w.Run:
		return false, fmt.Errorf("it is the wrapper of run %s, but its first layer is not that, or its config names other layers", w.Run)
	}
	w.at = make(map[schemas.Digest]BlobRef, len(ids))
	for i, d := range ids {
		if l := w.layers[i]; !d.Valid() || !l.Digest.Valid() || l.Size < 0 {
			return false, fmt.Errorf("layer %d of the wrapper of run %s is not well formed", i, w.Run)
		}
		w.at[d] = w.layers[i]
	}
	return true, nil
}

// Layer is where a blob of the run lies. A nil wrapper wraps nothing: every blob
// is its own layer.
func (w *Wrapper) Layer(b BlobRef) (BlobRef, error) {
	if w == nil {
		return b, nil
	}
	l, ok := w.at[b.Digest]
	if !ok {
		return l, fmt.Errorf("the wrapper of run %s has no layer for blob %s", w.Run.Short(), b.Digest)
	}
	return l, nil
}

// Unpack gives the bytes of blob b from those of its layer, which another tool may
// have compressed. At most one byte more than b has comes out. It checks nothing:
// the digest of b does.
func Unpack(layer, b BlobRef, r io.Reader) (io.ReadCloser, error) {
	if layer.Digest == b.Digest {
		return io.NopCloser(r), nil
	}
	in := bufio.NewReader(r)
	head, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var out io.ReadCloser
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		out, err = gzip.NewReader(in)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, derr := newDecoder(in)
		if derr == nil {
			out = d.IOReadCloser()
		}
		err = derr
	default:
		err = errors.New("it is compressed in an unknown way")
	}
	if err != nil {
		return nil, &CorruptError{Blob: b.Digest, Err: fmt.Errorf("layer %s: %w", layer.Digest, err)}
	}
	return limited{io.LimitReader(out, b.Size+1), out}, nil
}

type limited struct {
	io.Reader
	c io.Closer
}

func (l limited) Close() error { return l.c.Close() }

// unwrapped is a layout in which wrapped runs look as if they were not.
type unwrapped struct {
	source
	index []byte
	runs  map[schemas.Digest]wrappedRun
	blobs map[schemas.Digest]wrappedBlob
}

type wrappedRun struct {
	manifest []byte
	err      error // why there is none
}

type wrappedBlob struct{ blob, layer BlobRef }

// unwrap looks for wrapped runs in a layout. One without, or whose index cannot be
// read, stays as it is.
func unwrap(src source) source {
	b, err := readAll(src, indexName, maxIndexBytes)
	if err != nil {
		return src
	}
	x, err := parseIndex(b)
	if err != nil {
		return src
	}
	u := &unwrapped{source: src, runs: map[schemas.Digest]wrappedRun{}, blobs: map[schemas.Digest]wrappedBlob{}}
	for i := range x.Manifests {
		if d := &x.Manifests[i]; d.ArtifactType == "" && string(d.MediaType) == mediaManifest {
			u.take(d)
		}
	}
	if len(u.runs) == 0 {
		return src
	}
	if u.index, err = json.Marshal(x); err != nil {
		return src
	}
	return u
}

// take makes the descriptor of a wrapper one of the run in it.
func (u *unwrapped) take(d *v1.Descriptor) {
	l := &Layout{src: u.source}
	b, err := l.readBlob(digestOf(*d), maxManifestBytes)
	if err != nil {
		return
	}
	w := ParseWrapper(b)
	if w == nil || w.Config.Size > maxManifestBytes {
		return
	}
	config, err := l.readBlob(w.Config.Digest, maxManifestBytes)
	if err != nil {
		return
	}
	if ok, err := w.Learn(config); err != nil || !ok {
		return
	}
	raw, err := u.manifest(w)
	u.runs[w.Run] = wrappedRun{raw, err}
	out, derr := runDescriptor(w.Run, raw)
	if derr != nil {
		return
	}
	if m, perr := parseManifest(raw); err == nil && perr == nil {
		for _, part := range append([]v1.Descriptor{m.Config}, m.Layers...) {
			if at, lerr := w.Layer(blobRef(part)); lerr == nil {
				u.blobs[digestOf(part)] = wrappedBlob{blobRef(part), at}
			}
		}
	}
	if tag := d.Annotations[annotationTag]; tag != "" {
		out.Annotations[annotationTag] = tag
	}
	*d = out
}

// manifest reads the wrapped run's manifest.
func (u *unwrapped) manifest(w *Wrapper) ([]byte, error) {
	want := BlobRef{Digest: w.Run, Size: maxManifestBytes}
	layer, err := w.Layer(want)
	if err != nil {
		return nil, err
	}
	r, _, err := u.source.open(blobName(layer.Digest))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	plain, err := Unpack(layer, want, r)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	return readBounded(plain, 0, maxManifestBytes, "the wrapped manifest")
}

func (u *unwrapped) open(name string) (io.ReadCloser, int64, error) {
	if name == indexName {
		return io.NopCloser(bytes.NewReader(u.index)), int64(len(u.index)), nil
	}
	hex, _ := strings.CutPrefix(name, blobsDir+"/")
	d := schemas.Digest("sha256:" + hex)
	if r, ok := u.runs[d]; ok {
		return io.NopCloser(bytes.NewReader(r.manifest)), int64(len(r.manifest)), r.err
	}
	b, ok := u.blobs[d]
	if !ok || b.layer.Digest == d {
		return u.source.open(name)
	}
	r, _, err := u.source.open(blobName(b.layer.Digest))
	if err != nil {
		return nil, 0, err
	}
	plain, err := Unpack(b.layer, b.blob, r)
	if err != nil {
		return nil, 0, errors.Join(err, r.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{plain, both{plain, r}}, b.blob.Size, nil
}

type both struct{ a, b io.Closer }

func (c both) Close() error { return errors.Join(c.a.Close(), c.b.Close()) }
