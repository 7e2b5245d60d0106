package experiments

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"assay/schemas"
)

const (
	maxDepth    = 100   // of nested values, and of parts of a key
	maxBrackets = 20000 // in a file; the library's work grows with the square of depth
)

// limitError says that a file is beyond what is read at all.
type limitError struct {
	where   Position
	message string
}

func (e *limitError) Error() string { return e.message }

// scan finds where every key and value of a TOML file stands. The library gives
// no positions of keys, so this reads the same text beside it. It judges nothing:
// on text that is not TOML it stops, and the library says what is wrong. The
// error is a *limitError.
func scan(text string) (Positions, []duplicate, error) {
	if n := strings.Count(text, "[") + strings.Count(text, "{"); n > maxBrackets {
		return nil, nil, &limitError{Position{1, 1}, fmt.Sprintf("%d brackets: an experiment file may have %d", n, maxBrackets)}
	}
	s := &scanner{text: text, line: 1, marks: Positions{"": {Position{1, 1}, Position{1, 1}}},
		arrays: map[string]int{}, valued: map[string]bool{}}
	for s.blank(); s.i < len(text) && !s.stopped; s.blank() {
		before := s.i
		if s.text[s.i] == '[' {
			s.header()
		} else {
			s.keyValue(s.table, 0)
		}
		if s.i == before {
			break
		}
	}
	if s.limit != nil {
		return nil, nil, s.limit
	}
	return s.marks, s.duplicates, nil
}

type scanner struct {
	text    string
	i       int
	line    int
	counted int // up to where column has been counted on this line
	column  int
	marks   Positions
	arrays  map[string]int  // pointer of an array of tables -> elements so far
	valued  map[string]bool // pointers that were given a value
	table   string          // pointer of the table the last header opened
	stopped bool
	limit   *limitError

	duplicates []duplicate
}

// duplicate is a key that was given a value twice.
type duplicate struct{ first, second Position }

func (s *scanner) stop() { s.stopped = true }

func (s *scanner) tooDeep() {
	s.stop()
	s.limit = &limitError{s.here(), fmt.Sprintf("nested deeper than %d", maxDepth)}
}

// here is the present position. Columns are counted on from the last call, so
// that one very long line costs one pass.
func (s *scanner) here() Position {
	s.column += utf8.RuneCountInString(s.text[s.counted:s.i])
	s.counted = s.i
	return Position{Line: s.line, Column: s.column + 1}
}

func (s *scanner) peek() byte {
	if s.i < len(s.text) {
		return s.text[s.i]
	}
	return 0
}

func (s *scanner) take(prefix string) bool {
	if strings.HasPrefix(s.text[s.i:], prefix) {
		s.i += len(prefix)
		return true
	}
	return false
}

// step passes one byte, counting lines.
func (s *scanner) step() {
	if s.text[s.i] == '\n' {
		s.line++
		s.counted, s.column = s.i+1, 0
	}
	s.i++
}

func (s *scanner) spaces() {
	for s.i < len(s.text) && (s.text[s.i] == ' ' || s.text[s.i] == '\t') {
		s.i++
	}
}

// blank passes white space, line ends and comments.
func (s *scanner) blank() {
	for s.i < len(s.text) {
		switch s.text[s.i] {
		case ' ', '\t', '\r', '\n':
			s.step()
		case '#':
			for s.i < len(s.text) && s.text[s.i] != '\n' {
				s.i++
			}
		default:
			return
		}
	}
}

type keyPart struct {
	name string
	at   Position
}

// key reads a dotted key.
func (s *scanner) key() []keyPart {
	var parts []keyPart
	for !s.stopped {
		s.spaces()
		at := s.here()
		var name string
		if c := s.peek(); c == '"' || c == '\'' {
			name = s.str()
		} else {
			start := s.i
			for s.i < len(s.text) && !strings.ContainsRune(" \t\r\n.=[]{},#\"'", rune(s.text[s.i])) {
				s.i++
			}
			name = s.text[start:s.i]
			if name == "" {
				s.stop()
			}
		}
		parts = append(parts, keyPart{name, at})
		if len(parts) > maxDepth {
			s.tooDeep()
		}
		s.spaces()
		if !s.take(".") {
			break
		}
	}
	return parts
}

// place marks every part of a key below base and returns the pointer of the
// last. Parts that name an array of tables go on in its last element.
func (s *scanner) place(base string, parts []keyPart) string {
	for i, p := range parts {
		base += schemas.Pointer(p.name)
		if _, ok := s.marks[base]; !ok {
			s.marks[base] = Mark{Key: p.at, Value: p.at}
		}
		if n, ok := s.arrays[base]; ok && i < len(parts)-1 {
			base += "/" + strconv.Itoa(n-1)
		}
	}
	return base
}

func (s *scanner) header() {
	array := s.take("[[")
	if !array {
		s.take("[")
	}
	parts := s.key()
	if s.stopped || !s.take("]") || array && !s.take("]") {
		s.stop()
		return
	}
	s.table = s.place("", parts)
	at := parts[len(parts)-1].at
	if !array {
		// The header is where the table stands, though a longer one came before.
		s.marks[s.table] = Mark{Key: at, Value: at}
		return
	}
	n := s.arrays[s.table]
	s.arrays[s.table] = n + 1
	s.table += "/" + strconv.Itoa(n)
	s.marks[s.table] = Mark{Key: at, Value: at}
}

func (s *scanner) keyValue(base string, depth int) {
	parts := s.key()
	if s.stopped || !s.take("=") {
		s.stop()
		return
	}
	s.spaces()
	pointer := s.place(base, parts)
	if s.valued[pointer] {
		s.duplicates = append(s.duplicates, duplicate{s.marks[pointer].Key, parts[len(parts)-1].at})
	}
	s.valued[pointer] = true
	s.marks[pointer] = Mark{Key: parts[len(parts)-1].at, Value: s.here()}
	s.value(pointer, depth)
}

func (s *scanner) value(pointer string, depth int) {
	if depth > maxDepth {
		s.tooDeep()
		return
	}
	switch s.peek() {
	case '"', '\'':
		s.str()
	case '[':
		s.i++
		s.list(pointer, depth)
	case '{':
		s.i++
		s.inlineTable(pointer, depth)
	default:
		start := s.i
		for s.i < len(s.text) && !strings.ContainsRune(",]}#\r\n", rune(s.text[s.i])) {
			s.i++
		}
		if s.i == start {
			s.stop()
		}
	}
}

func (s *scanner) list(pointer string, depth int) {
	for n := 0; !s.stopped; n++ {
		s.blank()
		if s.take("]") {
			return
		}
		at := s.here()
		element := pointer + "/" + strconv.Itoa(n)
		s.marks[element] = Mark{Key: at, Value: at}
		s.value(element, depth+1)
		s.blank()
		s.take(",")
	}
}

func (s *scanner) inlineTable(pointer string, depth int) {
	for !s.stopped {
		s.blank()
		if s.take("}") {
			return
		}
		s.keyValue(pointer, depth+1)
		s.blank()
		s.take(",")
	}
}
