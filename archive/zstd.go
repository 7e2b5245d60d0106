package archive

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

// newEncoder compresses on one goroutine, so that equal content gives equal bytes.
func newEncoder(w io.Writer) (*zstd.Encoder, error) {
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(zstdWindowBytes), zstd.WithEncoderCRC(true))
}

// newDecoder reads hostile input: its memory is bounded, and its callers bound
// the bytes they take.
func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(zstdMemoryBytes), zstd.WithDecoderMaxWindow(zstdMemoryBytes))
}
