package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"assay/archive"
	"assay/schemas"
)

// For registries that take images only, a run travels in a wrapper: an image
// manifest without artifactType, with an image config, whose first layer is the
// run's own manifest, byte for byte, and whose other layers are the blobs that
// it names. An annotation gives the run's digest. Whoever pulls reads the
// wrapper only to find the run's manifest: the run and its digest are the same
// as without. The media types of a wrapper are those that such registries take,
// and say nothing about the content.

const (
	mediaImageConfig = "application/vnd.oci.image.config.v1+json"
	mediaLayer       = "application/vnd.oci.image.layer.v1.tar"
	mediaLayerZstd   = "application/vnd.oci.image.layer.v1.tar+zstd"
	wrappedRun       = "vnd.assay.wrapped.run"
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
		"architecture": "unknown", "os": "unknown", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	if err != nil {
		return nil, nil, err
	}
	wrapper, err = json.Marshal(manifest{SchemaVersion: 2, MediaType: mediaManifest, Layers: layers,
		Config:      descriptor{MediaType: mediaImageConfig, Digest: schemas.DigestOf(config), Size: int64(len(config))},
		Annotations: map[string]string{wrappedRun: string(digest)}})
	if err == nil && len(wrapper) > archive.MaxManifestBytes {
		err = fmt.Errorf("the wrapper would have %d bytes, more than the limit of %d", len(wrapper), archive.MaxManifestBytes)
	}
	return wrapper, config, err
}

// unwrap returns the run's manifest that a document of a registry holds: itself,
// or what it wraps.
func (c *client) unwrap(ctx context.Context, doc document) ([]byte, error) {
	m, err := parse(doc.bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doc.digest.Short(), err)
	}
	run := schemas.Digest(m.Annotations[wrappedRun])
	if m.ArtifactType != "" || run == "" {
		return doc.bytes, nil
	}
	if len(m.Layers) == 0 || m.Layers[0].Digest != run || !run.Valid() {
		return nil, fmt.Errorf("%s is the wrapper of run %s, but its first layer is not that", doc.digest.Short(), clean(string(run), nil))
	}
	if m.Layers[0].Size > archive.MaxManifestBytes {
		return nil, fmt.Errorf("the wrapped manifest has %d bytes, more than the limit of %d", m.Layers[0].Size, archive.MaxManifestBytes)
	}
	b, err := c.fetchSmall(ctx, archive.BlobRef{Digest: run, Size: m.Layers[0].Size})
	if err != nil {
		return nil, fmt.Errorf("wrapped manifest: %w", err)
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

// find fetches the manifest of the run that ref names.
func (c *client) find(ctx context.Context, ref Reference) ([]byte, error) {
	doc, err := c.getManifest(ctx, ref.manifest())
	if status(err) == http.StatusNotFound && ref.Digest != "" {
		if wrapped, werr := c.getManifest(ctx, standIn(ref.Digest)); werr == nil {
			doc, err = wrapped, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if doc.media == mediaIndex || path.Base(doc.media) == "vnd.docker.distribution.manifest.list.v2+json" {
		return nil, fmt.Errorf("%s is an image index, not a run", ref)
	}
	b, err := c.unwrap(ctx, doc)
	if err != nil {
		return nil, err
	}
	got := schemas.DigestOf(b)
	if ref.Digest != "" && got != ref.Digest && doc.digest != ref.Digest {
		return nil, &archive.CorruptError{Blob: ref.Digest, Err: fmt.Errorf("registry %s has %s under its name", c.repo.RegistryStr(), got)}
	}
	return b, nil
}
