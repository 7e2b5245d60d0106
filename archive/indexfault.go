package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"assay/schemas"
)

// indexFault is what index.json says of a manifest and the blobs deny.
type indexFault struct {
	blob schemas.Digest // "" for the index itself
	what []string
	// byHand says that the blobs do not tell what is right.
	byHand string
}

func (e indexFault) Error() string {
	if e.blob == "" {
		return strings.Join(e.what, "; ")
	}
	return "it contradicts the manifest: " + strings.Join(e.what, "; ")
}

// corrected is an index with everything in it that follows from the blobs as the
// blobs have it, and what was wrong. Tags, and the annotations of others, stay.
// Descriptors whose blobs are damaged or missing stay as they are.
func (s *Store) corrected(x v1.IndexManifest) (v1.IndexManifest, []indexFault, error) {
	var faults []indexFault
	if x.MediaType != "" && x.MediaType != types.OCIImageIndex {
		faults = append(faults, indexFault{what: []string{fmt.Sprintf("its media type is %q, want %q", x.MediaType, types.OCIImageIndex)}})
		x.MediaType = types.OCIImageIndex
	}
	x.Manifests = slices.Clone(x.Manifests)
	lost := &lostRuns{s: s}
	for i, d := range x.Manifests {
		want, err := s.describe(d)
		if errors.Is(err, fs.ErrNotExist) {
			want, err = lost.find(d)
		}
		if err != nil {
			return x, nil, err
		}
		if what := descriptorDiff(d, want); len(what) > 0 {
			faults = append(faults, indexFault{blob: digestOf(want), what: what})
			x.Manifests[i] = want
		}
	}
	faults = append(faults, correctSequence(x.Manifests)...)
	return x, append(faults, sameTags(x.Manifests)...), nil
}

// describe is a descriptor as its blob has it; as it is when the blob is damaged.
func (s *Store) describe(d v1.Descriptor) (v1.Descriptor, error) {
	raw, err := s.readBlob(digestOf(d), maxIndexBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	if err != nil {
		return d, nil //nolint:nilerr // the blob is at fault, which is told of it
	}
	want := *d.DeepCopy()
	want.Size = int64(len(raw))
	if m, err := parseManifest(raw); err == nil {
		want.MediaType, want.ArtifactType = types.MediaType(mediaManifest), ArtifactType
		if want.Annotations == nil {
			want.Annotations = map[string]string{}
		}
		maps.Copy(want.Annotations, m.Annotations)
		return want, nil
	}
	if m, ok := parseForeign(raw); ok {
		if m.MediaType != "" {
			want.MediaType = m.MediaType
		}
		if m.ArtifactType != "" && d.ArtifactType != "" {
			want.ArtifactType = m.ArtifactType
		}
	}
	return want, nil
}

func descriptorDiff(have, want v1.Descriptor) (what []string) {
	differs := func(name, a, b string) {
		if a != b {
			what = append(what, fmt.Sprintf("%s %q, want %q", name, a, b))
		}
	}
	differs("digest", have.Digest.String(), want.Digest.String())
	if have.Size != want.Size {
		what = append(what, fmt.Sprintf("%d bytes, the blob has %d", have.Size, want.Size))
	}
	differs("media type", string(have.MediaType), string(want.MediaType))
	differs("artifact type", have.ArtifactType, want.ArtifactType)
	for _, k := range slices.Sorted(maps.Keys(want.Annotations)) {
		differs("annotation "+k, have.Annotations[k], want.Annotations[k])
	}
	return what
}

// lostRuns finds the manifest of a run whose descriptor names a blob that is not
// there. Another descriptor may list it, rightly: a run has one for each tag.
type lostRuns struct {
	s  *Store
	by map[string][]v1.Descriptor // run id -> manifests
}

func (l *lostRuns) find(d v1.Descriptor) (v1.Descriptor, error) {
	id := d.Annotations[annotationRun]
	if id == "" {
		return d, nil
	}
	if l.by == nil {
		if err := l.read(); err != nil {
			return d, err
		}
	}
	if found := l.by[id]; len(found) == 1 && agree(d.Annotations, found[0].Annotations) {
		want := *d.DeepCopy()
		want.Digest = found[0].Digest
		return l.s.describe(want)
	}
	return d, nil
}

func (l *lostRuns) read() error {
	l.by = map[string][]v1.Descriptor{}
	removed, err := l.s.removals()
	if err != nil {
		return err
	}
	blobs, err := l.s.blobs(context.Background())
	if err != nil {
		return err
	}
	for _, b := range blobs {
		digest := b.digest
		h, err := v1.NewHash(string(digest))
		if _, gone := removed[digest]; err != nil || gone || l.s.sniff(digest) != kindManifest {
			continue
		}
		if m, err := l.s.manifestOf(digest); err == nil && l.s.hasAll(m) {
			id := m.Annotations[annotationRun]
			l.by[id] = append(l.by[id], v1.Descriptor{Digest: h, Annotations: m.Annotations})
		}
	}
	return nil
}

// correctSequence gives runs whose number cannot be one, or is another's, a place
// by the time they ended.
func correctSequence(list []v1.Descriptor) []indexFault {
	owner, number := map[int64]v1.Hash{}, map[v1.Hash]int64{}
	bad := map[v1.Hash]string{}
	for _, d := range list {
		text, given := d.Annotations[annotationSequence]
		if d.ArtifactType != ArtifactType || !given {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		switch have, twice := number[d.Digest]; {
		case err != nil || n <= 0:
			bad[d.Digest] = fmt.Sprintf("sequence %q is no number", text)
		case twice && have != n:
			bad[d.Digest] = fmt.Sprintf("sequence %d and %d", have, n)
		default:
			if other, taken := owner[n]; taken && other != d.Digest {
				bad[d.Digest] = fmt.Sprintf("sequence %d is that of %s too", n, other.Hex[:12])
			}
			owner[n], number[d.Digest] = d.Digest, n
		}
	}
	if len(bad) == 0 {
		return nil
	}
	var faults []indexFault
	for h, what := range bad {
		faults = append(faults, indexFault{blob: schemas.Digest(h.String()), what: []string{what}})
	}
	sort.Slice(faults, func(i, j int) bool { return faults[i].blob < faults[j].blob })
	renumber(list, bad, number)
	return faults
}

func renumber(list []v1.Descriptor, bad map[v1.Hash]string, number map[v1.Hash]int64) {
	var good, misplaced []v1.Descriptor
	seen := map[v1.Hash]bool{}
	for _, d := range list {
		if _, numbered := number[d.Digest]; d.ArtifactType != ArtifactType || seen[d.Digest] || !numbered && bad[d.Digest] == "" {
			continue
		}
		seen[d.Digest] = true
		if bad[d.Digest] != "" {
			misplaced = append(misplaced, d)
		} else {
			good = append(good, d)
		}
	}
	sort.SliceStable(good, func(i, j int) bool { return number[good[i].Digest] < number[good[j].Digest] })
	for _, d := range misplaced {
		at := len(good)
		for at > 0 && createdAt(good[at-1]).After(createdAt(d)) {
			at--
		}
		good = slices.Insert(good, at, d)
	}
	final := map[v1.Hash]string{}
	for i, d := range good {
		final[d.Digest] = strconv.Itoa(i + 1)
	}
	for i, d := range list {
		if n, ok := final[d.Digest]; ok && d.ArtifactType == ArtifactType {
			list[i].Annotations = maps.Clone(d.Annotations)
			list[i].Annotations[annotationSequence] = n
		}
	}
}

// sameTags finds names that several manifests have.
func sameTags(list []v1.Descriptor) []indexFault {
	owner := map[string]v1.Hash{}
	var faults []indexFault
	for _, d := range list {
		tag := d.Annotations[annotationTag]
		if other, taken := owner[tag]; tag != "" && taken && other != d.Digest {
			faults = append(faults, indexFault{what: []string{fmt.Sprintf("the tag %q names both %s and %s", tag, other.Hex[:12], d.Digest.Hex[:12])},
				byHand: "say which with `assay tag`"})
		}
		owner[tag] = d.Digest
	}
	return faults
}

// foreign is the manifest or index of another tool.
type foreign struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     types.MediaType `json:"mediaType"`
	ArtifactType  string          `json:"artifactType"`
	Config        *v1.Descriptor  `json:"config"`
	Layers        []v1.Descriptor `json:"layers"`
	Blobs         []v1.Descriptor `json:"blobs"`
	Manifests     []v1.Descriptor `json:"manifests"`
}

// mediaArtifact is an earlier form of manifests of anything.
const mediaArtifact = "application/vnd.oci.artifact.manifest.v1+json"

// isManifest says whether bytes are a manifest or an index as any tool, this one
// too, may write it: spaces and all.
func isManifest(raw []byte) bool {
	if !bytes.Contains(raw, []byte(`"schemaVersion"`)) && !bytes.Contains(raw, []byte(mediaArtifact)) {
		return false
	}
	var m foreign
	if json.Unmarshal(raw, &m) != nil {
		return false
	}
	return m.MediaType == mediaArtifact || m.SchemaVersion == 2 && (m.Config != nil && m.Layers != nil || m.Manifests != nil)
}

// parseForeign reads a manifest or an index of another tool.
func parseForeign(raw []byte) (foreign, bool) {
	var m foreign
	if !isManifest(raw) || json.Unmarshal(raw, &m) != nil || m.ArtifactType == ArtifactType {
		return m, false
	}
	return m, true
}

// kind is the media type; one that is left out follows from what is there.
func (m foreign) kind() types.MediaType {
	switch {
	case m.MediaType != "":
		return m.MediaType
	case m.Manifests != nil:
		return types.OCIImageIndex
	}
	return types.OCIManifestSchema1
}

// present says whether something that a foreign manifest names is in the store: a
// file of a run may look like one, and names nothing here.
func (s *Store) present(m foreign) bool {
	has := func(list []v1.Descriptor) bool {
		return slices.ContainsFunc(list, func(d v1.Descriptor) bool {
			_, err := s.blobSize(digestOf(d))
			return digestOf(d).Valid() && err == nil
		})
	}
	if m.Config != nil && has([]v1.Descriptor{*m.Config}) || has(m.Layers) || has(m.Blobs) {
		return true
	}
	for _, d := range m.Manifests { // gc must be able to read them all
		if _, err := s.blobSize(digestOf(d)); err != nil {
			return false
		}
	}
	return len(m.Manifests) > 0
}
