package schemas

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// WriteTree writes the canonical JSON of a tree document: the bytes of Encode,
// entry by entry, so that a tree of a million files needs no second copy of
// itself in memory.
func WriteTree(w io.Writer, t Tree) error {
	out := bufio.NewWriterSize(w, 1<<16)
	buf := append(out.AvailableBuffer(), `{"blobs":[`...)
	var err error
	for i, b := range t.Blobs {
		if buf, err = appendBlob(comma(buf, i), b); err != nil {
			return fmt.Errorf("encode tree: %w", err)
		}
	}
	buf = appendString(append(buf, `],"digest":`...), string(t.Digest))
	buf = append(buf, `,"entries":[`...)
	if _, err := out.Write(buf); err != nil {
		return err
	}
	for i, e := range t.Entries {
		if buf, err = appendEntry(comma(out.AvailableBuffer(), i), e, true); err != nil {
			return fmt.Errorf("encode tree: %s: %w", e.Path, err)
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
	buf = append(out.AvailableBuffer(), `],"schema":`...)
	if _, err := out.Write(append(appendString(buf, t.Schema), '}')); err != nil {
		return err
	}
	return out.Flush()
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// appendEntry appends the canonical JSON of an entry, with its parts for a
// document, without for a digest. A field added to TreeEntry belongs into the
// document only: the digest's fields are fixed for ever.
func appendEntry(b []byte, e TreeEntry, parts bool) ([]byte, error) {
	f := fields{b: append(b, '{')}
	if e.Digest != "" {
		f.text(`"digest":`, string(e.Digest))
	}
	if e.Executable {
		f.name(`"executable":true`)
	}
	f.text(`"kind":`, e.Kind)
	if parts && len(e.Parts) > 0 {
		f.name(`"parts":[`)
		for i, p := range e.Parts {
			q := fields{b: append(comma(f.b, i), '{'), err: f.err}
			q.text(`"blob":`, string(p.Blob))
			q.number(`"length":`, p.Length)
			q.number(`"offset":`, p.Offset)
			f.b, f.err = append(q.b, '}'), q.err
		}
		f.b = append(f.b, ']')
	}
	f.text(`"path":`, e.Path)
	if e.Size != 0 {
		f.number(`"size":`, e.Size)
	}
	if e.Target != "" {
		f.text(`"target":`, e.Target)
	}
	return append(f.b, '}'), f.err
}

func appendBlob(b []byte, x Blob) ([]byte, error) {
	f := fields{b: append(b, '{')}
	if x.ContentDigest != "" {
		f.text(`"content_digest":`, string(x.ContentDigest))
	}
	if x.ContentSize != 0 {
		f.number(`"content_size":`, x.ContentSize)
	}
	f.text(`"digest":`, string(x.Digest))
	f.text(`"media_type":`, x.MediaType)
	f.number(`"size":`, x.Size)
	return append(f.b, '}'), f.err
}

// fields appends the members of one object; the caller gives them sorted.
type fields struct {
	b   []byte
	err error
}

func (f *fields) name(quoted string) {
	if f.b[len(f.b)-1] != '{' {
		f.b = append(f.b, ',')
	}
	f.b = append(f.b, quoted...)
}

func (f *fields) text(name, s string) {
	f.name(name)
	f.b = appendString(f.b, s)
}

func (f *fields) number(name string, n int64) {
	if n > MaxInteger || n < -MaxInteger {
		f.err = fmt.Errorf("%d is beyond the largest whole number a document can carry exactly", n)
	}
	f.name(name)
	f.b = strconv.AppendInt(f.b, n, 10)
}

// appendString appends a JSON string as RFC 8785 wants it: no escape that JSON
// does not demand. What is not UTF-8 becomes U+FFFD, as in encoding/json.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' {
				i++
				continue
			}
			b = appendEscape(append(b, s[start:i]...), c)
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b = append(append(b, s[start:i]...), "\uFFFD"...)
			start = i + n
		}
		i += n
	}
	return append(append(b, s[start:]...), '"')
}

func appendEscape(b []byte, c byte) []byte {
	const short = "\b\t\n\f\r\"\\"
	if i := slices.Index([]byte(short), c); i >= 0 {
		return append(b, '\\', `btnfr"\`[i])
	}
	const hex = "0123456789abcdef"
	return append(b, `\u00`+string([]byte{hex[c>>4], hex[c&15]})...)
}
