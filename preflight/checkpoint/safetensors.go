package checkpoint

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// Limits of what is read of one header and of all headers of a folder. The first
// is the format's own; real headers have a few MiB at most.
const (
	MaxHeaderBytes = 100_000_000
	MaxTotalBytes  = 128 << 20
	MaxTensors     = 1 << 18 // of a file
	maxAllTensors  = 1 << 20 // of a folder
	MaxNameBytes   = 1 << 12
	maxDims        = 16
	maxMetadata    = 1 << 16
)

// Tensor is one entry of a header. Begin and End count from the end of the header.
type Tensor struct {
	Name       string
	Dtype      string
	Shape      []uint64
	Begin, End uint64
}

// Header is what the beginning of a safetensors file says.
type Header struct {
	Metadata map[string]string
	Tensors  []Tensor // by Begin
	// DataStart is where the weights begin, in bytes from the file's beginning.
	DataStart uint64
	// Unknown lists types that are not known here: their sizes are not checked.
	Unknown []string
}

// FormatError is what is wrong with a file, and the ID of the finding that says so.
type FormatError struct {
	ID   string
	What string
}

func (e *FormatError) Error() string { return e.What }

func wrong(id, format string, args ...any) error {
	return &FormatError{ID: id, What: fmt.Sprintf(format, args...)}
}

// dtypeBits is how many bits an element takes.
var dtypeBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}

// ReadHeader reads the header of a safetensors file of size bytes. Before it reads
// n bytes it asks take whether it may. Errors are *FormatError, or r's own.
func ReadHeader(r io.Reader, size int64, take func(n int64) bool) (Header, error) {
	var length [8]byte
	if size < 8 {
		return Header{}, wrong(idHeader, "the file has %d bytes, a safetensors file begins with 8 of its header's length", size)
	}
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return Header{}, ended(err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > MaxHeaderBytes:
		return Header{}, wrong(idLimit, "the header is said to have %d bytes, more than the %d that the format allows: this is no safetensors file, or it is damaged", n, MaxHeaderBytes)
	case int64(n) > size-8:
		return Header{}, wrong(idTruncated, "the header has %d bytes, the file ends after %d", n, size)
	case n < 2:
		return Header{}, wrong(idHeader, "the header has %d bytes, the shortest has 2", n)
	case !take(int64(n)):
		return Header{}, wrong(idLimit, "the header has %d bytes, and those of the folder together more than %d", n, MaxTotalBytes)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return Header{}, ended(err)
	}
	h, err := parseHeader(b)
	if err != nil {
		return Header{}, err
	}
	h.DataStart = 8 + n
	if err := h.bounds(uint64(size)); err != nil {
		return Header{}, err
	}
	return h, nil
}

// ended turns the end of a file, which was longer when it was looked at, into what
// it means.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return wrong(idTruncated, "the file ends within its header")
	}
	return err
}

func parseHeader(b []byte) (Header, error) {
	h := Header{Metadata: map[string]string{}}
	s := &scanner{b: b}
	if b[0] != '{' {
		return h, wrong(idHeader, "the header begins with %q, want '{'", b[0])
	}
	seen := map[string]bool{}
	err := s.each('{', '}', func() error {
		name, err := s.member()
		switch {
		case err != nil:
			return err
		case seen[name]:
			return s.wrong("%s stands in the header twice", quoted(name))
		case len(name) > MaxNameBytes:
			return s.wrong("a name has %d bytes, more than %d", len(name), MaxNameBytes)
		case len(seen) >= MaxTensors:
			return wrong(idLimit, "the header has more than %d tensors", MaxTensors)
		}
		seen[name] = true
		if name == "__metadata__" {
			return s.metadata(h.Metadata)
		}
		t, err := s.tensor(name)
		h.Tensors = append(h.Tensors, t)
		return err
	})
	if err == nil && s.space() != 0 {
		err = s.wrong("something stands after the header's end")
	}
	var syntax *syntaxError
	if errors.As(err, &syntax) {
		return h, wrong(idHeader, "the header cannot be read %s", syntax)
	}
	slices.SortStableFunc(h.Tensors, func(a, b Tensor) int { return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End)) })
	return h, err
}

func (s *scanner) metadata(into map[string]string) error {
	return s.each('{', '}', func() error {
		k, err := s.member()
		if err != nil {
			return err
		}
		v, err := s.text()
		if len(into) >= maxMetadata {
			return wrong(idLimit, "the header has more than %d keys of metadata", maxMetadata)
		}
		if _, twice := into[k]; twice {
			return s.wrong("%s stands in the metadata twice", quoted(k))
		}
		into[k] = v
		return err
	})
}

// tensor reads the three fields that describe one.
func (s *scanner) tensor(name string) (Tensor, error) {
	t := Tensor{Name: name}
	fields := map[string]bool{}
	err := s.each('{', '}', func() error {
		key, err := s.member()
		if err != nil {
			return err
		}
		if fields[key] {
			return s.wrong("tensor %s has %s twice", quoted(name), quoted(key))
		}
		fields[key] = true
		switch key {
		case "dtype":
			t.Dtype, err = s.text()
		case "shape":
			t.Shape, err = s.numbers(maxDims)
		case "data_offsets":
			var list []uint64
			if list, err = s.numbers(2); err == nil && len(list) != 2 {
				err = s.wrong("tensor %s has %d data_offsets, want 2", quoted(name), len(list))
			}
			if err == nil {
				t.Begin, t.End = list[0], list[1]
			}
		default:
			err = s.wrong("tensor %s has the unknown key %s", quoted(name), quoted(key))
		}
		return err
	})
	if err == nil && len(fields) != 3 {
		err = s.wrong("tensor %s lacks one of dtype, shape and data_offsets", quoted(name))
	}
	return t, err
}

func (s *scanner) numbers(limit int) ([]uint64, error) {
	var out []uint64
	err := s.each('[', ']', func() error {
		if len(out) == limit {
			return s.wrong("a list has more than %d numbers", limit)
		}
		n, err := s.whole()
		out = append(out, n)
		return err
	})
	return out, err
}

// bounds checks that the tensors cover the data, each byte once.
func (h *Header) bounds(size uint64) error {
	var end uint64
	data := size - h.DataStart
	last := ""
	for _, t := range h.Tensors {
		if t.End < t.Begin {
			return wrong(idOffsets, "tensor %s ends at offset %d, before it begins at %d", quoted(t.Name), t.End, t.Begin)
		}
		n, known, ok := t.bytes()
		switch {
		case !known:
			if !slices.Contains(h.Unknown, t.Dtype) && len(h.Unknown) < 100 {
				h.Unknown = append(h.Unknown, t.Dtype)
			}
		case !ok:
			return wrong(idTensor, "tensor %s of shape %v and type %s has no size that can be counted", quoted(t.Name), t.Shape, t.Dtype)
		case n != t.End-t.Begin:
			return wrong(idTensor, "tensor %s of shape %v and type %s takes %d bytes, its offsets leave it %d", quoted(t.Name), t.Shape, t.Dtype, n, t.End-t.Begin)
		}
		switch {
		case t.Begin < end:
			return wrong(idOffsets, "tensor %s begins at offset %d, inside tensor %s, which ends at %d", quoted(t.Name), t.Begin, quoted(last), end)
		case t.Begin > end:
			return wrong(idOffsets, "nothing describes the bytes from offset %d to %d, before tensor %s", end, t.Begin, quoted(t.Name))
		}
		end, last = t.End, t.Name
	}
	switch {
	case end > data:
		return wrong(idTruncated, "the tensors end at offset %d, the file has only %d bytes of them: it is not all there", end, data)
	case end < data:
		return wrong(idOffsets, "%d bytes stand after the last tensor, which nothing describes", data-end)
	}
	return nil
}

// elements is how many the tensor has; ok is false beyond what can be counted.
func (t Tensor) elements() (n uint64, ok bool) {
	n = 1
	for _, d := range t.Shape {
		hi, lo := bits.Mul64(n, d)
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	return n, true
}

// bytes is how many the tensor takes. known is false for a type that is not in the
// table; ok is false when that is not a whole number that can be counted.
func (t Tensor) bytes() (n uint64, known, ok bool) {
	width, known := dtypeBits[t.Dtype]
	if !known {
		return 0, false, true
	}
	n, ok = t.elements()
	hi, lo := bits.Mul64(n, width)
	return lo / 8, true, ok && hi == 0 && lo%8 == 0
}

// quoted is a name that came from a file, short and harmless to print.
func quoted(s string) string {
	if len(s) > 120 {
		s = s[:120] + "..."
	}
	return fmt.Sprintf("%q", s)
}
