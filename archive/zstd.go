package archive

import (
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Encoders are kept, since each has some megabytes of tables. Packs are many and
// small files cost most: they take the fastest level.
var (
	encoders     = encoderPool(zstd.SpeedDefault)
	packEncoders = encoderPool(zstd.SpeedFastest)
)

func encoderPool(level zstd.EncoderLevel) *sync.Pool {
	return &sync.Pool{New: func() any {
		// One goroutine each, so that equal content gives equal bytes.
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level),
			zstd.WithWindowSize(zstdWindowBytes), zstd.WithEncoderCRC(true))
		if err != nil {
			panic(fmt.Sprintf("zstd options: %v", err)) // they are constants
		}
		return e
	}}
}

// newEncoder compresses what is written to w. After Close it may be put back
// into the pool it came from.
func newEncoder(pool *sync.Pool, w io.Writer) *zstd.Encoder {
	e := pool.Get().(*zstd.Encoder)
	e.Reset(w)
	return e
}

// isFlat says that bytes look random, so that no code is shorter for one than
// for another. It counts in whole numbers: every machine must agree.
func isFlat(b []byte) bool {
	if len(b) < 256 {
		return false
	}
	var counts [256]uint64
	n := uint64(0)
	// Four stretches are enough; a file of a few kilobytes is counted whole.
	const stretch = 1 << 10
	for i := range 4 {
		at := i * max(stretch, (len(b)-stretch)/3)
		for _, x := range b[min(at, len(b)):min(at+stretch, len(b))] {
			counts[x]++
			n++
		}
	}
	var squares uint64
	for _, c := range counts {
		squares += c * c
	}
	return 256*squares < 2*n*n+256*n
}

// newDecoder reads hostile input: its memory is bounded, and its callers bound
// the bytes they take.
func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(zstdMemoryBytes), zstd.WithDecoderMaxWindow(zstdMemoryBytes))
}
