package loadgen

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"

	"assay/schemas"
)

// roomForChunks is how many chunks of a record get their room before they come.
const roomForChunks = 4096

// An answer may have this many token events, or token ids, for every token asked
// for, and some more: one that goes on is not to fill the memory until its time is
// over.
const (
	eventsPerToken = 8
	eventsMore     = 4096
)

// maxTokens is more than any true answer has.
const maxTokens = 10_000_000

// fault is what ends a request without success.
type fault struct {
	outcome schemas.Outcome
	text    string
}

// stream turns the events of one answer into a record.
type stream struct {
	rec    *schemas.RequestRecord
	parser *Parser
	quick  quick
	piece  piece
	text   hash.Hash
	now    int64 // stamp of the read whose events are being taken
	newest int   // the chunk that the newest event of the read made, -1 for none
	each   func(Event) error
	ended  bool // [DONE] was seen
	fault  *fault
	tap    *Tap
	whole  bool   // the answer is one piece, not a stream
	held   []byte // of such an answer

	promptIDs   int  // prompt token ids returned
	withoutIDs  bool // some token event came without token ids
	told        int  // completion tokens of usage, as of the last token event
	usagePrompt *int
	usageOutput *int
}

func newStream(rec *schemas.RequestRecord, maxEvent int) *stream {
	s := &stream{rec: rec, parser: NewParser(maxEvent), text: sha256.New()}
	s.each = s.event // one closure for all reads
	if n := min(rec.AskedOutputTokens, roomForChunks); n > cap(rec.Chunks) {
		rec.Chunks = append(make([]schemas.Chunk, 0, n), rec.Chunks...)
	}
	return s
}

func at(ns int64) *int64 { return &ns }

// stampLatest moves a stamp of the record's own; it allocates only the first time.
func stampLatest(to **int64, ns int64) {
	if *to == nil {
		*to = new(int64)
	}
	**to = ns
}

// feed takes the bytes of one read. Only what came last has its stamp for certain:
// every earlier event, and the last if a part of another follows it, lies between
// the read's two stamps, and its chunk says so.
func (s *stream) feed(b []byte, m mark) {
	if s.whole {
		s.hold(b, m)
		return
	}
	s.now, s.newest = m.at, -1
	from := len(s.rec.Chunks)
	if err := s.parser.Feed(b, s.each); err != nil {
		s.fail(schemas.OutcomeProtocolError, err.Error())
	}
	exact := s.newest
	if s.parser.Pending() || !m.exact {
		exact = -1
	}
	var since *int64
	for i := from; i < len(s.rec.Chunks); i++ {
		if i == exact {
			continue
		}
		if since == nil {
			since = at(min(m.since, m.at))
		}
		s.rec.Chunks[i].SinceNs = since
	}
}

func (s *stream) fail(o schemas.Outcome, text string) {
	if s.fault == nil {
		s.fault = &fault{outcome: o, text: text}
	}
}

// event takes one event; after the end or a fault nothing counts any more.
func (s *stream) event(ev Event) error {
	s.newest = -1
	if s.ended || s.fault != nil {
		return nil
	}
	if s.rec.FirstEventNs == nil {
		s.rec.FirstEventNs = at(s.now)
	}
	p, ok := s.quick.read(bytes.TrimSpace(ev.Data))
	if !ok || len(ev.Name) > 0 {
		var err error
		if p, err = parseEvent(ev); err != nil {
			return err
		}
	}
	s.piece = p // of the stream, so that it need not be on the heap anew
	s.take(&s.piece)
	return nil
}

func (s *stream) take(p *piece) {
	switch {
	case p.done:
		s.ended = true
		s.rec.DoneNs = at(s.now)
		return
	case p.errText != "":
		s.fail(schemas.OutcomeSSEError, "error event: "+p.errText)
		return
	}
	s.promptIDs = max(s.promptIDs, len(p.promptIDs))
	// Some services send the ids of the whole answer with its last choice only.
	if p.finish != "" && s.withoutIDs && len(s.rec.TokenIDs) == 0 {
		s.rec.TokenIDs, p.tokenIDs = p.tokenIDs, nil
	}
	if p.generated() {
		s.token(p)
	}
	s.usage(p)
	if p.finish != "" && s.rec.FinishReason == "" {
		s.rec.FinishReason = p.finish
		s.rec.FinishNs = at(s.now)
		if p.finish == "error" || p.finish == "abort" {
			s.fail(schemas.OutcomeEngineError, fmt.Sprintf("the service ended the generation with finish reason %q", p.finish))
		}
	}
}

func (s *stream) token(p *piece) {
	r := s.rec
	if r.FirstTokenNs == nil {
		r.FirstTokenNs = at(s.now)
	}
	stampLatest(&r.LastTokenNs, s.now)
	if len(p.visible) > 0 {
		if r.FirstVisibleNs == nil {
			r.FirstVisibleNs = at(s.now)
		}
		s.text.Write(p.visible)
		s.tap.text(r.Index, p.visible)
	}
	c := schemas.Chunk{AtNs: s.now, Bytes: len(p.visible) + p.hiddenBytes, Hidden: len(p.visible) == 0}
	if n, ok := s.tokensOf(p); ok {
		c.Tokens = tokenCount(n)
	}
	if limit := eventsPerToken*r.AskedOutputTokens + eventsMore; len(r.Chunks) >= limit || len(r.TokenIDs) > limit {
		s.fail(schemas.OutcomeProtocolError, fmt.Sprintf("the answer goes on after %d token events; %d tokens were asked for", len(r.Chunks), r.AskedOutputTokens))
		return
	}
	r.Chunks = append(r.Chunks, c)
	s.newest = len(r.Chunks) - 1
}

// oneToken is what the count of nearly every event points to; nothing writes it.
var oneToken = 1

func tokenCount(n int) *int {
	if n == 1 {
		return &oneToken
	}
	own := n // escapes, unlike n
	return &own
}

// tokensOf is how many tokens an event carries, if the service tells: by token
// ids, else by the growth of a usage that comes with every event.
func (s *stream) tokensOf(p *piece) (int, bool) {
	if n := len(p.tokenIDs); n > 0 {
		s.rec.TokenIDs = append(s.rec.TokenIDs, p.tokenIDs...)
		return n, true
	}
	s.withoutIDs = true
	if p.usage == nil || p.usage.CompletionTokens == nil || p.choices == 0 {
		return 0, false
	}
	n := *p.usage.CompletionTokens - s.told
	if n < 0 {
		return 0, false
	}
	s.told = *p.usage.CompletionTokens
	return n, true
}

func (s *stream) usage(p *piece) {
	if p.usage == nil {
		return
	}
	keep(&s.usagePrompt, p.usage.PromptTokens)
	keep(&s.usageOutput, p.usage.CompletionTokens)
	stampLatest(&s.rec.UsageNs, s.now)
}

// keep copies a count that is there; it allocates only the first time.
func keep(to **int, n *int) {
	if n == nil {
		return
	}
	if *to == nil {
		*to = new(int)
	}
	**to = *n
}

// end takes what the stream's last bytes left without a blank line. clean says
// that the body was complete, as its framing tells.
func (s *stream) end(now int64, clean bool) {
	s.now = now
	if s.whole {
		s.endWhole(clean)
		return
	}
	ev, ok, err := s.parser.Rest()
	switch {
	case s.ended || s.fault != nil:
	case err != nil:
		s.fail(schemas.OutcomeProtocolError, err.Error())
	case ok:
		if p, perr := parseEvent(ev); perr == nil {
			if s.rec.FirstEventNs == nil {
				s.rec.FirstEventNs = at(now)
			}
			s.take(&p)
		} else {
			s.fail(schemas.OutcomeTruncated, "the stream ended within an event")
		}
	}
	if s.rec.DoneNs == nil && clean && s.rec.FinishReason != "" && s.fault == nil {
		s.rec.DoneNs = at(now)
	}
}

// finish settles counts and outcome. failure is what went wrong outside the
// stream's content, nil if nothing did.
func (s *stream) finish(failure *fault) {
	s.count()
	r := s.rec
	if s.fault == nil && !(s.ended && r.FinishReason != "") {
		s.fault = failure
	}
	switch {
	case s.fault != nil:
	case r.FinishReason == "" || r.DoneNs == nil:
		s.fail(schemas.OutcomeTruncated, s.missingEnd())
	case len(r.Chunks) == 0:
		s.fail(schemas.OutcomeNoToken, "the answer ended properly without any generated token")
	case r.Held && r.OutputTokensSource == "chunks" && r.FinishReason == "length" && *r.OutputTokens < r.AskedOutputTokens:
		// An event may hold several tokens: fewer events than tokens prove nothing where
		// the service says that it went on to the limit.
	case r.Held && r.OutputTokens != nil && *r.OutputTokens != r.AskedOutputTokens:
		s.fail(schemas.OutcomeLengthMismatch, fmt.Sprintf("%d output tokens (by %s), held to %d", *r.OutputTokens, r.OutputTokensSource, r.AskedOutputTokens))
	case r.Held && len(r.TokenIDs) > 0 && len(r.TokenIDs) != r.AskedOutputTokens:
		s.fail(schemas.OutcomeLengthMismatch, fmt.Sprintf("%d output tokens (by token_ids), held to %d", len(r.TokenIDs), r.AskedOutputTokens))
	}
	if s.fault == nil {
		r.Outcome = schemas.OutcomeOK
		return
	}
	r.Outcome, r.Error = s.fault.outcome, s.fault.text
}

func (s *stream) missingEnd() string {
	if s.rec.FinishReason == "" {
		return fmt.Sprintf("the stream ended after %d token events without a finish reason", len(s.rec.Chunks))
	}
	return "the stream ended without [DONE] and without the end of its body"
}

// count chooses the source of the token counts: usage, else ids, else chunks.
func (s *stream) count() {
	r := s.rec
	switch {
	case s.usageOutput != nil:
		r.OutputTokens, r.OutputTokensSource = s.usageOutput, "usage"
	case len(r.TokenIDs) > 0:
		n := len(r.TokenIDs)
		r.OutputTokens, r.OutputTokensSource = &n, "token_ids"
	case len(r.Chunks) > 0:
		n := len(r.Chunks)
		r.OutputTokens, r.OutputTokensSource = &n, "chunks"
	}
	switch {
	case s.usagePrompt != nil && (*s.usagePrompt > 0 || r.InputTokens != nil): // no prompt is empty: 0 is a count that was not made
		r.InputTokens, r.InputTokensSource = s.usagePrompt, "usage"
	case s.promptIDs > 0:
		n := s.promptIDs
		r.InputTokens, r.InputTokensSource = &n, "token_ids"
	case len(r.Chunks) == 0: // whether it read the prompt is not known
		r.InputTokens, r.InputTokensSource = nil, ""
	}
	if len(r.Chunks) > 0 {
		r.TextDigest = schemas.DigestFromSum(s.text.Sum(nil))
	}
}
