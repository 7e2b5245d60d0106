package loadgen

import (
	"bytes"

	"assay/schemas"
)

// hold keeps a part of an answer in one piece.
func (s *stream) hold(b []byte, m mark) {
	s.now = m.at
	if len(s.held)+len(b) > s.parser.limit {
		s.fail(schemas.OutcomeProtocolError, "the answer: "+(&EventTooLargeError{Limit: s.parser.limit}).Error())
		s.held = nil
		return
	}
	s.held = append(s.held, b...)
}

// endWhole reads an answer in one piece once all of it came. clean is false if its
// connection ended instead: it may be cut then.
func (s *stream) endWhole(clean bool) {
	if s.fault != nil || !clean {
		return
	}
	data := bytes.TrimSpace(s.held)
	p, ok := s.quick.read(data)
	if !ok {
		var err error
		if p, err = parseEvent(Event{Data: data}); err != nil {
			s.fail(schemas.OutcomeProtocolError, "the answer: "+err.Error())
			return
		}
	}
	s.rec.FirstEventNs = at(s.now)
	if s.take(&p); s.fault == nil {
		s.rec.DoneNs = at(s.now)
	}
}
