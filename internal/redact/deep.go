package redact

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Limits of a look into compressed content: what is deeper or longer is not
// looked at, as a bomb must not keep a run from ending.
const (
	maxDepth    = 4
	maxUnpacked = 4 << 30
	maxZipBytes = 256 << 20
)

// FindDeep is Find, and looks into gzip, zlib, zstd, bzip2 and zip too, also where
// one holds another. What cannot be unpacked has been looked at as it is.
func (s *Secrets) FindDeep(r io.ReadSeeker) (string, error) {
	if s.Empty() {
		return "", nil
	}
	mark, err := s.Find(r)
	if err != nil || mark != "" {
		return mark, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	return s.findPacked(bufio.NewReader(r), 0), nil
}

// findPacked looks into in when its beginning says that it is compressed.
func (s *Secrets) findPacked(in *bufio.Reader, depth int) string {
	if depth >= maxDepth {
		return ""
	}
	head, _ := in.Peek(4) // shorter content is none of these
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		if gz, err := gzip.NewReader(in); err == nil {
			return s.findWithin(gz, depth)
		}
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		if dec, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20)); err == nil {
			defer dec.Close()
			return s.findWithin(dec, depth)
		}
	case bytes.HasPrefix(head, []byte("BZh")):
		return s.findWithin(bzip2.NewReader(in), depth)
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return s.findInZip(in, depth)
	case len(head) > 1 && head[0] == 0x78 && (uint(head[0])<<8|uint(head[1]))%31 == 0:
		if z, err := zlib.NewReader(in); err == nil {
			return s.findWithin(z, depth)
		}
	}
	return ""
}

// findWithin looks at unpacked content and, in the same pass, into what it holds.
func (s *Secrets) findWithin(r io.Reader, depth int) string {
	inner, feed := io.Pipe()
	deep := make(chan string, 1)
	go func() {
		mark := s.findPacked(bufio.NewReader(inner), depth+1)
		_, _ = io.Copy(io.Discard, inner) // so that the other pass is never held up
		deep <- mark
	}()
	mark, err := s.Find(io.TeeReader(io.LimitReader(r, maxUnpacked), feed))
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		mark = "" // damaged: what came before was looked at
	}
	feed.Close()
	if inside := <-deep; mark == "" {
		mark = inside
	}
	return mark
}

func (s *Secrets) findInZip(in io.Reader, depth int) string {
	b, err := io.ReadAll(io.LimitReader(in, maxZipBytes))
	if err != nil {
		return ""
	}
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return ""
	}
	for _, f := range z.File {
		if mark, _ := s.Find(bytes.NewReader([]byte(f.Name))); mark != "" {
			return mark
		}
		r, err := f.Open()
		if err != nil {
			continue
		}
		mark := s.findWithin(r, depth)
		r.Close()
		if mark != "" {
			return mark
		}
	}
	return ""
}
