package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
)

// forms are the spellings of a value that are looked for.
func forms(value string) []string {
	if value == "" {
		return nil
	}
	list := []string{value, url.QueryEscape(value), url.PathEscape(value), strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(value)}
	for _, inner := range []string{inJSON(value, true), inJSON(value, false), inASCII(value)} {
		list = append(list, inner, inJSON(inner, false))
	}
	// Of base64 only the whole groups of three bytes are certain: what follows the
	// value shares the last group.
	if whole := len(value) / 3 * 3; whole >= 6 {
		list = append(list, base64.StdEncoding.EncodeToString([]byte(value[:whole])), base64.URLEncoding.EncodeToString([]byte(value[:whole])))
	}
	return list
}

// inJSON is the value within a JSON string.
func inJSON(value string, html bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if err := enc.Encode(value); err != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), "\""), "\"")
}

// inASCII is the value within a JSON string of an encoder that writes ASCII only.
func inASCII(value string) string {
	var b strings.Builder
	for _, r := range inJSON(value, false) {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, "\\u%04x\\u%04x", hi, lo)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}
