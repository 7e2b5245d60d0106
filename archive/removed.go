package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/internal/durable"
	"assay/schemas"
)

// removedName lists the runs that were taken out of the index and whose blobs may
// still be there, so that a repair that makes a lost index anew leaves them out.
// A removal is noted after the index was replaced, and taken back before a run is
// listed again: whatever is cut short, no run is left out that was not removed.
const removedName = "assay/removed.jsonl"

// removalLine is one line; the last one about a run counts.
type removalLine struct {
	Run     schemas.Digest `json:"run"`
	ID      string         `json:"id,omitempty"`
	Removed bool           `json:"removed"`
	At      time.Time      `json:"at"`
}

// removals are the runs that were removed and not listed again. A line that cannot
// be read says nothing.
func (s *Store) removals() (map[schemas.Digest]removalLine, error) {
	b, err := readPlain(s.path(removedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[schemas.Digest]removalLine{}
	for line := range bytes.Lines(b) {
		var l removalLine
		if json.Unmarshal(line, &l) != nil || !l.Run.Valid() {
			continue
		}
		if delete(out, l.Run); l.Removed {
			out[l.Run] = l
		}
	}
	return out, nil
}

// noteRemovals appends lines. The index is locked.
func (s *Store) noteRemovals(lines []removalLine) error {
	if len(lines) == 0 {
		return nil
	}
	var text []byte
	for _, l := range lines {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		text = append(append(text, b...), '\n')
	}
	f, err := appendPlain(s.path(removedName))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.AppendLine(text); err != nil {
		return err
	}
	return f.Sync()
}

// indexChange says which runs a change of the index takes out and puts in.
func indexChange(before map[schemas.Digest]string, x v1.IndexManifest) (gone []removalLine, added []schemas.Digest) {
	now := time.Now().UTC()
	after := runIDs(x)
	for d, id := range before {
		if _, there := after[d]; !there {
			gone = append(gone, removalLine{d, id, true, now})
		}
	}
	for d := range after {
		if _, there := before[d]; !there {
			added = append(added, d)
		}
	}
	return gone, added
}

// runIDs are the runs of an index.
func runIDs(x v1.IndexManifest) map[schemas.Digest]string {
	out := map[schemas.Digest]string{}
	for _, d := range x.Manifests {
		if d.ArtifactType == ArtifactType {
			out[digestOf(d)] = d.Annotations[annotationRun]
		}
	}
	return out
}

// takeBack notes that runs that were removed are about to be listed again.
func (s *Store) takeBack(runs []schemas.Digest) error {
	if len(runs) == 0 {
		return nil
	}
	removed, err := s.removals()
	if err != nil {
		return err
	}
	var lines []removalLine
	for _, d := range runs {
		if l, ok := removed[d]; ok {
			lines = append(lines, removalLine{Run: d, ID: l.ID, At: time.Now().UTC()})
		}
	}
	return s.noteRemovals(lines)
}

// pruneRemovals forgets removed runs whose manifests are collected.
func (s *Store) pruneRemovals() error {
	unlock, err := durable.Lock(s.path(indexLockName))
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	removed, err := s.removals()
	if err != nil || removed == nil {
		return err
	}
	var out bytes.Buffer
	for d, l := range removed {
		if _, err := os.Lstat(s.blobPath(d)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		out.Write(append(b, '\n'))
	}
	if out.Len() == 0 {
		return durable.Remove(s.path(removedName))
	}
	return durable.WriteFile(s.path(removedName), out.Bytes(), 0o644)
}
