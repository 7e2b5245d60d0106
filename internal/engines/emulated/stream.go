package emulated

import (
	"errors"

	"assay/internal/serving"
)

// streamed answers with server-sent events, each sent when the last of its
// tokens is due.
func (g *generation) streamed() error {
	h := g.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	if g.req.chat {
		if err := g.event(g.roleChunk(), 0, 0); err != nil {
			return err
		}
	} else if err := g.flush.Flush(); err != nil { // the status goes out before the first token
		return errClient
	}
	if g.req.echo {
		if err := g.event(g.echoChunk(), 0, 0); err != nil {
			return err
		}
	}
	if err := g.tokens(); err != nil {
		return err
	}
	if err := g.event(g.lastChunk(), 0, 0); err != nil {
		return err
	}
	if g.req.includeUsage {
		a := g.envelope(g.object())
		a.Usage = g.usage()
		if err := g.event(a, 0, 0); err != nil {
			return err
		}
	}
	if g.fault.is(faultNoDone) {
		return nil
	}
	return g.write([]byte("data: [DONE]\n\n"))
}

// tokens sends the content, or as much of it as the fault leaves.
func (g *generation) tokens() error {
	n := len(g.out.ids)
	at, breaks := g.fault.at(n)
	wide := g.fault.is(faultSplitUTF8)
	for from := 0; from < n; {
		if breaks && from == at {
			break
		}
		to := min(from+g.s.config.TokensPerChunk, n)
		if breaks && at < to {
			to = at
		}
		if err := g.wait(to - 1); err != nil {
			return g.endStream(err)
		}
		text := g.out.text(from, to, wide)
		if text == "" && g.out.visible >= 0 && to < n { // hidden behind a stop text
			from = to
			continue
		}
		if err := g.event(g.s.face.chunk(g, text, to == n), to-from, to-1); err != nil {
			return err
		}
		from = to
	}
	if breaks {
		return g.breakOff()
	}
	return nil
}

// chunk is an event with text.
func (g *generation) chunk(text string, _ bool) any { return g.textChunk(text) }

func (g *generation) textChunk(text string) answer {
	a, c := g.envelope(g.object()), choice{}
	if g.req.chat {
		c.Delta = &delta{Content: &text}
	} else {
		c.Text = &text
	}
	a.Choices = []choice{c}
	return a
}

func (g *generation) object() string {
	if g.req.chat {
		return "chat.completion.chunk"
	}
	return "text_completion"
}

func (g *generation) roleChunk() answer {
	a, empty := g.envelope(g.object()), ""
	a.Choices = []choice{{Delta: &delta{Role: "assistant", Content: &empty}}}
	if g.req.returnIDs {
		a.PromptTokenIDs = g.req.promptIDs
	}
	return a
}

// echoChunk repeats the prompt.
func (g *generation) echoChunk() answer {
	a, text := g.envelope(g.object()), g.req.promptText+" "
	c := choice{Text: &text}
	if g.req.returnIDs {
		c.PromptTokenIDs = g.req.promptIDs
	}
	a.Choices = []choice{c}
	return a
}

// lastChunk says why the answer ends and carries no text.
func (g *generation) lastChunk() answer {
	a, c := g.envelope(g.object()), choice{FinishReason: &g.out.finish}
	if g.req.chat {
		c.Delta = &delta{}
	} else {
		c.Text = new(string)
	}
	if g.req.returnIDs && g.s.config.Personality != PersonalityVLLM { // which has told them
		c.TokenIDs = g.out.ids
		if !g.req.chat {
			c.PromptTokenIDs = g.req.promptIDs
		}
	}
	a.Choices = []choice{c}
	return a
}

// event sends one event that carries tokens, the last of which is token last.
func (g *generation) event(a any, tokens, last int) error {
	b := append([]byte("data: "), encode(a)...)
	return g.emit(append(b, "\n\n"...), tokens, g.out.due[last])
}

// endStream tells the client of a request that the system gave up.
func (g *generation) endStream(err error) error {
	var failed *serving.Failed
	if !errors.As(err, &failed) || g.s.face.endsBare {
		return err
	}
	b := append([]byte("data: "), encode(map[string]any{"error": failure(failed)})...)
	return errors.Join(err, g.write(append(b, "\n\ndata: [DONE]\n\n"...)))
}
