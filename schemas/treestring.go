package schemas

import (
	"strings"
	"unicode/utf8"
)

// escaped takes the rest of a string that has escapes or is not ASCII. The
// escapes are those that appendString writes and no others.
func (c *treeCursor) escaped() []byte {
	var out []byte
	for c.i < len(c.b) {
		switch x := c.b[c.i]; {
		case x == '"':
			c.i++
			return out
		case x == '\\':
			b, n := unescape(c.b[c.i:])
			if n == 0 {
				c.badEscape()
				return nil
			}
			out = append(out, b)
			c.i += n
		case x < 0x20:
			c.fail("a control character that is not escaped")
			return nil
		case x < utf8.RuneSelf:
			out = append(out, x)
			c.i++
		case !utf8.FullRune(c.b[c.i:]):
			c.short()
			return nil
		default:
			r, n := utf8.DecodeRune(c.b[c.i:])
			if r == utf8.RuneError && n == 1 {
				c.fail("a string that is not UTF-8")
				return nil
			}
			out = append(out, c.b[c.i:c.i+n]...)
			c.i += n
		}
	}
	c.short()
	return nil
}

func (c *treeCursor) badEscape() {
	if len(c.b)-c.i < len(`\u0000`) {
		c.short()
		return
	}
	c.fail("an escape that canonical JSON does not use")
}

// unescape returns the byte an escape stands for and the length of the escape; 0
// for one that is not canonical, or not whole.
func unescape(b []byte) (byte, int) {
	const letters, bytes = `btnfr"\`, "\b\t\n\f\r\"\\"
	if len(b) < 2 {
		return 0, 0
	}
	if i := strings.IndexByte(letters, b[1]); i >= 0 {
		return bytes[i], 2
	}
	if len(b) < 6 || string(b[1:4]) != "u00" || b[4] > '1' || b[4] < '0' {
		return 0, 0
	}
	low := strings.IndexByte("0123456789abcdef", b[5])
	if low < 0 {
		return 0, 0
	}
	x := (b[4]-'0')<<4 | byte(low)
	if strings.IndexByte(bytes, x) >= 0 {
		return 0, 0 // has a short form
	}
	return x, 6
}
