package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
)

// forms are the spellings of a value that are looked for.
func forms(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	list := []string{value, url.QueryEscape(value), url.PathEscape(value), strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(value)}
	for _, inner := range []string{inJSON(value, true), inJSON(value, false), inASCII(value)} {
		list = append(list, inner, inJSON(inner, false))
	}
	if len(value) >= 6 {
		list = append(list, inBase64(value)...)
		list = append(list, hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value))))
	}
	// A line end that came with a value is seldom sent along.
	if bare := strings.TrimSpace(value); bare != value {
		list = append(list, forms(bare)...)
	}
	return list
}

// inBase64 is the value within base64, wherever in a group of three bytes it
// begins. The characters at its ends that it shares with what stands beside it are
// left out.
func inBase64(value string) []string {
	var list []string
	for before := range 3 {
		b := append(make([]byte, before), value...)
		from, to := (8*before+5)/6, 8*len(b)/6
		list = append(list, base64.RawStdEncoding.EncodeToString(b)[from:to], base64.RawURLEncoding.EncodeToString(b)[from:to])
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
