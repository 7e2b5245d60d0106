package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"
)

// scanner reads the little JSON that a safetensors header is made of, strictly and
// without recursion: it cannot be led deeper than the format goes.
type scanner struct {
	b  []byte
	at int
}

// syntaxError is what is wrong with a text, and where.
type syntaxError struct {
	at   int
	what string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("at byte %d: %s", e.at, e.what) }

func (s *scanner) wrong(format string, args ...any) error {
	return &syntaxError{at: s.at, what: fmt.Sprintf(format, args...)}
}

// space passes over white space and returns the byte after it, 0 at the end.
func (s *scanner) space() byte {
	for s.at < len(s.b) {
		switch c := s.b[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) want(c byte) error {
	if got := s.space(); got != c || s.at >= len(s.b) {
		if s.at >= len(s.b) {
			return s.wrong("the header ends where %q is expected", c)
		}
		return s.wrong("%q stands where %q is expected", got, c)
	}
	s.at++
	return nil
}

// each calls element between the two brackets, once for each element.
func (s *scanner) each(open, shut byte, element func() error) error {
	if err := s.want(open); err != nil {
		return err
	}
	if s.space() == shut {
		s.at++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.space() != ',' {
			return s.want(shut)
		}
		s.at++
	}
}

// member reads a name and the colon after it.
func (s *scanner) member() (string, error) {
	name, err := s.text()
	if err == nil {
		err = s.want(':')
	}
	return name, err
}

func (s *scanner) text() (string, error) {
	if err := s.want('"'); err != nil {
		return "", err
	}
	start, escaped := s.at, false
	for ; s.at < len(s.b); s.at++ {
		switch c := s.b[s.at]; {
		case c == '\\':
			escaped = true
			s.at++
		case c < ' ':
			return "", s.wrong("a text holds a control character")
		case c == '"':
			raw := s.b[start:s.at]
			s.at++
			if !utf8.Valid(raw) {
				return "", s.wrong("a text is not valid UTF-8")
			}
			if !escaped {
				return string(raw), nil
			}
			var out string
			if err := json.Unmarshal(s.b[start-1:s.at], &out); err != nil {
				return "", s.wrong("a text has an escape that is none")
			}
			return out, nil
		}
	}
	return "", s.wrong("a text does not end")
}

// whole reads a whole number from 0 up.
func (s *scanner) whole() (uint64, error) {
	if s.space(); s.at >= len(s.b) || s.b[s.at] < '0' || s.b[s.at] > '9' {
		return 0, s.wrong("a whole number from 0 up is expected")
	}
	var n uint64
	start := s.at
	for ; s.at < len(s.b) && s.b[s.at] >= '0' && s.b[s.at] <= '9'; s.at++ {
		d := uint64(s.b[s.at] - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, s.wrong("a number is beyond what 64 bits hold")
		}
		n = n*10 + d
	}
	if s.b[start] == '0' && s.at-start > 1 {
		return 0, s.wrong("a number begins with 0")
	}
	if s.at < len(s.b) && (s.b[s.at] == '.' || s.b[s.at] == 'e' || s.b[s.at] == 'E') {
		return 0, s.wrong("a whole number from 0 up is expected")
	}
	return n, nil
}

// tooDeep says whether brackets of JSON stand inside each other more often than
// limit. It looks at nothing else.
func tooDeep(b []byte, limit int) bool {
	depth, inside := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		case inside:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
