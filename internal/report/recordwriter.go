package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"assay/internal/durable"
	"assay/schemas"

	"github.com/klauspost/compress/zstd"
)

// flushBytes is how much JSON may wait before it is written as a frame.
const flushBytes = 512 << 10

// Appender is the file a log is written to, such as durable.AppendFile.
type Appender interface {
	Append([]byte) error
	Sync() error
	Close() error
}

// RecordWriter appends request records to a log: JSON lines, in zstd frames. Each
// flush is one complete frame in one append, so a crash can tear only the last
// frame, and everything before it reads back. Its methods may be called from
// several goroutines.
type RecordWriter struct {
	mu   sync.Mutex
	file Appender
	enc  *zstd.Encoder
	buf  []byte
	n    int
	err  error // sticky: after a failed append the end of the log is not known
}

// CreateRecords opens the log at path for appending, and makes it when missing.
func CreateRecords(path string) (*RecordWriter, error) {
	f, err := durable.OpenAppend(path)
	if err != nil {
		return nil, fmt.Errorf("record log: %w", err)
	}
	w, err := NewRecordWriter(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// NewRecordWriter writes to file, which Close closes.
func NewRecordWriter(file Appender) (*RecordWriter, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, fmt.Errorf("record log: %w", err)
	}
	return &RecordWriter{file: file, enc: enc}, nil
}

// Write adds a record. It is durable only after Flush.
func (w *RecordWriter) Write(rec schemas.RequestRecord) error {
	line, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("record log: request %s: %w", rec.ID, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if len(line)+1 > maxFrameContent {
		return fmt.Errorf("record log: request %s: its record of %d bytes is over the limit of %d", rec.ID, len(line), maxFrameContent-1)
	}
	if len(w.buf)+len(line)+1 > maxFrameContent {
		if err := w.appendFrame(); err != nil {
			return err
		}
	}
	w.buf = append(append(w.buf, line...), '\n')
	w.n++
	if len(w.buf) >= flushBytes {
		return w.appendFrame()
	}
	return nil
}

// Flush writes what waits as one frame and makes the log durable.
func (w *RecordWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

// Records is the number of records written.
func (w *RecordWriter) Records() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// Close flushes and closes the file.
func (w *RecordWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.flush()
	if cerr := w.file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("record log: close: %w", cerr)
	}
	if w.err == nil {
		w.err = fmt.Errorf("record log: closed")
	}
	if cerr := w.enc.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("record log: %w", cerr)
	}
	return err
}

func (w *RecordWriter) flush() error {
	if err := w.appendFrame(); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		w.err = fmt.Errorf("record log: sync: %w", err)
	}
	return w.err
}

func (w *RecordWriter) appendFrame() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	frame := w.enc.EncodeAll(w.buf, nil)
	w.buf = w.buf[:0]
	if err := w.file.Append(frame); err != nil {
		w.err = fmt.Errorf("record log: append: %w", err)
	}
	return w.err
}
