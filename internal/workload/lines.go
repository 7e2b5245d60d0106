package workload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// lines hands out lines without their ends, bounded in length.
type lines struct {
	r    *bufio.Reader
	file string
	n    int
	max  int
	long []byte // a line longer than the reader's buffer
}

func (l *lines) next() (string, error) {
	b, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = append(l.long[:0], b...)
		for errors.Is(err, bufio.ErrBufferFull) && len(l.long) <= l.max {
			b, err = l.r.ReadSlice('\n')
			l.long = append(l.long, b...)
		}
		b = l.long
	}
	if len(bytes.TrimRight(b, "\r\n")) > l.max || errors.Is(err, bufio.ErrBufferFull) {
		return "", l.fail(l.n+1, 0, "line is longer than %d bytes; is this a workload of this form?", l.max)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("workload: read %s: %w", l.file, err)
	}
	if len(b) == 0 {
		return "", io.EOF
	}
	l.n++
	if l.n == 1 {
		b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	b = bytes.TrimSuffix(b, []byte("\r"))
	if !utf8.Valid(b) {
		return "", l.fail(l.n, 0, "not valid UTF-8; save the file as UTF-8")
	}
	return string(b), nil
}

func (l *lines) fail(line, column int, format string, args ...any) error {
	return &SyntaxError{File: l.file, Line: line, Column: column, Text: fmt.Sprintf(format, args...)}
}
