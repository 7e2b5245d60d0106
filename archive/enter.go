package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sync/errgroup"

	"assay/internal/durable"
	"assay/schemas"
)

// enterRecords lists the records of a run that came from elsewhere in the record
// index, as storing them here would have done, so that their results are reused.
// Bundled documents are laid beside their bundle first, for a record whose tree
// has all its blobs here: those of a run whose packs were filled up are not.
func (s *Store) enterRecords(ctx context.Context, run *Run) error {
	lines, err := s.readRecordIndex()
	if err != nil {
		return err
	}
	listed := map[schemas.Digest]bool{}
	for _, l := range lines {
		listed[l.Digest] = true
	}
	docs := s.documentsOf(run.Manifest)
	var add []recordLine
	var disk errgroup.Group
	disk.SetLimit(publishing)
	for _, r := range run.Config.Records {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, disk.Wait())
		}
		ok, err := s.unbundle(docs, r, &disk)
		if err != nil {
			return errors.Join(err, disk.Wait())
		}
		if ok && !listed[r.Digest] {
			listed[r.Digest] = true
			add = append(add, lineOf(r.Digest, r.Record))
		}
	}
	if err := errors.Join(disk.Wait(), s.syncBlobs()); err != nil {
		return err
	}
	return s.appendRecordLines(add)
}

// unbundle makes sure that a record and what reusing it rests on are blobs of the
// store, and checks that the record is the one in the config. False says that it
// cannot be reused here.
func (s *Store) unbundle(docs *documents, r schemas.RunRecord, disk *errgroup.Group) (bool, error) {
	b, err := docs.read(r.Digest)
	if err != nil {
		return false, fmt.Errorf("record of %s: %w", r.Node, err)
	}
	if want, err := schemas.Encode(r.Record); err != nil || !bytes.Equal(b, want) {
		return false, &CorruptError{Blob: r.Digest, Err: fmt.Errorf("it is not the record of %s that the config has", r.Node)}
	}
	if _, err := s.blobSize(r.Digest); err == nil || len(docs.bundles) == 0 || !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	if whole, err := s.hasTree(docs, r.Record.Tree); err != nil || !whole {
		return false, err
	}
	for _, d := range []schemas.Digest{r.Record.Tree, r.Record.Key.Preimage(), r.Digest} {
		if !d.Valid() {
			continue // it has no tree, or no key
		}
		b, err := docs.read(d)
		if err != nil {
			return false, fmt.Errorf("record of %s: %w", r.Node, err)
		}
		w, err := s.newBlob()
		if err != nil {
			return false, err
		}
		if _, err := w.Write(b); err != nil {
			w.abort()
			return false, err
		}
		if _, err := w.publishLater(disk); err != nil {
			return false, err
		}
	}
	return true, nil
}

// hasTree says whether every blob that a tree names is here.
func (s *Store) hasTree(docs *documents, d schemas.Digest) (bool, error) {
	if d == "" {
		return true, nil
	}
	b, err := docs.read(d)
	if err != nil {
		return false, err
	}
	var t struct {
		Blobs []schemas.Blob `json:"blobs"`
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return false, fmt.Errorf("tree %s: %w", d, err)
	}
	for _, x := range t.Blobs {
		if size, err := s.blobSize(x.Digest); err != nil || size != x.Size {
			return false, nil
		}
	}
	return true, nil
}

func (s *Store) appendRecordLine(line recordLine) error {
	return s.appendRecordLines([]recordLine{line})
}

// appendRecordLines writes all lines or, torn by a crash, the first of them.
func (s *Store) appendRecordLines(lines []recordLine) error {
	var text []byte
	for _, l := range lines {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		if len(b) > maxRecordLine {
			return fmt.Errorf("its index line has %d bytes, more than the limit of %d: shorten the names", len(b), maxRecordLine)
		}
		text = append(append(text, b...), '\n')
	}
	if len(text) == 0 {
		return nil
	}
	unlock, err := durable.Lock(s.path(recordLockName))
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	f, err := appendPlain(s.path(recordIndexName))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.AppendLine(text); err != nil {
		return err
	}
	return f.Sync()
}
