package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/internal/durable"
	"assay/schemas"
)

// indexSumName holds what index.json was when assay wrote it last. It is a hint:
// other tools may write index.json too, and then it says only that they did.
const indexSumName = "assay/index.sum"

// maxIndexSum bounds it.
const maxIndexSum = maxIndexBytes

// indexSum is written before index.json is replaced, so that it is right whatever
// is cut short.
type indexSum struct {
	// Written are the digests of index.json as it was about to be, and as it was.
	Written []schemas.Digest `json:"written"`
	// Tags are those of runs, as they were about to be.
	Tags map[string]schemas.Digest `json:"tags,omitempty"`
}

// replaceIndex writes index.json, which is locked, and notes what it is.
func (s *Store) replaceIndex(x v1.IndexManifest) error {
	sortIndex(x.Manifests)
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if len(b) > maxIndexBytes {
		return fmt.Errorf("index.json would have %d bytes, more than the limit of %d", len(b), maxIndexBytes)
	}
	if err := s.noteIndex(x, b); err != nil {
		return err
	}
	return durable.WriteFile(s.path(indexName), b, 0o644)
}

// noteIndex notes that index.json is about to be these bytes. What stands in the
// place of the note keeps nobody from writing the index.
func (s *Store) noteIndex(x v1.IndexManifest, next []byte) error {
	if errors.Is(durable.CheckPlain(s.path(indexSumName)), durable.ErrNotRegular) {
		return nil
	}
	note := indexSum{Written: []schemas.Digest{schemas.DigestOf(next)}, Tags: tagMap(x)}
	old, err := readLimited(s.path(indexName), maxIndexBytes)
	if err == nil {
		note.Written = append(note.Written, schemas.DigestOf(old))
	}
	b, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := durable.MkdirAll(s.path("assay")); err != nil {
		return err
	}
	return durable.WriteFile(s.path(indexSumName), append(b, '\n'), 0o644)
}

func tagMap(x v1.IndexManifest) map[string]schemas.Digest {
	tags := map[string]schemas.Digest{}
	for _, d := range x.Manifests {
		if tag := d.Annotations[annotationTag]; tag != "" && d.ArtifactType == ArtifactType {
			tags[tag] = digestOf(d)
		}
	}
	return tags
}

// indexChanged says that index.json is not what assay wrote, and which tags were
// others then. A store without the note, or with one that cannot be read, tells
// nothing.
func (s *Store) indexChanged() (changed bool, tags []string, err error) {
	b, err := readLimited(s.path(indexName), maxIndexBytes)
	if err != nil {
		return false, nil, err
	}
	raw, err := readLimited(s.path(indexSumName), maxIndexSum)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrNotRegular) {
		return false, nil, nil
	}
	var note indexSum
	if err != nil {
		return false, nil, err
	}
	if json.Unmarshal(raw, &note) != nil || len(note.Written) == 0 {
		return true, nil, nil
	}
	if slices.Contains(note.Written, schemas.DigestOf(b)) {
		return false, nil, nil
	}
	x, err := s.readIndex()
	if err != nil {
		return false, nil, err
	}
	now := tagMap(x)
	for _, tag := range slices.Sorted(maps.Keys(note.Tags)) {
		if now[tag] != note.Tags[tag] {
			tags = append(tags, fmt.Sprintf("%s of %s", tag, note.Tags[tag].Short()))
		}
	}
	return true, tags, nil
}

// notedTags gives runs of a rebuilt index the tags that the note names and that
// nothing else has given away; gone are those whose runs are not listed.
func (s *Store) notedTags(index *v1.IndexManifest) (noted, gone []string) {
	raw, err := readLimited(s.path(indexSumName), maxIndexSum)
	var note indexSum
	if err != nil || json.Unmarshal(raw, &note) != nil {
		return nil, nil
	}
	have := tagMap(*index)
	for _, tag := range slices.Sorted(maps.Keys(note.Tags)) {
		if _, given := have[tag]; given || CheckTag(tag) != nil {
			continue
		}
		h, err := v1.NewHash(string(note.Tags[tag]))
		if err == nil && isListed(*index, note.Tags[tag]) && setTag(index, tag, h) == nil {
			noted = append(noted, tag)
			continue
		}
		gone = append(gone, tag)
	}
	return noted, gone
}

func isListed(x v1.IndexManifest, run schemas.Digest) bool {
	return slices.ContainsFunc(x.Manifests, func(d v1.Descriptor) bool { return d.ArtifactType == ArtifactType && digestOf(d) == run })
}

// union is a and b without what is in less, sorted.
func union(a, b, less []string) []string {
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
	return slices.DeleteFunc(all, func(s string) bool { return slices.Contains(less, s) })
}
