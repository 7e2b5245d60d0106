package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ReadTree reads one tree document entry by entry, so that a tree of a million
// files need not be in memory. It accepts exactly the bytes that WriteTree
// writes: a tree document is canonical JSON. each gets the tree without its
// entries, which stand after blobs and digest, and then every entry in the
// document's order; an error of it ends the reading. The tree that is returned
// has no entries.
//
// Strings of entries lie together in slabs, and blobs of parts share the string
// of the blob's own digest: whoever keeps one string of a few entries clones it.
func ReadTree(r io.Reader, each func(head *Tree, e TreeEntry) error) (Tree, error) {
	s := &treeScanner{r: r, blobs: map[string]Digest{}}
	t, err := s.document(each)
	if err != nil {
		return Tree{}, fmt.Errorf("tree document: %w", err)
	}
	return t, nil
}

const (
	treeWindow    = 1 << 18
	maxTreeWindow = 32 << 20 // one entry: 65,536 parts are about 9 MiB
	treeSlab      = 1 << 16
)

// errShort asks for more of the document.
var errShort = errors.New("it ends too early")

// treeScanner holds a window of the document. A piece (an entry, a blob) that
// does not end in the window is scanned again once there is more.
type treeScanner struct {
	r     io.Reader
	buf   []byte // what was read and not yet taken
	room  []byte // what buf is a part of
	taken int64
	eof   bool

	cursor treeCursor

	blobs map[string]Digest
	text  strings.Builder
	parts []Part
}

func (s *treeScanner) document(each func(*Tree, TreeEntry) error) (Tree, error) {
	t := Tree{Blobs: []Blob{}}
	if err := s.piece(func(c *treeCursor) { c.want(`{"blobs":[`) }); err != nil {
		return t, err
	}
	for first := true; ; first = false {
		var b Blob
		more := false
		if err := s.piece(func(c *treeCursor) {
			if more = c.next(first); more {
				b = c.blob()
			}
		}); err != nil {
			return t, err
		}
		if !more {
			break
		}
		s.blobs[string(b.Digest)] = b.Digest
		t.Blobs = append(t.Blobs, b)
	}
	if err := s.piece(func(c *treeCursor) {
		c.want(`,"digest":`)
		t.Digest = Digest(c.str())
		c.want(`,"entries":[`)
	}); err != nil {
		return t, err
	}
	if err := s.entries(&t, each); err != nil {
		return t, err
	}
	if err := s.piece(func(c *treeCursor) {
		c.want(`,"schema":`)
		t.Schema = string(c.str())
		c.want(`}`)
	}); err != nil {
		return t, err
	}
	if err := s.fill(); err != nil {
		return t, err
	}
	if len(s.buf) > 0 {
		return t, fmt.Errorf("byte %d: something follows the document", s.taken)
	}
	return t, nil
}

func (s *treeScanner) entries(t *Tree, each func(*Tree, TreeEntry) error) error {
	var raw rawEntry
	var more bool
	first := true
	scan := func(c *treeCursor) {
		if more = c.next(first); more {
			c.entry(&raw)
		}
	}
	for ; ; first = false {
		if err := s.piece(scan); err != nil {
			return err
		}
		if !more {
			return nil
		}
		if err := each(t, s.keep(&raw)); err != nil {
			return err
		}
	}
}

// piece lets scan take one piece of the document, which is called again when the
// window was too short for it.
func (s *treeScanner) piece(scan func(*treeCursor)) error {
	for {
		c := &s.cursor
		*c = treeCursor{b: s.buf}
		scan(c)
		switch {
		case c.err == nil:
			s.buf = s.buf[c.i:]
			s.taken += int64(c.i)
			return nil
		case !errors.Is(c.err, errShort) || s.eof:
			return fmt.Errorf("byte %d: %w", s.taken+int64(c.i), c.err)
		}
		if err := s.fill(); err != nil {
			return err
		}
	}
}

// fill reads on: at least one byte, or the end.
func (s *treeScanner) fill() error {
	if len(s.room) == 0 {
		s.room = make([]byte, treeWindow)
	}
	if len(s.buf) > len(s.room)/2 {
		if len(s.room) >= maxTreeWindow {
			return fmt.Errorf("byte %d: an entry has more than %d bytes", s.taken, maxTreeWindow/2)
		}
		s.room = append(make([]byte, 0, 2*len(s.room)), s.buf...)[:2*len(s.room)]
	} else {
		copy(s.room, s.buf)
	}
	n := len(s.buf)
	for stuck := 0; ; stuck++ {
		got, err := s.r.Read(s.room[n:])
		s.buf = s.room[:n+got]
		switch {
		case errors.Is(err, io.EOF):
			s.eof = true
			return nil
		case err != nil:
			return err
		case got > 0:
			return nil
		case stuck > 100:
			return io.ErrNoProgress
		}
	}
}

// keep makes an entry of what points into the window.
func (s *treeScanner) keep(raw *rawEntry) TreeEntry {
	e := TreeEntry{Path: s.string(raw.path), Kind: raw.kind, Executable: raw.executable, Size: raw.size,
		Digest: Digest(s.string(raw.digest)), Target: s.string(raw.target)}
	if len(raw.parts) == 0 {
		return e
	}
	if cap(s.parts)-len(s.parts) < len(raw.parts) {
		s.parts = make([]Part, 0, max(treeSlab/64, len(raw.parts)))
	}
	start := len(s.parts)
	for _, p := range raw.parts {
		blob, ok := s.blobs[string(p.blob)]
		if !ok {
			blob = Digest(p.blob)
		}
		s.parts = append(s.parts, Part{Blob: blob, Offset: p.offset, Length: p.length})
	}
	e.Parts = s.parts[start:len(s.parts):len(s.parts)]
	return e
}

// string copies b to the end of a slab: many strings are one allocation.
func (s *treeScanner) string(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s.text.Cap()-s.text.Len() < len(b) {
		s.text.Reset()
		s.text.Grow(max(treeSlab, len(b)))
	}
	start := s.text.Len()
	s.text.Write(b)
	return s.text.String()[start:]
}

// rawEntry is an entry that points into the window.
type rawEntry struct {
	path, digest, target []byte
	kind                 string
	executable           bool
	size                 int64
	parts                []rawPart
}

type rawPart struct {
	blob           []byte
	offset, length int64
}

// treeCursor scans a window. The first error stays.
type treeCursor struct {
	b   []byte
	i   int
	err error
}

func (c *treeCursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *treeCursor) short() {
	if c.err == nil {
		c.err = errShort
	}
}

// has takes a literal if it comes next.
func (c *treeCursor) has(lit string) bool {
	if c.err != nil {
		return false
	}
	rest := c.b[c.i:]
	if len(rest) < len(lit) {
		if string(rest) == lit[:len(rest)] {
			c.short()
		}
		return false
	}
	if string(rest[:len(lit)]) != lit {
		return false
	}
	c.i += len(lit)
	return true
}

func (c *treeCursor) want(lit string) {
	if !c.has(lit) {
		c.fail("want %s: it is not the canonical JSON of a tree", lit)
	}
}

// next says whether a list goes on.
func (c *treeCursor) next(first bool) bool {
	if c.has("]") {
		return false
	}
	if !first {
		c.want(",")
	}
	return c.err == nil
}

func (c *treeCursor) blob() (b Blob) {
	c.want("{")
	if c.has(`"content_digest":`) {
		b.ContentDigest = Digest(c.filled())
		c.want(",")
	}
	if c.has(`"content_size":`) {
		b.ContentSize = c.notZero()
		c.want(",")
	}
	c.want(`"digest":`)
	b.Digest = Digest(c.str())
	c.want(`,"media_type":`)
	b.MediaType = string(c.str())
	c.want(`,"size":`)
	b.Size = c.number()
	c.want("}")
	return b
}

func (c *treeCursor) entry(e *rawEntry) {
	*e = rawEntry{parts: e.parts[:0]}
	c.want("{")
	if c.has(`"digest":`) {
		e.digest = c.filled()
		c.want(",")
	}
	e.executable = c.has(`"executable":true,`)
	c.want(`"kind":`)
	e.kind = kindName(c.str())
	c.want(",")
	if c.has(`"parts":[`) {
		for first := true; c.next(first); first = false {
			e.parts = append(e.parts, c.part())
		}
		if len(e.parts) == 0 {
			c.fail("no parts")
		}
		c.want(",")
	}
	c.want(`"path":`)
	e.path = c.str()
	if c.has(`,"size":`) {
		e.size = c.notZero()
	}
	if c.has(`,"target":`) {
		e.target = c.filled()
	}
	c.want("}")
}

func (c *treeCursor) part() (p rawPart) {
	c.want(`{"blob":`)
	p.blob = c.str()
	c.want(`,"length":`)
	p.length = c.number()
	c.want(`,"offset":`)
	p.offset = c.number()
	c.want("}")
	return p
}

// kindName shares the constants: there are as many kinds as entries.
func kindName(b []byte) string {
	for _, k := range []string{EntryFile, EntryDir, EntrySymlink} {
		if string(b) == k {
			return k
		}
	}
	return string(b)
}

// filled is a string that would not be there if it were empty.
func (c *treeCursor) filled() []byte {
	b := c.str()
	if len(b) == 0 {
		c.fail("an empty string that is left out in canonical JSON")
	}
	return b
}

func (c *treeCursor) notZero() int64 {
	n := c.number()
	if n == 0 {
		c.fail("a zero that is left out in canonical JSON")
	}
	return n
}

// number takes a whole number as canonical JSON writes it.
func (c *treeCursor) number() int64 {
	if c.err != nil {
		return 0
	}
	start, minus := c.i, false
	if c.i < len(c.b) && c.b[c.i] == '-' {
		minus = true
		c.i++
	}
	digits := c.i
	var n int64
	for ; c.i < len(c.b) && c.b[c.i] >= '0' && c.b[c.i] <= '9'; c.i++ {
		if n = 10*n + int64(c.b[c.i]-'0'); n > MaxInteger {
			c.fail("a number beyond the largest that a document can carry exactly")
			return 0
		}
	}
	switch text := c.b[digits:c.i]; {
	case c.i == len(c.b):
		c.short()
	case len(text) == 0, text[0] == '0' && (len(text) > 1 || minus):
		c.i = start
		c.fail("want a whole number")
	}
	if minus {
		return -n
	}
	return n
}

// str takes a string and undoes its escapes. The result may point into the window.
func (c *treeCursor) str() []byte {
	c.want(`"`)
	if c.err != nil {
		return nil
	}
	rest := c.b[c.i:]
	end := bytes.IndexByte(rest, '"')
	if end >= 0 && unescaped(rest[:end]) {
		c.i += end + 1
		return rest[:end]
	}
	return c.escaped()
}

// unescaped says that a string stands for itself: printable ASCII without escapes.
func unescaped(b []byte) bool {
	for _, x := range b {
		if x < 0x20 || x >= 0x80 || x == '\\' {
			return false
		}
	}
	return true
}
