package observe

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"assay/internal/durable"
)

// maxFileBytes bounds a file of observations.
const maxFileBytes = 2 << 30

var errFull = errors.New("its file has reached its limit: later looks are not in it")

// sink is a file of JSON lines with times on the run's clock. Lines that come
// before the clock's zero is known wait for it.
type sink struct {
	path string

	mu      sync.Mutex
	file    *durable.AppendFile
	zero    time.Time
	waiting []waiting
	buf     []byte
	written int64
	err     error // sticky
	full    bool
}

type waiting struct {
	at   time.Time
	body []byte
}

func newSink(dir, name string, header any) (*sink, error) {
	s := &sink{path: filepath.Join(dir, name)}
	f, err := durable.OpenAppend(s.path)
	if err != nil {
		return nil, err
	}
	s.file = f
	b, err := json.Marshal(header)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.write(append(b, '\n'))
	return s, s.err
}

// add appends {"at_ns":AT,BODY}; body is one or more members of an object. It is
// copied if it has to wait.
func (s *sink) add(at time.Time, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.zero.IsZero() {
		s.waiting = append(s.waiting, waiting{at, append([]byte(nil), body...)})
		return nil
	}
	s.line(at, body)
	if s.full {
		return errFull
	}
	return nil
}

func (s *sink) line(at time.Time, body []byte) {
	s.buf = append(s.buf[:0], `{"at_ns":`...)
	s.buf = strconv.AppendInt(s.buf, int64(at.Sub(s.zero)), 10)
	s.buf = append(s.buf, ',')
	s.buf = append(s.buf, body...)
	s.buf = append(s.buf, "}\n"...)
	s.write(s.buf)
}

func (s *sink) write(b []byte) {
	if s.err != nil || s.full {
		return
	}
	if s.written+int64(len(b)) > maxFileBytes {
		s.full = true
		return
	}
	s.written += int64(len(b))
	s.err = s.file.Append(b)
}

// begin sets the clock's zero.
func (s *sink) begin(zero time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zero = zero
	for _, w := range s.waiting {
		s.line(w.at, w.body)
	}
	s.waiting = nil
}

// begun says that a time is not before the clock's zero.
func (s *sink) begun(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.zero.IsZero() && !at.Before(s.zero)
}

// close makes the file durable and returns the first error it had.
func (s *sink) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.zero.IsZero() { // nothing was measured: what waits has no time
		s.waiting = nil
	}
	if s.err == nil {
		s.err = s.file.Sync()
	}
	if err := errors.Join(s.err, s.file.Close()); err != nil {
		return fmt.Errorf("observations: %w", err)
	}
	return nil
}

// member appends a key and a string to an object's members.
func member(b []byte, key, value string) []byte {
	text, err := json.Marshal(value)
	if err != nil { // cannot be: it is a string
		text = []byte(`""`)
	}
	b = append(b, '"')
	b = append(b, key...)
	b = append(b, `":`...)
	return append(b, text...)
}
