// Package redact keeps secrets out of what is written: it replaces them in text
// and streams, also where one is cut in two by the boundary of a write, and finds
// them in what must not hold any.
package redact

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Secrets are values with the marks that stand for them. The zero value has none.
type Secrets struct {
	list  []secret // longest first: one may begin like another
	first [256]bool
	most  int // bytes of the longest
}

type secret struct {
	value []byte
	mark  []byte
}

// New takes value -> mark. Empty values are left out. A value is looked for as it
// is and in the forms that programs write it in: within JSON (once and twice), in
// a URL, in base64 and hexadecimal, and on one line.
func New(marks map[string]string) *Secrets {
	s := &Secrets{}
	seen := map[string]bool{}
	for _, value := range slices.Sorted(maps.Keys(marks)) {
		for _, form := range forms(value) {
			if form == "" || seen[form] {
				continue
			}
			seen[form] = true
			s.list = append(s.list, secret{[]byte(form), []byte(marks[value])})
			s.first[form[0]] = true
			s.most = max(s.most, len(form))
		}
	}
	slices.SortFunc(s.list, func(a, b secret) int {
		if len(a.value) != len(b.value) {
			return len(b.value) - len(a.value)
		}
		return bytes.Compare(a.value, b.value)
	})
	return s
}

// Empty says whether there is nothing to hide.
func (s *Secrets) Empty() bool { return s == nil || len(s.list) == 0 }

// String returns text with every secret replaced.
func (s *Secrets) String(text string) string {
	if s.Empty() || text == "" {
		return text
	}
	var b strings.Builder
	w := s.Writer(&b)
	_, _ = w.Write([]byte(text)) // a strings.Builder takes everything
	_ = w.Flush()
	return b.String()
}

// match looks at the beginning of b: the mark and length of the secret there, or
// whether more bytes are needed to tell.
func (s *Secrets) match(b []byte) (mark []byte, length int, more bool) {
	if !s.first[b[0]] {
		return nil, 0, false
	}
	for _, sec := range s.list {
		switch {
		case bytes.HasPrefix(b, sec.value):
			return sec.mark, len(sec.value), false
		case len(b) < len(sec.value) && bytes.HasPrefix(sec.value, b):
			return nil, 0, true
		}
	}
	return nil, 0, false
}

// Writer replaces secrets on their way to w. Flush must be called at the end: the
// last bytes may be held back as the possible beginning of a secret.
type Writer struct {
	s    *Secrets
	w    io.Writer
	held []byte
}

// Writer returns a filter in front of w.
func (s *Secrets) Writer(w io.Writer) *Writer { return &Writer{s: s, w: w} }

// Write implements io.Writer.
func (f *Writer) Write(p []byte) (int, error) {
	if f.s.Empty() {
		return f.w.Write(p)
	}
	raw := append(f.held, p...)
	var out []byte
	at := 0
	for at < len(raw) {
		mark, n, more := f.s.match(raw[at:])
		if more {
			break
		}
		if n > 0 {
			out, at = append(out, mark...), at+n
			continue
		}
		out, at = append(out, raw[at]), at+1
	}
	f.held = append([]byte(nil), raw[at:]...)
	if len(out) == 0 {
		return len(p), nil
	}
	if _, err := f.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what was held back. What is held may hold a shorter secret that a
// longer one begins like.
func (f *Writer) Flush() error {
	for len(f.held) > 0 {
		raw := f.held
		n := 1
		out := raw[:1]
		for _, sec := range f.s.list {
			if bytes.HasPrefix(raw, sec.value) {
				n, out = len(sec.value), sec.mark
				break
			}
		}
		if _, err := f.w.Write(out); err != nil {
			return err
		}
		f.held = raw[n:]
	}
	return nil
}

// Find reads r to its end, or to the first secret, whose mark it returns; "" when
// there is none.
func (s *Secrets) Find(r io.Reader) (string, error) {
	if s.Empty() {
		return "", nil
	}
	buf := make([]byte, 0, 256<<10+s.most)
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for _, sec := range s.list {
			if bytes.Contains(buf, sec.value) {
				return string(sec.mark), nil
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("look for secrets: %w", err)
		}
		keep := min(s.most-1, len(buf))
		buf = append(buf[:0], buf[len(buf)-keep:]...)
	}
}
