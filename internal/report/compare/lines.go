package compare

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
)

// lines hands out the lines of r without their ends. One longer than the limit is an
// error. A line stands until the next one.
func lines(r io.Reader, limit int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		buf := bufio.NewReaderSize(r, 64<<10)
		var line []byte
		for {
			part, err := buf.ReadSlice('\n')
			line = append(line, part...)
			switch {
			case len(line) > limit+1:
				yield(nil, fmt.Errorf("a line is longer than %d bytes", limit))
				return
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case err != nil && !errors.Is(err, io.EOF):
				yield(nil, err)
				return
			}
			ended := err != nil
			if n := len(line); n > 0 && line[n-1] == '\n' {
				line = line[:n-1]
			} else if ended && n == 0 {
				return
			}
			if !yield(line, nil) || ended {
				return
			}
			line = line[:0]
		}
	}
}
