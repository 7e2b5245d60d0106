package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What is printed as text may hold names and messages of other programs: what a
// terminal would obey is written so that it can be read.

// safeText writes control bytes, and what is no UTF-8, as \x1b or \u202e. Newlines
// and tabs stay.
func safeText(s string) string { return escape(s, true) }

// safeName is safeText for a name, which is no text of several lines.
func safeName(s string) string { return escape(s, false) }

func escape(s string, lines bool) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return hides(r, lines) }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1, r < 0x80 && hides(r, lines):
			fmt.Fprintf(&b, "\\x%02x", s[i])
		case hides(r, lines) && r != utf8.RuneError:
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// hides says of a character that it is not seen as itself: control characters, and
// those that turn the direction of what follows. A byte that is no UTF-8 counts.
func hides(r rune, lines bool) bool {
	if lines && (r == '\n' || r == '\t') {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError || r == '\u2028' || r == '\u2029'
}
