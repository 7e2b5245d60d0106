package report

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	zstdMagic      = 0xFD2FB528
	blockTypeRLE   = 1
	blockReserved  = 3
	checksumLength = 4
)

var errBadMagic = errors.New("not a zstd frame")

// readFrame appends one whole zstd frame (RFC 8878, section 3.1.1) from in to buf.
// It reads only the lengths, so that a torn last frame is told from a damaged
// one. io.EOF with an empty result is a clean end; io.ErrUnexpectedEOF a torn
// frame.
func readFrame(in io.Reader, buf []byte) ([]byte, error) {
	buf, err := readMore(in, buf, 4)
	if err != nil {
		return buf, err
	}
	if binary.LittleEndian.Uint32(buf) != zstdMagic {
		return buf, errBadMagic
	}
	if buf, err = readMore(in, buf, 1); err != nil {
		return buf, torn(err)
	}
	if buf, err = readMore(in, buf, headerRest(buf[4])); err != nil {
		return buf, torn(err)
	}
	var h zstd.Header
	if err := h.Decode(buf); err != nil {
		return buf, fmt.Errorf("frame header: %w", err)
	}
	for last := false; !last; {
		at := len(buf)
		if buf, err = readMore(in, buf, 3); err != nil {
			return buf, torn(err)
		}
		block := uint32(buf[at]) | uint32(buf[at+1])<<8 | uint32(buf[at+2])<<16
		last = block&1 == 1
		kind, size := block>>1&3, int(block>>3)
		if kind == blockReserved {
			return buf, errors.New("reserved block type")
		}
		if kind == blockTypeRLE {
			size = 1
		}
		if len(buf)+size > maxFrameBytes {
			return buf, fmt.Errorf("frame is over the limit of %d bytes", maxFrameBytes)
		}
		if buf, err = readMore(in, buf, size); err != nil {
			return buf, torn(err)
		}
	}
	if h.HasCheckSum {
		if buf, err = readMore(in, buf, checksumLength); err != nil {
			return buf, torn(err)
		}
	}
	return buf, nil
}

// headerRest is the length of a frame header after its descriptor byte.
func headerRest(descriptor byte) int {
	single := descriptor>>5&1 == 1
	size := [4]int{0, 2, 4, 8}[descriptor>>6]
	if single && size == 0 {
		size = 1
	}
	if !single {
		size++ // window descriptor
	}
	return size + [4]int{0, 1, 2, 4}[descriptor&3]
}

func readMore(in io.Reader, buf []byte, n int) ([]byte, error) {
	at := len(buf)
	buf = append(buf, make([]byte, n)...)
	got, err := io.ReadFull(in, buf[at:])
	return buf[:at+got], err
}

func torn(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
