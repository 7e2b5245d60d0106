package archive

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"assay/schemas"
)

const (
	recordIndexName = "assay/records/index.jsonl"
	recordLockName  = "assay/records/lock"
	maxRecordLine   = 1 << 16
)

// recordLine is one line of the record index. It can be rebuilt from the record.
type recordLine struct {
	Digest     schemas.Digest `json:"digest"`
	Key        schemas.Key    `json:"key,omitempty"`
	Experiment string         `json:"experiment"`
	Stage      string         `json:"stage"`
	Run        string         `json:"run"`
}

// recordIndex is what has been read of the record index so far.
type recordIndex struct {
	mu     sync.Mutex
	file   fs.FileInfo
	offset int64
	lines  []recordLine
	seen   map[schemas.Digest]bool
}

// PutRecord stores a record and, when it has a key, the key's preimage, whose
// hash must be the key. What the record names must be stored already.
func (s *Store) PutRecord(ctx context.Context, rec schemas.StageRecord, preimage []byte) (schemas.Digest, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	fail := func(err error) (schemas.Digest, error) {
		return "", fmt.Errorf("store record of %s: %w", rec.Node, err)
	}
	if rec.Tree != "" {
		if _, err := s.blobSize(rec.Tree); err != nil {
			return fail(fmt.Errorf("its tree is not stored: %w", err))
		}
	}
	if rec.Key != "" {
		if got := schemas.DigestOf(preimage); got.Hex() != rec.Key.Hex() || !rec.Key.Valid() {
			return fail(fmt.Errorf("the preimage hashes to %s, the key is %s", got, rec.Key))
		}
		if _, err := s.putBytes(preimage); err != nil {
			return fail(err)
		}
	}
	b, err := schemas.Encode(rec)
	if err != nil {
		return fail(err)
	}
	d, err := s.putBytes(b)
	if err != nil {
		return fail(err)
	}
	if err := s.appendRecordLine(lineOf(d, rec)); err != nil {
		return fail(err)
	}
	return d, nil
}

func lineOf(d schemas.Digest, rec schemas.StageRecord) recordLine {
	return recordLine{Digest: d, Key: rec.Key, Experiment: rec.Experiment, Stage: rec.Stage, Run: rec.Run}
}

// RecordsByKey lists every record of a key, oldest first. Records whose blob is
// missing or corrupt are left out: `verify` names them.
func (s *Store) RecordsByKey(ctx context.Context, key schemas.Key) ([]schemas.StoredRecord, error) {
	list, err := s.records(ctx, "of "+key.Short(), func(l recordLine) bool { return l.Key == key && key != "" })
	if err == nil {
		err = s.freshenRecords(list)
	}
	return list, err
}

// RecordsByStage lists every record of a stage of an experiment, newest first.
func (s *Store) RecordsByStage(ctx context.Context, experiment, stage string) ([]schemas.StoredRecord, error) {
	list, err := s.records(ctx, "of "+experiment+"/"+stage, func(l recordLine) bool { return l.Experiment == experiment && l.Stage == stage })
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list, err
}

func (s *Store) records(ctx context.Context, what string, want func(recordLine) bool) ([]schemas.StoredRecord, error) {
	lines, err := s.readRecordIndex()
	if err != nil {
		return nil, fmt.Errorf("read records %s: %w", what, err)
	}
	var sealed map[string]bool
	var out []schemas.StoredRecord
	for _, l := range lines {
		if !want(l) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if sealed == nil {
			if sealed, err = s.sealedRuns(); err != nil {
				return nil, fmt.Errorf("read records %s: %w", what, err)
			}
		}
		rec, err := s.readRecord(l.Digest)
		var corrupt *CorruptError
		if errors.As(err, &corrupt) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read records %s: %w", what, err)
		}
		if want(lineOf(l.Digest, rec)) {
			out = append(out, schemas.StoredRecord{Digest: l.Digest, Record: rec, Sealed: sealed[rec.Run]})
		}
	}
	return out, nil
}

func (l *Layout) readRecord(d schemas.Digest) (schemas.StageRecord, error) {
	var rec schemas.StageRecord
	b, err := l.readBlob(d, maxDocBytes)
	if err != nil {
		return rec, err
	}
	if err := decodeStrict(b, &rec); err != nil || rec.Schema != schemas.StageRecordV1 {
		return rec, &CorruptError{Blob: d, Err: fmt.Errorf("is no stage record: schema %q, %v", rec.Schema, err)}
	}
	return rec, nil
}

// Preimage returns the stored preimage of a key; fs.ErrNotExist when there is none.
func (s *Store) Preimage(_ context.Context, key schemas.Key) ([]byte, error) {
	b, err := s.readBlob(key.Preimage(), maxDocBytes)
	if err != nil {
		return nil, fmt.Errorf("preimage of %s: %w", key, err)
	}
	return b, nil
}

// readRecordIndex returns all lines, reading only what was appended since last
// time. Torn and foreign lines are skipped: one must not hide the others.
func (s *Store) readRecordIndex() ([]recordLine, error) {
	x := &s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	f, err := openPlain(s.path(recordIndexName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if x.file == nil || !os.SameFile(x.file, info) || info.Size() < x.offset {
		x.offset, x.lines, x.seen = 0, nil, map[schemas.Digest]bool{}
	}
	x.file = info
	if _, err := f.Seek(x.offset, io.SeekStart); err != nil {
		return nil, err
	}
	err = x.take(bufio.NewReaderSize(f, maxRecordLine))
	return x.lines, err
}

func (x *recordIndex) take(r *bufio.Reader) error {
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil // a line without its end is torn, or being written
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		x.offset += int64(len(line))
		var l recordLine
		if json.Unmarshal(bytes.TrimSpace(line), &l) != nil || !l.Digest.Valid() || x.seen[l.Digest] {
			continue
		}
		x.seen[l.Digest] = true
		x.lines = append(x.lines, l)
	}
}
