package loadgen

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// quick reads the token events that make up nearly all of a stream, without
// allocating. It takes only what it is sure to understand as parseEvent would, and
// leaves everything else to it.
type quick struct {
	scratch            []byte // unescaped text
	use                usage
	prompt, completion int
}

// The finish reasons it knows; a string constant costs nothing.
var finishReasons = []string{"length", "stop", "abort", "error", "tool_calls", "content_filter"}

// Bits of the keys seen, as a key that comes twice is not for quick.
const (
	keyError = 1 << iota
	keyObject
	keyChoices
	keyUsage
	keyIDs
	keyIndex
	keyText
	keyDelta
	keyFinish
	keyContent
	keyOther
	keyPrompt
	keyCompletion
)

// read takes an event's data, without white space around it; ok false means that it
// is for parseEvent. The piece is valid until the next call.
func (q *quick) read(data []byte) (p piece, ok bool) {
	if len(data) == 0 || data[0] != '{' || !utf8.Valid(data) || !json.Valid(data) {
		return piece{}, false
	}
	c := cursor{d: data}
	seen := 0
	for key, more := c.enter(); more; key, more = c.next() {
		bit := 0
		switch string(key) {
		case "error", "message", "prompt_token_ids":
			bit, ok = keyBit(key), c.null()
		case "object":
			raw, is := c.text()
			bit, ok = keyObject, is && string(raw) != "error" && !bytes.ContainsRune(raw, '\\')
		case "choices":
			bit, ok = keyChoices, q.choices(&c, &p)
		case "usage":
			bit, ok = keyUsage, q.usage(&c, &p)
		default:
			ok = plainKey(key)
			c.skip()
		}
		if !ok || seen&bit != 0 {
			return piece{}, false
		}
		seen |= bit
	}
	return p, true
}

func keyBit(key []byte) int {
	switch string(key) {
	case "error":
		return keyError
	case "prompt_token_ids":
		return keyIDs
	}
	return keyOther
}

// plainKey refuses keys that encoding/json may take for one of ours: it ignores
// case.
func plainKey(key []byte) bool {
	for _, b := range key {
		if b >= 0x80 || b == '\\' || 'A' <= b && b <= 'Z' {
			return false
		}
	}
	return true
}

// choices takes null, no choice, or one.
func (q *quick) choices(c *cursor, p *piece) bool {
	if c.null() {
		return true
	}
	if !c.byte('[') {
		return false
	}
	if c.byte(']') {
		return true
	}
	if !q.choice(c, p) || !c.byte(']') {
		return false
	}
	p.choices = 1
	return true
}

func (q *quick) choice(c *cursor, p *piece) bool {
	if c.peek() != '{' {
		return false
	}
	var ok bool
	seen := 0
	for key, more := c.enter(); more; key, more = c.next() {
		bit := 0
		switch string(key) {
		case "index":
			n, is := c.number()
			bit, ok = keyIndex, is && n == 0
		case "text":
			bit, ok = keyText, q.visible(c, p)
		case "delta":
			bit, ok = keyDelta, q.delta(c, p)
		case "finish_reason":
			bit, ok = keyFinish, finish(c, p)
		case "message":
			ok = c.null()
		case "token_ids":
			bit, ok = keyIDs, c.nothing()
		case "prompt_token_ids":
			bit, ok = keyPrompt, c.nothing()
		default:
			ok = plainKey(key)
			c.skip()
		}
		if !ok || seen&bit != 0 {
			return false
		}
		seen |= bit
	}
	return true
}

func (q *quick) delta(c *cursor, p *piece) bool {
	if c.null() {
		return true
	}
	if c.peek() != '{' {
		return false
	}
	var ok bool
	seen := 0
	for key, more := c.enter(); more; key, more = c.next() {
		bit := 0
		switch string(key) {
		case "content":
			bit, ok = keyContent, q.visible(c, p)
		case "refusal", "reasoning_content", "reasoning", "tool_calls", "function_call", "token_ids":
			ok = c.null()
		default:
			ok = plainKey(key)
			c.skip()
		}
		if !ok || seen&bit != 0 {
			return false
		}
		seen |= bit
	}
	return true
}

// visible takes a text, of which there may be one.
func (q *quick) visible(c *cursor, p *piece) bool {
	if c.null() {
		return true
	}
	raw, ok := c.text()
	if !ok || len(raw) == 0 {
		return ok
	}
	if len(p.visible) > 0 {
		return false
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		if q.scratch, ok = unescape(q.scratch[:0], raw); !ok {
			return false
		}
		raw = q.scratch
	}
	p.visible = raw
	return true
}

func finish(c *cursor, p *piece) bool {
	if c.null() {
		return true
	}
	raw, ok := c.text()
	if !ok {
		return false
	}
	for _, known := range finishReasons {
		if string(raw) == known {
			p.finish = known
			return true
		}
	}
	return false
}

func (q *quick) usage(c *cursor, p *piece) bool {
	if c.null() {
		return true
	}
	if c.peek() != '{' {
		return false
	}
	q.use = usage{}
	var ok bool
	seen := 0
	for key, more := c.enter(); more; key, more = c.next() {
		bit := 0
		switch string(key) {
		case "prompt_tokens":
			q.prompt, ok = c.number()
			bit, q.use.PromptTokens = keyPrompt, &q.prompt
		case "completion_tokens":
			q.completion, ok = c.number()
			bit, q.use.CompletionTokens = keyCompletion, &q.completion
		default:
			ok = plainKey(key)
			c.skip()
		}
		if !ok || seen&bit != 0 {
			return false
		}
		seen |= bit
	}
	p.usage = &q.use
	return true
}
