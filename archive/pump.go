package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// workers is how many blobs are worked on at a time: all processors, but no more
// than memory is meant for (a pack being written takes about 50 MiB).
var workers = min(max(2, runtime.GOMAXPROCS(0)), 4)

const chunkBytes = 128 << 10 // stays in a processor's own cache between its readers

var chunks = sync.Pool{New: func() any { b := make([]byte, chunkBytes); return &b }}

// pump reads exactly length bytes of r and hands them, piece by piece, to every
// sink. The sinks work at the same time, and while the next piece is read; each
// sees the pieces in order and must not keep them.
func pump(ctx context.Context, r io.Reader, length int64, sinks ...io.Writer) error {
	one, two := chunks.Get().(*[]byte), chunks.Get().(*[]byte)
	defer func() { chunks.Put(one); chunks.Put(two) }()
	feeds, results := make([]chan []byte, len(sinks)), make(chan error, len(sinks))
	for i, w := range sinks {
		feeds[i] = make(chan []byte)
		go func() {
			for b := range feeds[i] {
				_, err := w.Write(b)
				results <- err
			}
		}()
	}
	defer func() {
		for _, f := range feeds {
			close(f)
		}
	}()
	wait := func(n int) (err error) {
		for range n {
			err = errors.Join(err, <-results)
		}
		return err
	}
	running := 0
	for left := length; left > 0; {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, wait(running))
		}
		n, err := io.ReadFull(r, (*one)[:min(left, chunkBytes)])
		if werr := wait(running); werr != nil {
			return werr
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("it ended %d bytes early: %w", left-int64(n), io.ErrUnexpectedEOF)
			}
			return err
		}
		for _, f := range feeds {
			f <- (*one)[:n]
		}
		running = len(feeds)
		left -= int64(n)
		one, two = two, one
	}
	return wait(running)
}
