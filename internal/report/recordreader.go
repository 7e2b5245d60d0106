package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"assay/schemas"

	"github.com/klauspost/compress/zstd"
)

// Limits of one frame, compressed and not.
const (
	maxFrameBytes   = 80 << 20
	maxFrameContent = 64 << 20
)

// CorruptError says that a record log holds something that no crash of a writer
// explains.
type CorruptError struct {
	File   string
	Offset int64 // of the frame
	Line   int   // in the whole log, 0 when the frame itself is bad
	Err    error
}

func (e *CorruptError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("record log %s: line %d (frame at byte %d): %v", e.File, e.Line, e.Offset, e.Err)
	}
	return fmt.Sprintf("record log %s: frame at byte %d: %v", e.File, e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// RecordReader reads a log frame by frame; it holds one frame at a time.
type RecordReader struct {
	name    string
	in      *bufio.Reader
	close   io.Closer
	dec     *zstd.Decoder
	raw     []byte
	content []byte
	rest    []byte // unread lines of content
	offset  int64  // of the next frame
	start   int64  // of the frame in content
	line    int
	torn    bool
	err     error
}

// OpenRecords opens the log at path.
func OpenRecords(path string) (*RecordReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("record log: %w", err)
	}
	r, err := NewRecordReader(f, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.close = f
	return r, nil
}

// NewRecordReader reads a log from in; name stands for it in errors.
func NewRecordReader(in io.Reader, name string) (*RecordReader, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxFrameContent), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil, fmt.Errorf("record log %s: %w", name, err)
	}
	return &RecordReader{name: name, in: bufio.NewReaderSize(in, 64<<10), dec: dec}, nil
}

// Next returns the next record; io.EOF at the end of the log, also when its tail
// is torn (see Torn); *CorruptError for anything else that is wrong.
func (r *RecordReader) Next() (schemas.RequestRecord, error) {
	var rec schemas.RequestRecord
	if r.err != nil {
		return rec, r.err
	}
	for len(r.rest) == 0 {
		if err := r.nextFrame(); err != nil {
			r.err = err
			return rec, err
		}
	}
	line, rest, ended := bytes.Cut(r.rest, []byte("\n"))
	r.rest = rest
	r.line++
	err := errors.New("the frame ends within a line")
	if ended {
		err = decodeRecord(line, &rec)
	}
	if err != nil {
		r.err = &CorruptError{File: r.name, Offset: r.start, Line: r.line, Err: err}
		return schemas.RequestRecord{}, r.err
	}
	return rec, nil
}

// All iterates over the records; the first error ends it.
func (r *RecordReader) All() iter.Seq2[schemas.RequestRecord, error] {
	return func(yield func(schemas.RequestRecord, error) bool) {
		for {
			rec, err := r.Next()
			if err == io.EOF { //nolint:errorlint // Next returns it bare; one that is wrapped is damage
				return
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// Torn reports, once Next has returned io.EOF, whether the log ends within a
// frame, and where its whole frames end: cut there, the log can be appended to.
func (r *RecordReader) Torn() (offset int64, torn bool) { return r.offset, r.torn }

// Close releases the reader.
func (r *RecordReader) Close() error {
	r.dec.Close()
	if r.close == nil {
		return nil
	}
	return r.close.Close()
}

func (r *RecordReader) nextFrame() error {
	raw, err := readFrame(r.in, r.raw[:0])
	r.raw = raw
	switch {
	case errors.Is(err, io.EOF) && len(raw) == 0:
		return io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r.torn = true
		return io.EOF
	case errors.Is(err, errBadMagic) && r.zerosToEnd(raw):
		// A file system may lengthen a file before the bytes reach it.
		r.torn = true
		return io.EOF
	case err != nil:
		return &CorruptError{File: r.name, Offset: r.offset, Err: err}
	}
	r.content, err = r.dec.DecodeAll(raw, r.content[:0])
	if err != nil {
		return &CorruptError{File: r.name, Offset: r.offset, Err: err}
	}
	r.start, r.rest = r.offset, r.content
	r.offset += int64(len(raw))
	return nil
}

func (r *RecordReader) zerosToEnd(seen []byte) bool {
	for _, b := range seen {
		if b != 0 {
			return false
		}
	}
	for {
		b, err := r.in.ReadByte()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		if b != 0 {
			return false
		}
	}
}

func decodeRecord(line []byte, rec *schemas.RequestRecord) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(rec); err != nil {
		// Not %w: the decoder's io.EOF for an empty line is not the log's end.
		return fmt.Errorf("not a request record: %v", err) //nolint:errorlint // see above
	}
	if d.InputOffset() != int64(len(bytes.TrimRight(line, " \t\r"))) {
		return errors.New("more than one JSON value in the line")
	}
	return checkRecord(rec)
}
