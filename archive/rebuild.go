package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"

	"assay/internal/durable"
	"assay/schemas"
)

// Rebuild makes the record index anew from the blobs: every blob that is a
// stage record, oldest first by the time it ended. It loses nothing that can be
// read and changes no run. It returns the number of records.
func (s *Store) Rebuild(ctx context.Context) (int, error) {
	unlock, err := durable.Lock(s.path(recordLockName))
	if err != nil {
		return 0, fmt.Errorf("rebuild record index: %w", err)
	}
	defer func() { _ = unlock() }()
	found, err := s.findRecords(ctx)
	if err != nil {
		return 0, fmt.Errorf("rebuild record index: %w", err)
	}
	var out bytes.Buffer
	for _, r := range found {
		b, err := json.Marshal(lineOf(r.Digest, r.Record))
		if err != nil {
			return 0, fmt.Errorf("rebuild record index: %w", err)
		}
		out.Write(append(b, '\n'))
	}
	if err := durable.WriteFile(s.path(recordIndexName), out.Bytes(), 0o644); err != nil {
		return 0, fmt.Errorf("rebuild record index: %w", err)
	}
	return len(found), nil
}

func (s *Store) findRecords(ctx context.Context) ([]schemas.StoredRecord, error) {
	names, err := os.ReadDir(s.path(blobsDir))
	if err != nil {
		return nil, err
	}
	var found []schemas.StoredRecord
	for _, n := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d := schemas.Digest("sha256:" + n.Name())
		if !d.Valid() || !s.mayBeRecord(d) {
			continue
		}
		rec, err := s.readRecord(d)
		var corrupt *CorruptError
		switch {
		case errors.As(err, &corrupt), errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		found = append(found, schemas.StoredRecord{Digest: d, Record: rec})
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].Record.EndedAt.Before(found[j].Record.EndedAt) })
	return found, nil
}

// mayBeRecord looks at the beginning: documents are canonical JSON objects, and
// a record's first field is its attempt.
func (s *Store) mayBeRecord(d schemas.Digest) bool {
	f, err := durable.OpenPlain(s.blobPath(d))
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 16)
	n, _ := f.Read(head)
	return strings.HasPrefix(string(head[:n]), `{"attempt":`)
}
