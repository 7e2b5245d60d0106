package emulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"assay/internal/serving"
)

// generation is one request being answered.
type generation struct {
	s       *server
	http    *http.Request // its context ends when the client goes or the server stops
	w       http.ResponseWriter
	flush   *http.ResponseController
	req     *request
	out     output
	arrived time.Time
	fault   *Fault // nil: this request is served properly
	entry   Emission
	ticket  *serving.Ticket // nil: requests do not contend

	lastWrite time.Time // of tokens
}

var (
	// errClient says that nobody reads any more.
	errClient = errors.New("the client has gone")
	// errShutdown is why requests end when the server stops.
	errShutdown = errors.New("the server stops")
)

// generate answers a request to either endpoint.
func (s *server) generate(w http.ResponseWriter, r *http.Request, chat bool) {
	arrived := time.Now()
	number := s.seen.Add(1)
	fault := s.faultOf(number)
	if s.rejects(w, fault, number) {
		return
	}
	b, refused := readBody(w, r)
	if refused != nil {
		s.face.fail(w, refused)
		return
	} else if b == nil {
		return // the client has gone
	}
	req, refused := s.face.parse(s, b, chat)
	if refused != nil {
		s.face.fail(w, refused)
		return
	}
	if id := r.Header.Get("X-Request-Id"); id != "" {
		req.clientID = id
	}
	g := &generation{s: s, http: r, w: w, flush: http.NewResponseController(w), req: req, out: plan(s.config, req), arrived: arrived, fault: fault}
	g.entry = g.newEntry(number)
	if s.live != nil {
		if refused := s.live.admit(g); refused != nil {
			s.face.fail(w, refused)
			return
		}
	}
	g.answer()
}

// readBody reads a body of bounded size; both are nil when the client has gone.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *apiError) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return nil, badRequest("", fmt.Sprintf("the body is larger than %d bytes", maxBodyBytes)).withCode(http.StatusRequestEntityTooLarge, "request_too_large")
	} else if err != nil {
		return nil, nil
	}
	return b, nil
}

func (g *generation) newEntry(number int64) Emission {
	api, prefix := "completions", "cmpl-"
	if g.req.chat {
		api, prefix = "chat", "chatcmpl-"
	}
	id := g.req.clientID
	if id == "" || len(id) > 256 || !utf8.ValidString(id) {
		id, g.req.clientID = fmt.Sprintf("%d", number), ""
	}
	if g.s.config.Personality == PersonalityPyPTO { // whatever the client calls it
		id = fmt.Sprintf("%08x", uint32(number)*2654435761)
	}
	return Emission{
		Schema: EmissionV1, ID: prefix + id, RequestID: g.req.clientID, API: api, Model: g.req.model.Name, Stream: g.req.stream,
		ArrivedNs: g.s.log.ns(g.arrived), InputTokens: g.req.promptTokens, OutputTokens: len(g.out.ids), Chunks: []EmissionChunk{},
	}
}

// answer runs the generation and logs it, even when a fault ends it by panic,
// which is how a handler breaks its connection.
func (g *generation) answer() {
	err := errors.New("broken")
	tally := g.s.tally(g.req.model.Name)
	tally.begin()
	defer func() {
		tally.end(err == nil, len(g.entry.Chunks) > 0, g.out.finish, time.Since(g.arrived))
		g.entry.EndedNs = g.s.log.ns(time.Now())
		g.entry.Outcome = g.outcome(err)
		g.s.log.append(g.entry)
		if g.s.profiler != nil {
			g.s.profiler.request(g)
		}
	}()
	if g.req.stream {
		err = g.s.face.stream(g)
	} else {
		err = g.s.face.whole(g)
	}
	if err != nil && g.ticket != nil && !g.s.face.runsOn {
		g.ticket.Cancel()
	}
	if errors.Is(err, errCut) {
		panic(http.ErrAbortHandler)
	}
}

func (g *generation) outcome(err error) string {
	switch {
	case err != nil && errors.Is(context.Cause(g.http.Context()), errShutdown):
		return "shutdown"
	case errors.Is(err, errFault), errors.Is(err, errCut):
		return "fault:" + g.fault.Kind
	case errors.As(err, new(*serving.Failed)):
		return "failed"
	case err != nil:
		return "disconnected"
	case g.fault != nil && g.fault.Kind != faultSlowStart && g.fault.Kind != faultRefuse:
		return "fault:" + g.fault.Kind
	}
	return "ok"
}

// wait returns when token i is due.
func (g *generation) wait(i int) error {
	if g.ticket != nil {
		return g.s.live.await(g, i)
	}
	if !waitUntil(g.http.Context(), g.arrived.Add(g.out.due[i])) {
		return errClient
	}
	return nil
}

// waitWhole is wait for an answer of one piece: the client is told of a failure.
func (g *generation) waitWhole(i int) error {
	err := g.wait(i)
	var failed *serving.Failed
	if errors.As(err, &failed) {
		g.s.face.fail(g.w, failure(failed))
	}
	return err
}

func (g *generation) usage() *usage {
	u := usage{PromptTokens: g.req.promptTokens, CompletionTokens: g.out.shown()}
	if g.fault.is(faultLieUsage) {
		u.PromptTokens, u.CompletionTokens = u.PromptTokens+3, 2*u.CompletionTokens+1
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return &u
}

func (g *generation) envelope(object string) answer {
	return answer{ID: g.entry.ID, Object: object, Created: g.arrived.Unix(), Model: g.req.model.Name, Choices: []choice{}}
}

// whole answers with one JSON document when the last token is due.
func (g *generation) whole() error {
	n := len(g.out.ids)
	if at, ok := g.fault.at(n); ok {
		if at > 0 {
			if err := g.wait(at - 1); err != nil {
				return err
			}
		}
		return g.breakOff()
	}
	if err := g.waitWhole(n - 1); err != nil {
		return err
	}
	wide := g.fault.is(faultSplitUTF8)
	text := g.out.text(0, n, wide)
	if g.req.echo {
		text = g.req.promptText + " " + text
	}
	a, c := g.envelope("text_completion"), choice{FinishReason: &g.out.finish}
	if g.req.chat {
		a.Object = "chat.completion"
		c.Message = &message{Role: "assistant", Content: text}
	} else {
		c.Text = &text
	}
	if g.req.returnIDs {
		c.TokenIDs = g.out.ids
		if g.req.chat {
			a.PromptTokenIDs = g.req.promptIDs
		} else {
			c.PromptTokenIDs = g.req.promptIDs
		}
	}
	a.Choices, a.Usage = []choice{c}, g.usage()
	g.w.Header().Set("Content-Type", "application/json")
	return g.emit(append(encode(a), '\n'), n, g.out.due[n-1])
}

// emit writes b, which carries tokens, and notes when.
func (g *generation) emit(b []byte, tokens int, due time.Duration) error {
	before := time.Now()
	err := g.write(b)
	if err != nil || tokens == 0 {
		return err
	}
	first, gap := len(g.entry.Chunks) == 0, time.Duration(0)
	if !first {
		gap = before.Sub(g.lastWrite)
	}
	g.lastWrite = before
	g.s.tally(g.req.model.Name).tokens(tokens, g.req.promptTokens, first, before.Sub(g.arrived), gap)
	g.entry.Chunks = append(g.entry.Chunks, EmissionChunk{
		Tokens: tokens, DueNs: g.s.log.ns(g.arrived.Add(due)), BeforeNs: g.s.log.ns(before), AfterNs: g.s.log.ns(time.Now()),
	})
	return nil
}

// write hands b to the socket.
func (g *generation) write(b []byte) error {
	pieces := [][]byte{b}
	if g.fault.is(faultSplitUTF8) {
		pieces = splitRunes(b)
	}
	for i, p := range pieces {
		if i > 0 && !waitUntil(g.http.Context(), time.Now().Add(splitPause)) {
			return errClient
		}
		if _, err := g.w.Write(p); err != nil {
			return errClient
		}
		if err := g.flush.Flush(); err != nil {
			return errClient
		}
	}
	return nil
}
