package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"
)

// Limits of what is read. They are far above what real files hold.
const (
	MaxHeaderBytes = 1 << 30
	MaxKeys        = 1 << 16
	MaxTensors     = 1 << 17
	MaxNameBytes   = 1 << 12  // of a key or tensor
	MaxKeptBytes   = 1 << 16  // of a text value that is kept
	MaxTextBytes   = 64 << 20 // of any text value
	maxDims        = 4
	maxAlignment   = 1 << 20
)

// Header is what the beginning of a file says.
type Header struct {
	Version uint32
	// Texts and Numbers hold the keys of simple values; arrays are passed over.
	Texts   map[string]string
	Numbers map[string]float64
	Keys    int
	Tensors []Tensor
	// Alignment is what offsets of tensors are multiples of, and DataStart where
	// their data begins; both in bytes.
	Alignment, DataStart uint64
}

// Tensor is one entry of the header. Offset counts from the header's DataStart.
type Tensor struct {
	Name   string
	Dims   []uint64
	Type   uint32
	Offset uint64
}

// FormatError is what is wrong with a file, and where.
type FormatError struct {
	ID   string // of the finding
	At   int64  // bytes from the file's beginning
	What string
}

func (e *FormatError) Error() string { return fmt.Sprintf("at byte %d: %s", e.At, e.What) }

// Read takes the header from r. Errors are *FormatError, or r's own.
func Read(r io.Reader) (Header, error) {
	p := &reader{r: bufio.NewReaderSize(r, 1<<18)}
	h := Header{Texts: map[string]string{}, Numbers: map[string]float64{}, Alignment: 32}
	tensors, keys := p.begin(&h)
	for range keys {
		p.pair(&h)
		if p.err != nil {
			return h, p.err
		}
	}
	if a, ok := h.Numbers["general.alignment"]; ok {
		if a < 1 || a > maxAlignment || math.Mod(a, 8) != 0 {
			return h, p.wrong("gguf.alignment", "general.alignment is %v, want a multiple of 8", a)
		}
		h.Alignment = uint64(a)
	}
	seen := map[string]bool{}
	for range tensors {
		t := p.tensor()
		if p.err != nil {
			return h, p.err
		}
		if seen[t.Name] {
			return h, p.wrong("gguf.duplicate", "tensor %q stands in the header twice", t.Name)
		}
		seen[t.Name] = true
		h.Tensors = append(h.Tensors, t)
	}
	h.DataStart = (uint64(p.at) + h.Alignment - 1) / h.Alignment * h.Alignment
	return h, p.err
}

// reader reads values one after another; after an error it gives zeros.
type reader struct {
	r   *bufio.Reader
	at  int64
	err error
	buf [8]byte
}

// wrong notes the first error and returns it.
func (p *reader) wrong(id, format string, args ...any) error {
	if p.err == nil {
		p.err = &FormatError{ID: id, At: p.at, What: fmt.Sprintf(format, args...)}
	}
	return p.err
}

func (p *reader) failed(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		p.wrong("gguf.truncated", "the file ends within its header")
		return
	}
	if p.err == nil {
		p.err = err
	}
}

// room says whether n more bytes are within the header's limit.
func (p *reader) room(n uint64) bool {
	if p.err == nil && n > uint64(MaxHeaderBytes-p.at) {
		p.wrong("gguf.limit", "the header is larger than %d bytes", MaxHeaderBytes)
	}
	return p.err == nil
}

func (p *reader) bytes(n int) []byte {
	b := p.buf[:n]
	clear(b)
	if !p.room(uint64(n)) {
		return b
	}
	got, err := io.ReadFull(p.r, b)
	p.at += int64(got)
	if err != nil {
		p.failed(err)
		clear(b)
	}
	return b
}

func (p *reader) u32() uint32 { return binary.LittleEndian.Uint32(p.bytes(4)) }
func (p *reader) u64() uint64 { return binary.LittleEndian.Uint64(p.bytes(8)) }

func (p *reader) skip(n uint64) {
	if !p.room(n) {
		return
	}
	got, err := io.CopyN(io.Discard, p.r, int64(n)) // room has bounded it
	p.at += got
	if err != nil {
		p.failed(err)
	}
}

// text reads a text of at most limit bytes; a longer one is an error.
func (p *reader) text(what string, limit uint64) string {
	n := p.u64()
	if p.err == nil && n > limit {
		p.wrong("gguf.limit", "%s of %d bytes, more than %d", what, n, limit)
	}
	if !p.room(n) {
		return ""
	}
	b := make([]byte, n)
	got, err := io.ReadFull(p.r, b)
	p.at += int64(got)
	if err != nil {
		p.failed(err)
		return ""
	}
	if !utf8.Valid(b) {
		p.wrong("gguf.text", "%s is not valid UTF-8", what)
		return ""
	}
	return string(b)
}

// begin reads the fixed part and returns the numbers of tensors and keys.
func (p *reader) begin(h *Header) (tensors, keys uint64) {
	if magic := string(p.bytes(4)); p.err == nil && magic != "GGUF" {
		p.at = 0
		p.wrong("gguf.magic", "begins with %q, a GGUF file begins with \"GGUF\"", magic)
	}
	h.Version = p.u32()
	switch {
	case p.err != nil:
	case h.Version&0xffff == 0 && h.Version != 0:
		p.wrong("gguf.byte-order", "the file is big-endian (version reads as %d): this machine's engines read little-endian files", h.Version)
	case h.Version != 2 && h.Version != 3:
		p.wrong("gguf.version", "version %d: 2 and 3 are in use", h.Version)
	}
	tensors, keys = p.u64(), p.u64()
	if p.err == nil && tensors > MaxTensors {
		p.wrong("gguf.limit", "%d tensors, more than %d", tensors, MaxTensors)
	}
	if p.err == nil && keys > MaxKeys {
		p.wrong("gguf.limit", "%d keys, more than %d", keys, MaxKeys)
	}
	if p.err != nil {
		return 0, 0
	}
	return tensors, keys
}

// The types of values.
const (
	valueText  = 8
	valueArray = 9
)

// widths are the bytes of the fixed types.
var widths = map[uint32]uint64{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

func (p *reader) pair(h *Header) {
	key := p.text("a key", MaxNameBytes)
	if p.err != nil {
		return
	}
	_, text := h.Texts[key]
	if _, number := h.Numbers[key]; text || number {
		p.wrong("gguf.duplicate", "key %q stands in the header twice", key)
		return
	}
	h.Keys++
	switch kind := p.u32(); kind {
	case valueText:
		h.Texts[key] = p.value(key)
	case valueArray:
		p.array(key)
	default:
		width, ok := widths[kind]
		if !ok {
			p.wrong("gguf.value-type", "key %q has a value of the unknown type %d", key, kind)
			return
		}
		h.Numbers[key] = number(kind, p.bytes(int(width)))
	}
}

// value reads a text value; a long one (a chat template) is kept in part.
func (p *reader) value(key string) string {
	n := p.u64()
	if p.err == nil && n > MaxTextBytes {
		p.wrong("gguf.limit", "key %q has a text of %d bytes, more than %d", key, n, MaxTextBytes)
	}
	if !p.room(n) {
		return ""
	}
	b := make([]byte, min(n, MaxKeptBytes))
	got, err := io.ReadFull(p.r, b)
	p.at += int64(got)
	if err != nil {
		p.failed(err)
		return ""
	}
	p.skip(n - uint64(len(b)))
	return string(b)
}

// array passes over an array, whose elements may not be arrays.
func (p *reader) array(key string) {
	kind, n := p.u32(), p.u64()
	if p.err != nil {
		return
	}
	if kind != valueText {
		width, ok := widths[kind]
		if !ok {
			p.wrong("gguf.value-type", "key %q has an array of the unknown type %d", key, kind)
			return
		}
		if n > MaxHeaderBytes {
			p.wrong("gguf.limit", "key %q has an array of %d elements", key, n)
			return
		}
		p.skip(n * width)
		return
	}
	for ; n > 0 && p.err == nil; n-- {
		size := p.u64()
		if p.err == nil && size > MaxTextBytes {
			p.wrong("gguf.limit", "key %q has a text of %d bytes, more than %d", key, size, MaxTextBytes)
		}
		p.skip(size)
	}
}

func number(kind uint32, b []byte) float64 {
	switch kind {
	case 0, 7:
		return float64(b[0])
	case 1:
		return float64(int8(b[0]))
	case 2:
		return float64(binary.LittleEndian.Uint16(b))
	case 3:
		return float64(int16(binary.LittleEndian.Uint16(b)))
	case 4:
		return float64(binary.LittleEndian.Uint32(b))
	case 5:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case 6:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case 10:
		return float64(binary.LittleEndian.Uint64(b))
	case 11:
		return float64(int64(binary.LittleEndian.Uint64(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

func (p *reader) tensor() Tensor {
	t := Tensor{Name: p.text("a tensor's name", MaxNameBytes)}
	n := p.u32()
	if p.err == nil && (n < 1 || n > maxDims) {
		p.wrong("gguf.tensor", "tensor %q has %d dimensions, want 1 to %d", t.Name, n, maxDims)
	}
	for range n {
		d := p.u64()
		if p.err == nil && d == 0 {
			p.wrong("gguf.tensor", "tensor %q has a dimension of 0", t.Name)
		}
		if p.err != nil {
			return t
		}
		t.Dims = append(t.Dims, d)
	}
	t.Type, t.Offset = p.u32(), p.u64()
	return t
}
