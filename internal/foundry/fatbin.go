package foundry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of the packed binaries of a rank.
const (
	MaxBinaries    = 1 << 16
	MaxSegments    = 1 << 20 // of all images
	MaxEntryPoints = 1 << 20 // of all binaries
)

// Image is a device binary in the packed images.
type Image struct {
	Hash     Hash   `json:"hash"`
	Bytes    uint64 `json:"bytes"`
	Segments int    `json:"segments"`
}

// Binary is a device binary in the file of entry points.
type Binary struct {
	Hash      Hash     `json:"hash"`
	Base      string   `json:"base_function"`
	Segments  int      `json:"segments"`
	Functions []string `json:"functions"`
}

// imageReader counts what is left, so that no length that a file states is believed.
type imageReader struct {
	r        io.Reader
	left     uint64
	segments int
	buf      [8]byte
}

// ReadImages reads fatbin_image_packed.img of size bytes. The images themselves are
// passed over.
func ReadImages(r io.Reader, size int64) ([]Image, error) {
	p := &imageReader{r: r, left: uint64(max(size, 0))}
	var out []Image
	for p.left > 0 {
		if len(out) == MaxBinaries {
			return nil, fmt.Errorf("more than %d images", MaxBinaries)
		}
		m, err := p.image()
		if err != nil {
			return nil, fmt.Errorf("image %d: %w", len(out), err)
		}
		out = append(out, m)
	}
	return out, nil
}

func (p *imageReader) image() (Image, error) {
	hash, err := p.number()
	if err != nil {
		return Image{}, err
	}
	m := Image{Hash: Hash(hash)}
	size, err := p.number()
	if err != nil {
		return m, err
	}
	if size > 0 {
		m.Bytes = size
		return m, p.skip(size)
	}
	parts, err := p.number() // an image in segments
	if err != nil {
		return m, err
	}
	for range parts {
		if p.segments++; p.segments > MaxSegments {
			return m, fmt.Errorf("more than %d segments", MaxSegments)
		}
		if size, err = p.number(); err != nil {
			return m, err
		}
		if err := p.skip(size); err != nil {
			return m, err
		}
		m.Segments++
		m.Bytes += size
	}
	return m, nil
}

func (p *imageReader) number() (uint64, error) {
	if p.left < 8 {
		return 0, errors.New("the file ends amid a number")
	}
	p.left -= 8
	if _, err := io.ReadFull(p.r, p.buf[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(p.buf[:]), nil
}

func (p *imageReader) skip(n uint64) error {
	if n == 0 {
		return nil
	}
	if n > p.left {
		return fmt.Errorf("%d bytes are stated, and %d are left", n, p.left)
	}
	p.left -= n
	_, err := io.CopyN(io.Discard, p.r, int64(n))
	return err
}

// lines gives one line after another.
type lines struct {
	rest []byte
	n    int // of the line that was taken last, from 1
}

func (l *lines) next() (string, bool) {
	if len(l.rest) == 0 {
		return "", false
	}
	l.n++
	line, rest, _ := bytes.Cut(l.rest, []byte("\n"))
	l.rest = rest
	return string(line), true
}

// take is next with an error where there is no line.
func (l *lines) take(what string) (string, error) {
	s, ok := l.next()
	if !ok {
		return "", fmt.Errorf("line %d: the file ends, want %s", l.n+1, what)
	}
	return s, nil
}

// ReadEntries reads fatbin_entrypoint_packed.txt.
func ReadEntries(b []byte) ([]Binary, error) {
	l := &lines{rest: b}
	var out []Binary
	total := 0
	for len(l.rest) > 0 {
		if len(out) == MaxBinaries {
			return nil, fmt.Errorf("line %d: more than %d binaries", l.n, MaxBinaries)
		}
		one, err := readBinary(l, MaxEntryPoints-total)
		if err != nil {
			return nil, err
		}
		total += len(one.Functions)
		out = append(out, one)
	}
	return out, nil
}

func readBinary(l *lines, most int) (Binary, error) {
	var d Binary
	hash, err := l.take("a hash")
	if err != nil {
		return d, err
	}
	n, err := strconv.ParseUint(hash, 16, 64)
	if err != nil || len(hash) != 16 {
		return d, fmt.Errorf("line %d: %.40q is no hash of 16 hex digits", l.n, hash)
	}
	d.Hash = Hash(n)
	head, err := l.take("a function with binary_flags")
	if err != nil {
		return d, err
	}
	if d.Base, d.Segments, err = readHead(head); err != nil {
		return d, fmt.Errorf("line %d: %w", l.n, err)
	}
	text, err := l.take("the number of entry points")
	if err != nil {
		return d, err
	}
	count, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return d, fmt.Errorf("line %d: %.40q is no number of entry points", l.n, text)
	}
	if count > uint64(min(most, len(l.rest)/2)) { // each has a byte and ends its line
		return d, fmt.Errorf("line %d: %d entry points are not there", l.n, count)
	}
	for range count {
		f, err := l.take("an entry point")
		if err != nil {
			return d, err
		}
		if f == "" || f == "---" {
			return d, fmt.Errorf("line %d: %q is no entry point, and the binary has %d", l.n, f, count)
		}
		d.Functions = append(d.Functions, f)
	}
	if end, err := l.take("---"); err != nil || end != "---" {
		return d, fmt.Errorf("line %d: want --- after %d entry points", l.n, count)
	}
	return d, nil
}

// readHead reads `function[,filename=..][,...],binary_flags=N[,num_segments=N]`. Names of
// files and functions may hold commas themselves.
func readHead(s string) (base string, segments int, err error) {
	const flags, parts = ",binary_flags=", ",num_segments="
	i := strings.LastIndex(s, flags)
	if i < 1 {
		return "", 0, errors.New("no function with binary_flags")
	}
	value, count, some := strings.Cut(s[i+len(flags):], parts)
	if _, err := strconv.ParseUint(value, 10, 64); err != nil {
		return "", 0, fmt.Errorf("binary_flags %.40q is no number", value)
	}
	if some {
		n, err := strconv.ParseUint(count, 10, 31)
		if err != nil {
			return "", 0, fmt.Errorf("num_segments %.40q is no number", count)
		}
		segments = int(n)
	}
	base = s[:i]
	for _, option := range []string{",filename=", ",numJitOptions=", ",numLibraryOptions="} {
		if j := strings.Index(base, option); j > 0 {
			base = base[:j]
		}
	}
	return base, segments, nil
}
