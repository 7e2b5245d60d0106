package loadgen

import (
	"bytes"
	"fmt"
)

// DefaultMaxEventBytes is the largest event accepted.
const DefaultMaxEventBytes = 16 << 20

// EventTooLargeError says that a stream holds an event over the limit.
type EventTooLargeError struct {
	Limit int // bytes
}

func (e *EventTooLargeError) Error() string {
	return fmt.Sprintf("an event is larger than %d bytes", e.Limit)
}

// Event is one server-sent event. Its bytes are valid until the callback returns.
type Event struct {
	Name []byte // of the event field; empty for the default "message"
	Data []byte // the data lines, joined by newlines
}

// Parser splits a stream of bytes, cut anywhere, into events, as the HTML standard
// defines them: lines end with CR, LF or CRLF, a blank line ends an event, lines
// that begin with a colon are comments, an event without data is none.
type Parser struct {
	limit   int
	line    []byte // the part of a line that came with earlier bytes
	name    []byte
	data    []byte
	hasData bool
	skipLF  bool // the last byte was a CR
	started bool // past a byte order mark
}

// NewParser accepts events of up to limit bytes; 0 means DefaultMaxEventBytes.
func NewParser(limit int) *Parser {
	if limit <= 0 {
		limit = DefaultMaxEventBytes
	}
	return &Parser{limit: limit}
}

// Feed takes the next bytes of the stream and calls emit for every event that
// they complete. It stops at the first error, of emit or of its own.
func (p *Parser) Feed(b []byte, emit func(Event) error) error {
	for len(b) > 0 {
		if p.skipLF {
			p.skipLF = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		end := bytes.IndexAny(b, "\r\n")
		if end < 0 {
			return p.keep(b)
		}
		line := b[:end]
		if len(p.line) > 0 {
			if err := p.keep(line); err != nil {
				return err
			}
			line = p.line
		}
		p.skipLF = b[end] == '\r'
		b = b[end+1:]
		err := p.endLine(line, emit)
		p.line = p.line[:0]
		if err != nil {
			return err
		}
	}
	return nil
}

// Rest returns, at the end of the stream, the event that no blank line ended; ok
// is false if there is none. Whether it is whole only its content can tell.
func (p *Parser) Rest() (ev Event, ok bool, err error) {
	if len(p.line) > 0 {
		line := p.line
		p.line = nil
		if err := p.endLine(line, nil); err != nil {
			return Event{}, false, err
		}
	}
	return Event{Name: p.name, Data: p.data}, p.hasData, nil
}

// Pending says whether a part of an event came that is not complete.
func (p *Parser) Pending() bool { return len(p.line) > 0 || p.hasData }

func (p *Parser) keep(b []byte) error {
	if len(p.line)+len(p.data)+len(b) > p.limit {
		return &EventTooLargeError{Limit: p.limit}
	}
	p.line = append(p.line, b...)
	return nil
}

func (p *Parser) endLine(line []byte, emit func(Event) error) error {
	if !p.started {
		p.started = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		return p.dispatch(emit)
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "data":
		if len(p.data)+len(value)+1 > p.limit {
			return &EventTooLargeError{Limit: p.limit}
		}
		if p.hasData {
			p.data = append(p.data, '\n')
		}
		p.hasData = true
		p.data = append(p.data, value...)
	case "event":
		p.name = append(p.name[:0], value...)
	}
	return nil
}

func (p *Parser) dispatch(emit func(Event) error) error {
	ev, has := Event{Name: p.name, Data: p.data}, p.hasData
	p.hasData = false
	if !has {
		p.name = p.name[:0]
		return nil
	}
	err := emit(ev)
	p.name, p.data = p.name[:0], p.data[:0]
	return err
}
