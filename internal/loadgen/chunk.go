package loadgen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"assay/schemas"
)

// document is what is read of a streamed JSON event; other keys are ignored.
type document struct {
	Error          json.RawMessage `json:"error"`
	Object         string          `json:"object"`
	Message        string          `json:"message"`
	Choices        []choice        `json:"choices"`
	Usage          *toldUsage      `json:"usage"`
	PromptTokenIDs []int           `json:"prompt_token_ids"`
}

type choice struct {
	Index          int     `json:"index"`
	Text           string  `json:"text"`
	Delta          delta   `json:"delta"`
	Message        *delta  `json:"message"` // of an answer in one piece
	FinishReason   *string `json:"finish_reason"`
	TokenIDs       []int   `json:"token_ids"`
	PromptTokenIDs []int   `json:"prompt_token_ids"`
}

type delta struct {
	Content          string     `json:"content"`
	Refusal          string     `json:"refusal"`
	ReasoningContent string     `json:"reasoning_content"`
	Reasoning        string     `json:"reasoning"`
	ToolCalls        []toolCall `json:"tool_calls"`
	FunctionCall     *function  `json:"function_call"`
	TokenIDs         []int      `json:"token_ids"`
}

type toolCall struct {
	ID       string   `json:"id"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type usage struct {
	PromptTokens     *int `json:"prompt_tokens"`
	CompletionTokens *int `json:"completion_tokens"`
}

// piece is what one event carries.
type piece struct {
	done         bool   // [DONE]
	errText      string // of an error event
	visible      []byte // valid until the next event
	hiddenBytes  int    // of reasoning and tool calls
	tokenIDs     []int
	promptIDs    []int
	finish       string
	usage        *usage
	choices      int
	hasToolCalls bool
}

// generated says whether the event carries generated output of any kind. An empty
// or role-only event does not.
func (p *piece) generated() bool {
	return len(p.visible) > 0 || p.hiddenBytes > 0 || p.hasToolCalls || len(p.tokenIDs) > 0
}

// parseEvent reads one event of a completion stream. An error means that it is
// not of the protocol.
func parseEvent(ev Event) (piece, error) {
	data := bytes.TrimSpace(ev.Data)
	if string(data) == "[DONE]" {
		return piece{done: true}, nil
	}
	if string(ev.Name) == "error" {
		return piece{errText: errorText(data)}, nil
	}
	if !utf8.Valid(data) {
		return piece{}, errors.New("an event is not valid UTF-8")
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return piece{}, fmt.Errorf("an event is not the expected JSON: %w", schemas.PlainJSON(err))
	}
	if len(doc.Error) > 0 && string(doc.Error) != "null" {
		return piece{errText: errorText(doc.Error)}, nil
	}
	if doc.Object == "error" {
		return piece{errText: errorText(data)}, nil
	}
	return doc.piece()
}

func (d *document) piece() (piece, error) {
	p := piece{promptIDs: d.PromptTokenIDs, choices: len(d.Choices)}
	if d.Usage != nil {
		var err error
		if p.usage, err = d.Usage.read(); err != nil {
			return piece{}, err
		}
	}
	if len(d.Choices) == 0 {
		return p, nil
	}
	c := d.Choices[0]
	if len(d.Choices) > 1 || c.Index != 0 {
		return piece{}, errors.New("the stream has several choices; one was asked for")
	}
	if c.Message != nil {
		c.Delta = *c.Message
	}
	p.visible = []byte(c.Text + c.Delta.Content + c.Delta.Refusal)
	p.hiddenBytes = len(c.Delta.Reasoning)
	if c.Delta.ReasoningContent != "" { // some services send both names for the same text
		p.hiddenBytes = len(c.Delta.ReasoningContent)
	}
	for _, t := range c.Delta.ToolCalls {
		p.hasToolCalls = p.hasToolCalls || t.ID+t.Function.Name+t.Function.Arguments != ""
		p.hiddenBytes += len(t.Function.Name) + len(t.Function.Arguments)
	}
	if f := c.Delta.FunctionCall; f != nil {
		p.hiddenBytes += len(f.Name) + len(f.Arguments)
	}
	p.tokenIDs = c.TokenIDs
	if len(p.tokenIDs) == 0 {
		p.tokenIDs = c.Delta.TokenIDs
	}
	if len(p.promptIDs) == 0 {
		p.promptIDs = c.PromptTokenIDs
	}
	if c.FinishReason != nil {
		p.finish = *c.FinishReason
	}
	return p, nil
}

// errorText takes the message out of an error document, or all of it.
func errorText(raw []byte) string {
	var doc struct {
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(raw, &doc) == nil {
		if doc.Message != "" {
			return doc.Message
		}
		if doc.Error.Message != "" {
			return doc.Error.Message
		}
	}
	return string(raw)
}
