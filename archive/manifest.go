package archive

import (
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"assay/schemas"
)

// parseManifest reads a run's manifest and checks its shape.
func parseManifest(b []byte) (v1.Manifest, error) {
	var m v1.Manifest
	if len(b) > maxManifestBytes {
		return m, fmt.Errorf("manifest: %d bytes, more than the limit of %d", len(b), maxManifestBytes)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	switch {
	case m.SchemaVersion != 2 || string(m.MediaType) != mediaManifest:
		return m, fmt.Errorf("manifest: schemaVersion %d and mediaType %q are not those of an OCI image manifest", m.SchemaVersion, m.MediaType)
	case m.ArtifactType != ArtifactType:
		return m, fmt.Errorf("manifest: artifactType is %q, want %q: it is no assay run", m.ArtifactType, ArtifactType)
	case string(m.Config.MediaType) != MediaConfig:
		return m, fmt.Errorf("manifest: config has media type %q, want %q", m.Config.MediaType, MediaConfig)
	case len(m.Layers) > maxLayers:
		return m, fmt.Errorf("manifest: %d layers, more than the limit of %d", len(m.Layers), maxLayers)
	}
	seen := map[schemas.Digest]bool{}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		digest := digestOf(d)
		switch {
		case !digest.Valid() || d.Size < 0:
			return m, fmt.Errorf("manifest: descriptor %q of %d bytes is not well formed", digest, d.Size)
		case seen[digest]:
			return m, fmt.Errorf("manifest: %s is listed twice", digest)
		case !knownMedia(string(d.MediaType)):
			return m, fmt.Errorf("manifest: %s has the unknown media type %q: it may come from a newer assay", digest, d.MediaType)
		}
		seen[digest] = true
	}
	for _, one := range []string{MediaReport, MediaExperiment, MediaSource, MediaFiles} {
		// A run that was not made from a file has no source.
		if n := len(layersOf(m, one)); n != 1 && (one != MediaSource || n > 1) {
			return m, fmt.Errorf("manifest: %d layers of type %s, want 1", n, one)
		}
	}
	return m, nil
}

func knownMedia(t string) bool {
	switch t {
	case MediaConfig, MediaReport, MediaExperiment, MediaSource, MediaFiles, MediaRecord, MediaPreimage,
		MediaTree, MediaPack, MediaPart, MediaPartZstd, MediaDocuments:
		return true
	}
	return false
}

func digestOf(d v1.Descriptor) schemas.Digest { return schemas.Digest(d.Digest.String()) }

func layersOf(m v1.Manifest, mediaType string) []v1.Descriptor {
	var out []v1.Descriptor
	for _, d := range m.Layers {
		if string(d.MediaType) == mediaType {
			out = append(out, d)
		}
	}
	return out
}

// descriptor describes a stored blob. title is how people know it.
func descriptor(mediaType string, d schemas.Digest, size int64, title string) (v1.Descriptor, error) {
	h, err := v1.NewHash(string(d))
	if err != nil {
		return v1.Descriptor{}, err
	}
	out := v1.Descriptor{MediaType: types.MediaType(mediaType), Digest: h, Size: size}
	if title != "" {
		out.Annotations = map[string]string{annotationTitle: title}
	}
	return out, nil
}
