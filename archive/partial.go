package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// What has come of a long blob has a second name in downloadDir while the rest
// comes. A process that is killed leaves it there, and whoever fetches the blob next
// goes on from its end. Nothing in it is believed: all of it is hashed again with
// what comes after it. A file that nobody came back for goes after a day.
const (
	downloadDir = "assay/work/downloads"
	keptFor     = 24 * time.Hour
)

// PutBlobFrom is PutBlob for a blob that comes from far away. open gives its bytes
// from an offset on: it is called once or, when what was kept turns out to be
// wrong, twice.
func (s *Store) PutBlobFrom(ctx context.Context, d schemas.Digest, size int64, open func(offset int64) io.Reader) error {
	if !d.Valid() {
		return fmt.Errorf("store blob: %q is no digest", string(d))
	}
	part := s.path(downloadDir + "/" + d.Hex())
	had, err := s.putPart(ctx, d, size, part, open)
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		_ = durable.Remove(part)
		if had > 0 {
			_, err = s.putPart(ctx, d, size, part, open)
		}
	}
	if err == nil || errors.As(err, &corrupt) {
		_ = durable.Remove(part) // there may be none; one too many only takes room
	}
	return err
}

// putPart stores what was kept and what open gives after it, and says how much was
// kept.
func (s *Store) putPart(ctx context.Context, d schemas.Digest, size int64, part string, open func(offset int64) io.Reader) (had int64, err error) {
	var old io.Reader = eof{}
	if f, ferr := durable.OpenRegular(part); ferr == nil {
		defer f.Close()
		if info, serr := f.Stat(); serr == nil && info.Size() <= size {
			had, old = info.Size(), io.LimitReader(f, info.Size())
		}
	}
	return had, s.putBlob(ctx, d, size, func(f *durable.File) io.Reader {
		return io.MultiReader(old, &lateReader{open: func() io.Reader {
			s.keepPart(f, part)
			return open(had)
		}})
	})
}

// keepPart gives what has come its second name. It only saves time later, so a
// folder or file system without it does not stop anything.
func (s *Store) keepPart(f *durable.File, part string) {
	if err := durable.MkdirAll(s.path(downloadDir)); err != nil {
		return
	}
	if err := durable.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	_ = f.Link(part)
}

// SweepDownloads removes what an earlier process began to fetch and nobody came
// back for.
func (s *Store) SweepDownloads() {
	entries, err := os.ReadDir(s.path(downloadDir))
	if err != nil {
		return // mostly there is none
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keptFor {
			_ = durable.Remove(s.path(downloadDir + "/" + e.Name()))
		}
	}
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// lateReader opens what it reads when it is first read.
type lateReader struct {
	open func() io.Reader
	r    io.Reader
}

func (l *lateReader) Read(b []byte) (int, error) {
	if l.r == nil {
		l.r = l.open()
	}
	return l.r.Read(b)
}
