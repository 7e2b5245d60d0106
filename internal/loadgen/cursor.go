package loadgen

import (
	"strconv"
	"unicode/utf8"
)

// cursor walks JSON that is known to be valid.
type cursor struct {
	d []byte
	i int
}

// peek is the next byte that is not white space, 0 at the end.
func (c *cursor) peek() byte {
	for c.i < len(c.d) {
		switch b := c.d[c.i]; b {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return b
		}
	}
	return 0
}

// byte passes b if it is next.
func (c *cursor) byte(b byte) bool {
	if c.peek() != b {
		return false
	}
	c.i++
	return true
}

// null passes null.
func (c *cursor) null() bool {
	if c.peek() != 'n' {
		return false
	}
	c.i += len("null")
	return true
}

// nothing passes null or an empty list.
func (c *cursor) nothing() bool { return c.null() || c.byte('[') && c.byte(']') }

// text passes a string and returns it as it is written, escapes and all.
func (c *cursor) text() ([]byte, bool) {
	if !c.byte('"') {
		return nil, false
	}
	from := c.i
	for c.d[c.i] != '"' {
		if c.d[c.i] == '\\' {
			c.i++
		}
		c.i++
	}
	c.i++
	return c.d[from : c.i-1], true
}

// number passes a whole number of 0 to maxTokens, written in digits.
func (c *cursor) number() (int, bool) {
	c.peek()
	n, from := 0, c.i
	for c.i < len(c.d) && '0' <= c.d[c.i] && c.d[c.i] <= '9' {
		if n = 10*n + int(c.d[c.i]-'0'); n > maxTokens {
			return 0, false
		}
		c.i++
	}
	next := c.peek()
	return n, c.i > from && (next == ',' || next == '}' || next == ']')
}

// enter passes the start of an object; it and next return the key of each member,
// with the cursor at the value.
func (c *cursor) enter() (key []byte, more bool) {
	c.byte('{')
	if c.byte('}') {
		return nil, false
	}
	return c.key()
}

// next goes on after a member's value was passed.
func (c *cursor) next() (key []byte, more bool) {
	if !c.byte(',') {
		c.byte('}')
		return nil, false
	}
	return c.key()
}

func (c *cursor) key() ([]byte, bool) {
	key, ok := c.text()
	return key, ok && c.byte(':')
}

// skip passes any value.
func (c *cursor) skip() {
	depth := 0
	for {
		switch c.peek() {
		case '"':
			c.text()
		case '{', '[':
			depth++
			c.i++
			continue
		case '}', ']':
			depth--
			c.i++
		case ',', ':':
			c.i++
			continue
		default:
			c.literal()
		}
		if depth <= 0 || c.i >= len(c.d) {
			return
		}
	}
}

// literal passes a number, true, false or null.
func (c *cursor) literal() {
	for c.i < len(c.d) {
		switch c.d[c.i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return
		}
		c.i++
	}
}

// unescape appends what a JSON string stands for. Surrogates are not for it.
func unescape(to, raw []byte) ([]byte, bool) {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			to = append(to, raw[i])
			continue
		}
		i++
		switch raw[i] {
		case 'n':
			to = append(to, '\n')
		case 't':
			to = append(to, '\t')
		case 'r':
			to = append(to, '\r')
		case 'b':
			to = append(to, '\b')
		case 'f':
			to = append(to, '\f')
		case 'u':
			r, err := strconv.ParseUint(string(raw[i+1:i+5]), 16, 16)
			if err != nil || 0xD800 <= r && r < 0xE000 {
				return to, false
			}
			to = utf8.AppendRune(to, rune(r))
			i += 4
		default: // a quote, a slash, a backslash
			to = append(to, raw[i])
		}
	}
	return to, true
}
