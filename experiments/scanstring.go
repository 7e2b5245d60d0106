package experiments

import (
	"strconv"
	"strings"
)

// str reads a quoted string of any of the four forms and returns its value.
func (s *scanner) str() string {
	quote := s.text[s.i : s.i+1]
	if s.take(strings.Repeat(quote, 3)) {
		return s.multiLine(quote)
	}
	s.i++
	start := s.i
	for s.i < len(s.text) {
		switch c := s.text[s.i]; {
		case c == '\n':
			s.stop()
			return ""
		case c == quote[0]:
			raw := s.text[start:s.i]
			s.i++
			if quote == "'" {
				return raw
			}
			return unescape(raw)
		case c == '\\' && quote == `"`:
			s.i++
		}
		if s.i < len(s.text) && s.text[s.i] != '\n' {
			s.i++
		}
	}
	s.stop()
	return ""
}

// multiLine reads up to three closing quotes; up to two more belong to the text.
func (s *scanner) multiLine(quote string) string {
	start, closing := s.i, strings.Repeat(quote, 3)
	for s.i < len(s.text) {
		if strings.HasPrefix(s.text[s.i:], closing) {
			end := s.i
			s.i += 3
			for extra := 0; extra < 2 && s.peek() == quote[0] && s.i < len(s.text); extra++ {
				s.i++
				end++
			}
			raw := strings.TrimPrefix(strings.TrimPrefix(s.text[start:end], "\r"), "\n")
			if quote == "'" {
				return raw
			}
			return unescape(foldLines(raw))
		}
		if s.text[s.i] == '\\' && quote == `"` && s.i+1 < len(s.text) {
			s.step()
		}
		s.step()
	}
	s.stop()
	return ""
}

// foldLines removes a backslash at a line's end and the white space after it.
func foldLines(raw string) string {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			b.WriteByte(raw[i])
			continue
		}
		rest := strings.TrimLeft(raw[i+1:], " \t\r\n")
		if gap := raw[i+1 : len(raw)-len(rest)]; strings.Contains(gap, "\n") {
			i += len(gap)
			continue
		}
		b.WriteString(raw[i : i+2])
		i++
	}
	return b.String()
}

var simpleEscapes = map[byte]byte{'b': '\b', 't': '\t', 'n': '\n', 'f': '\f', 'r': '\r', 'e': 0x1b, '"': '"', '\\': '\\'}

var hexEscapes = map[byte]int{'x': 2, 'u': 4, 'U': 8}

func unescape(raw string) string {
	if !strings.Contains(raw, `\`) {
		return raw
	}
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			b.WriteByte(raw[i])
			continue
		}
		i++
		if c, ok := simpleEscapes[raw[i]]; ok {
			b.WriteByte(c)
			continue
		}
		n, ok := hexEscapes[raw[i]]
		if !ok || i+n >= len(raw) {
			continue
		}
		if code, err := strconv.ParseUint(raw[i+1:i+1+n], 16, 32); err == nil {
			b.WriteRune(rune(code))
		}
		i += n
	}
	return b.String()
}
