package archive

import (
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// encoders are kept, since each has some megabytes of tables.
var encoders = sync.Pool{New: func() any {
	// One goroutine each, so that equal content gives equal bytes.
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(zstdWindowBytes), zstd.WithEncoderCRC(true))
	if err != nil {
		panic(fmt.Sprintf("zstd options: %v", err)) // they are constants
	}
	return e
}}

// newEncoder compresses what is written to w. After Close it may be put back
// into encoders.
func newEncoder(w io.Writer) *zstd.Encoder {
	e := encoders.Get().(*zstd.Encoder)
	e.Reset(w)
	return e
}

// newDecoder reads hostile input: its memory is bounded, and its callers bound
// the bytes they take.
func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(zstdMemoryBytes), zstd.WithDecoderMaxWindow(zstdMemoryBytes))
}
