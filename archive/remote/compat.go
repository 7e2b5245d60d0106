package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"assay/archive"
	"assay/schemas"
)

// For registries that take images only, a run travels in a wrapper: an image
// manifest without artifactType, with an image config, whose first layer is the
// run's own manifest, byte for byte, and whose other layers are the blobs that
// it names. An annotation and a label give the run's digest. Whoever pulls reads the
// wrapper only to find the run's manifest: the run and its digest are the same
// as without. The media types of a wrapper are those that such registries take,
// and say nothing about the content.

const (
	mediaLayer     = "application/vnd.oci.image.layer.v1.tar"
	mediaLayerZstd = "application/vnd.oci.image.layer.v1.tar+zstd"

	mediaDocker       = "application/vnd.docker.distribution.manifest.v"
	mediaDockerList   = "application/vnd.docker.distribution.manifest.list.v2+json"
	mediaDockerConfig = "application/vnd.docker."
)

// wrap makes the wrapper of a run, and its config.
func wrap(runManifest []byte, blobs []archive.BlobRef) (wrapper, config []byte, err error) {
	digest := schemas.DigestOf(runManifest)
	layers := []descriptor{{MediaType: mediaLayer, Digest: digest, Size: int64(len(runManifest)), Annotations: map[string]string{"org.opencontainers.image.title": "assay-manifest.json"}}}
	for _, b := range blobs {
		media := mediaLayer
		if strings.HasSuffix(b.MediaType, ".tar+zstd") {
			media = mediaLayerZstd
		}
		layers = append(layers, descriptor{MediaType: media, Digest: b.Digest, Size: b.Size})
	}
	ids := make([]schemas.Digest, len(layers))
	for i, l := range layers {
		ids[i] = l.Digest
	}
	config, err = json.Marshal(map[string]any{
		"architecture": "unknown", "os": "unknown", "config": map[string]any{"Labels": map[string]string{archive.WrappedRun: string(digest)}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	if err != nil {
		return nil, nil, err
	}
	wrapper, err = json.Marshal(manifest{SchemaVersion: 2, MediaType: mediaManifest, Layers: layers,
		Config:      descriptor{MediaType: archive.MediaImageConfig, Digest: schemas.DigestOf(config), Size: int64(len(config))},
		Annotations: map[string]string{archive.WrappedRun: string(digest)}})
	if err == nil && len(wrapper) > archive.MaxManifestBytes {
		err = fmt.Errorf("the wrapper would have %d bytes, more than the limit of %d", len(wrapper), archive.MaxManifestBytes)
	}
	return wrapper, config, err
}

// ErrNotRun is wrapped by the error for an image, or another artifact, where a run is
// wanted.
var ErrNotRun = errors.New("not a run of assay")

// unwrap returns the run's manifest that a document of a registry holds: itself,
// or what it wraps. The wrapper is nil for a run that is not wrapped.
func (c *client) unwrap(ctx context.Context, doc document) ([]byte, *archive.Wrapper, error) {
	m, err := parse(doc.bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", doc.digest.Short(), err)
	}
	if strings.HasPrefix(doc.media, mediaDocker) || strings.HasPrefix(m.Config.MediaType, mediaDockerConfig) {
		return nil, nil, fmt.Errorf("it is an image, %w", ErrNotRun)
	}
	w := archive.ParseWrapper(doc.bytes)
	if w == nil {
		if m.ArtifactType != archive.ArtifactType && m.Config.MediaType != archive.MediaConfig {
			return nil, nil, fmt.Errorf("it is an artifact of type %q, %w", clean(cmp.Or(m.ArtifactType, m.Config.MediaType), nil), ErrNotRun)
		}
		return doc.bytes, nil, nil
	}
	broken := func(format string, args ...any) error {
		return &archive.CorruptError{Blob: doc.digest, Err: fmt.Errorf("it is a wrapper: "+format+": push the run again from a store that has it", args...)}
	}
	said := m.Annotations[archive.WrappedRun] != ""
	if w.Config.Size > archive.MaxManifestBytes {
		return nil, nil, broken("its config has %d bytes, more than the limit of %d", w.Config.Size, archive.MaxManifestBytes)
	}
	config, err := c.fetchSmall(ctx, w.Config)
	if err != nil && !said && corrupt(err) {
		return nil, nil, fmt.Errorf("it is an image, %w, as far as can be seen: the registry does not have its config, or has it damaged", ErrNotRun)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("config of image %s: %w", doc.digest.Short(), err)
	}
	ok, err := w.Learn(config)
	if err != nil {
		return nil, nil, broken("%w", err)
	}
	if !ok {
		return nil, nil, fmt.Errorf("it is an image, %w", ErrNotRun)
	}
	b, err := c.fetchWrapped(ctx, w)
	if errors.Is(err, errBadWrapper) {
		return nil, nil, broken("%w", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("wrapped manifest: %w", err)
	}
	return b, w, nil
}

var errBadWrapper = errors.New("the wrapped manifest cannot be in it")

// fetchWrapped reads the manifest of the run that w wraps. How long it is only
// its layer tells, when another tool has not compressed it.
func (c *client) fetchWrapped(ctx context.Context, w *archive.Wrapper) ([]byte, error) {
	run := archive.BlobRef{Digest: w.Run, Size: archive.MaxManifestBytes}
	layer, err := w.Layer(run)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadWrapper, err)
	}
	if layer.Size > archive.MaxManifestBytes {
		return nil, fmt.Errorf("%w: it would have %d bytes, more than the limit of %d", errBadWrapper, layer.Size, archive.MaxManifestBytes)
	}
	d := &download{c: c, blob: layer}
	defer d.close()
	plain, err := archive.Unpack(layer, run, d.reader(ctx))
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	b, err := io.ReadAll(io.LimitReader(plain, archive.MaxManifestBytes+1))
	if err != nil {
		return nil, err
	}
	if got := schemas.DigestOf(b); got != w.Run {
		return nil, &archive.CorruptError{Blob: w.Run, Err: fmt.Errorf("registry %s sent %d bytes that hash to %s", c.repo.RegistryStr(), len(b), got)}
	}
	return b, nil
}

// fetchSmall reads a blob into memory.
func (c *client) fetchSmall(ctx context.Context, b archive.BlobRef) ([]byte, error) {
	d := &download{c: c, blob: b}
	defer d.close()
	data, err := io.ReadAll(io.LimitReader(d.reader(ctx), b.Size+1))
	if err != nil {
		return nil, err
	}
	if got := schemas.DigestOf(data); int64(len(data)) != b.Size || got != b.Digest {
		return nil, &archive.CorruptError{Blob: b.Digest, Err: fmt.Errorf("registry %s sent %d bytes that hash to %s", c.repo.RegistryStr(), len(data), got)}
	}
	return data, nil
}

// memory is a source of blobs that are not stored.
type memory map[schemas.Digest][]byte

func (m memory) OpenBlob(d schemas.Digest, offset int64) (io.ReadCloser, int64, error) {
	b, ok := m[d]
	if !ok || offset > int64(len(b)) {
		return nil, 0, errors.New("no such blob")
	}
	return io.NopCloser(strings.NewReader(string(b[offset:]))), int64(len(b)), nil
}

// standIn is the tag that every pushed run gets: registries drop what has none,
// and a wrapped run is found by it although the wrapper has another digest. (The
// plain form of a digest as a tag belongs to referrers.)
func standIn(run schemas.Digest) string { return "run-" + run.Hex() }

// find fetches the manifest of the run that ref names, and how it is wrapped.
func (c *client) find(ctx context.Context, ref Reference) ([]byte, *archive.Wrapper, error) {
	doc, err := c.locate(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	return c.open(ctx, ref, doc)
}

// locate fetches what ref names: the run's manifest or its wrapper.
func (c *client) locate(ctx context.Context, ref Reference) (document, error) {
	doc, err := c.getManifest(ctx, ref.manifest())
	if status(err) == http.StatusNotFound && ref.Digest != "" {
		if wrapped, werr := c.getManifest(ctx, standIn(ref.Digest)); werr == nil {
			doc, err = wrapped, nil
		}
	}
	return doc, err
}

// open returns the run's manifest from what was located.
func (c *client) open(ctx context.Context, ref Reference, doc document) ([]byte, *archive.Wrapper, error) {
	var x index
	if json.Unmarshal(doc.bytes, &x) == nil && (doc.media == mediaIndex || x.MediaType == mediaIndex || doc.media == mediaDockerList || x.MediaType == mediaDockerList) {
		return nil, nil, fmt.Errorf("it is an image index, %w", ErrNotRun)
	}
	b, w, err := c.unwrap(ctx, doc)
	if err != nil {
		return nil, nil, err
	}
	got := schemas.DigestOf(b)
	if ref.Digest != "" && got != ref.Digest && doc.digest != ref.Digest {
		return nil, nil, &archive.CorruptError{Blob: ref.Digest, Err: fmt.Errorf("registry %s has %s under its name", c.repo.RegistryStr(), got)}
	}
	return b, w, nil
}
