package foundry

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxDepth is how deep a document may be nested. Graphs need six levels.
const maxDepth = 64

// maxKeys is how many keys an object may have.
const maxKeys = 1 << 16

// parser reads JSON value by value, so that what a document holds is looked at as it
// comes and never kept whole. Numbers keep 64 bits, no key may stand twice in an object,
// and unknown keys are passed over.
type parser struct {
	b     []byte
	at    int
	depth int
}

// document reads one JSON document with nothing but white space behind it.
func document(b []byte, root func(p *parser) error) error {
	p := &parser{b: b}
	if err := root(p); err != nil {
		return err
	}
	if p.space(); p.at < len(b) {
		return p.wrong("something follows the document")
	}
	return nil
}

func (p *parser) wrong(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", p.at, fmt.Errorf(format, args...))
}

func (p *parser) space() {
	for p.at < len(p.b) && (p.b[p.at] == ' ' || p.b[p.at] == '\n' || p.b[p.at] == '\r' || p.b[p.at] == '\t') {
		p.at++
	}
}

// peek is the first byte of the next value, 0 at the end.
func (p *parser) peek() byte {
	if p.space(); p.at < len(p.b) {
		return p.b[p.at]
	}
	return 0
}

// open takes the beginning of an object or list, and says whether it is empty.
func (p *parser) open(begin, end byte) (empty bool, err error) {
	if p.peek() != begin {
		return false, p.wrong("want %q", begin)
	}
	if p.depth++; p.depth > maxDepth {
		return false, p.wrong("nested deeper than %d", maxDepth)
	}
	p.at++
	if p.peek() == end {
		p.at++
		p.depth--
		return true, nil
	}
	return false, nil
}

// next takes what stands between two members, and says whether there is another.
func (p *parser) next(end byte) (more bool, err error) {
	switch p.peek() {
	case ',':
		p.at++
		return true, nil
	case end:
		p.at++
		p.depth--
		return false, nil
	case 0:
		return false, p.wrong("the document ends too early")
	}
	return false, p.wrong("want a comma or %q", end)
}

func (p *parser) list(each func() error) error {
	empty, err := p.open('[', ']')
	for more := !empty; err == nil && more; {
		if err = each(); err == nil {
			more, err = p.next(']')
		}
	}
	return err
}

// object calls each with every key, to read its value.
func (p *parser) object(each func(key string) error) error {
	empty, err := p.open('{', '}')
	var seen keys
	for more := !empty; err == nil && more; {
		var key string
		if key, err = p.text(); err != nil {
			return err
		}
		if len(seen.many) > maxKeys {
			return p.wrong("an object with more than %d keys", maxKeys)
		}
		if seen.again(key) {
			return p.wrong("the key %.40q stands twice in one object", key)
		}
		if p.peek() != ':' {
			return p.wrong("want a colon")
		}
		p.at++
		if err = each(key); err == nil {
			more, err = p.next('}')
		}
	}
	return err
}

// keys are those of one object: a few are looked through, many are kept in a map.
type keys struct {
	few  []string
	many map[string]bool
}

func (k *keys) again(key string) bool {
	const few = 16
	if k.many == nil {
		for _, s := range k.few {
			if s == key {
				return true
			}
		}
		if k.few = append(k.few, key); len(k.few) <= few {
			return false
		}
		k.many = map[string]bool{}
		for _, s := range k.few {
			k.many[s] = true
		}
		return false
	}
	again := k.many[key]
	k.many[key] = true
	return again
}

func (p *parser) text() (string, error) {
	if p.peek() != '"' {
		return "", p.wrong("want a text")
	}
	begin, plain := p.at, true
	for p.at++; p.at < len(p.b) && p.b[p.at] != '"'; p.at++ {
		switch c := p.b[p.at]; {
		case c == '\\':
			plain = false
			p.at++
		case c < ' ':
			return "", p.wrong("a control character in a text")
		}
	}
	if p.at >= len(p.b) {
		return "", p.wrong("a text does not end")
	}
	p.at++
	raw := p.b[begin:p.at]
	if plain {
		if !utf8.Valid(raw) {
			return "", p.wrong("a text is not UTF-8")
		}
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", p.wrong("a text has a wrong escape")
	}
	return s, nil
}

// digits takes a number as it is written.
func (p *parser) digits() ([]byte, error) {
	begin := p.at
	for p.at < len(p.b) {
		if c := p.b[p.at]; (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
		p.at++
	}
	raw := p.b[begin:p.at]
	if !json.Valid(raw) {
		return nil, p.wrong("%.40q is no number", raw)
	}
	return raw, nil
}

// whole reads a number of 64 bits. A hash or an address has them all: as a floating
// point number it would be another one.
func (p *parser) whole() (uint64, error) {
	if c := p.peek(); c != '-' && (c < '0' || c > '9') {
		return 0, p.wrong("want a whole number")
	}
	raw, err := p.digits()
	if err != nil {
		return 0, err
	}
	const most = len("18446744073709551615")
	n, err := strconv.ParseUint(string(raw[:min(len(raw), most)]), 10, 64)
	if err != nil || len(raw) > most {
		return 0, p.wrong("%.40q is no whole number from 0 to 2^64-1", raw)
	}
	return n, nil
}

// skip passes over a value, and sees that it is one.
func (p *parser) skip() error {
	switch c := p.peek(); {
	case c == '{':
		return p.object(func(string) error { return p.skip() })
	case c == '[':
		return p.list(p.skip)
	case c == '"':
		_, err := p.text()
		return err
	case c == '-' || (c >= '0' && c <= '9'):
		_, err := p.digits()
		return err
	}
	for _, word := range []string{"null", "true", "false"} {
		if len(p.b)-p.at >= len(word) && string(p.b[p.at:p.at+len(word)]) == word {
			p.at += len(word)
			return nil
		}
	}
	return p.wrong("want a value")
}

// isDocument says what keeps b from being a JSON document.
func isDocument(b []byte) error { return document(b, (*parser).skip) }

var errNoObject = errors.New("want one JSON object")

// fields reads an object, and says which of the keys it has.
func fields(b []byte, need []string, each func(p *parser, key string) error) error {
	have := map[string]bool{}
	err := document(b, func(p *parser) error {
		if p.peek() != '{' {
			return errNoObject
		}
		return p.object(func(key string) error {
			for _, n := range need {
				have[key] = have[key] || n == key
			}
			return each(p, key)
		})
	})
	for _, n := range need {
		if err == nil && !have[n] {
			return fmt.Errorf("%s is missing", n)
		}
	}
	return err
}
