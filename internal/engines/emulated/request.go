package emulated

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

const (
	maxBodyBytes = 64 << 20
	maxTokenID   = math.MaxInt32
	maxOutput    = 1 << 20 // tokens of one answer
	// Budgets of a request that states none, as Aegaeon's.
	defaultChatTokens       = 128
	defaultCompletionTokens = 16
)

// body is what is read of a request. Fields that would change the answer and are
// not emulated are read so that they can be refused; other fields are ignored.
type body struct {
	Model               string          `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            []chatMessage   `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MinTokens           int             `json:"min_tokens"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	ReturnTokenIDs bool   `json:"return_token_ids"`
	RequestID      string `json:"request_id"`

	N           *int            `json:"n"`
	BestOf      *int            `json:"best_of"`
	Echo        bool            `json:"echo"`
	Stop        json.RawMessage `json:"stop"`
	Tools       json.RawMessage `json:"tools"`
	Logprobs    json.RawMessage `json:"logprobs"`
	TopLogprobs *int            `json:"top_logprobs"`
}

type chatMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// request is a checked request.
type request struct {
	chat         bool
	model        Model
	clientID     string // the client's own name of the request, "" for none
	promptTokens int
	promptIDs    []int  // of a prompt given as token ids
	promptBytes  []byte // what the answer is drawn from
	maxTokens    int    // output budget, room considered
	minTokens    int
	ignoreEOS    bool
	stream       bool
	includeUsage bool
	returnIDs    bool

	// What only some personalities read.
	promptText string
	echo       bool
	stops      []string // texts that end the answer
	keepStop   bool     // and stay in it
	stopEnds   bool     // and end the generation too
	stopIDs    []int    // tokens that end the generation
}

// parseRequest reads and checks the body of a request to one of the two
// endpoints.
func parseRequest(b []byte, chat bool, models map[string]Model) (*request, *apiError) {
	var in body
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&in); err != nil {
		return nil, badRequest("", "the body is not the expected JSON: "+err.Error())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("", "something follows the JSON object")
	}
	if in.Model == "" {
		return nil, badRequest("model", "model is missing")
	}
	m, ok := models[in.Model]
	if !ok {
		return nil, badRequest("model", fmt.Sprintf("the model %q does not exist", in.Model)).withCode(404, "model_not_found")
	}
	if e := in.refuse(); e != nil {
		return nil, e
	}
	r := &request{chat: chat, model: m, clientID: in.RequestID, ignoreEOS: in.IgnoreEOS, stream: in.Stream,
		includeUsage: in.StreamOptions.IncludeUsage, returnIDs: in.ReturnTokenIDs, minTokens: in.MinTokens}
	read := r.readPrompt
	if chat {
		read = r.readMessages
	}
	if e := read(&in); e != nil {
		return nil, e
	}
	return r, r.setBudget(&in)
}

// refuse names what is not emulated: to ignore it would be a wrong answer.
func (in *body) refuse() *apiError {
	set := func(m json.RawMessage) bool {
		s := string(bytes.TrimSpace(m))
		return s != "" && s != "null" && s != "[]" && s != "false"
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"n", in.N != nil && *in.N != 1}, {"best_of", in.BestOf != nil && *in.BestOf != 1}, {"echo", in.Echo},
		{"stop", set(in.Stop)}, {"tools", set(in.Tools)}, {"logprobs", set(in.Logprobs)},
		{"top_logprobs", in.TopLogprobs != nil && *in.TopLogprobs != 0},
	} {
		if f.set {
			return badRequest(f.name, f.name+" is not emulated: leave it out")
		}
	}
	return nil
}

// readPrompt takes one text or one list of token ids.
func (r *request) readPrompt(in *body) *apiError {
	var text string
	if json.Unmarshal(in.Prompt, &text) == nil && len(in.Prompt) > 0 && in.Prompt[0] == '"' {
		r.promptTokens = len(strings.Fields(text))
		r.promptBytes = append([]byte("text\x00"), text...)
	} else if err := json.Unmarshal(in.Prompt, &r.promptIDs); err != nil {
		return badRequest("prompt", "prompt: want a string or one list of token ids")
	} else {
		for _, id := range r.promptIDs {
			if id < 0 || id > maxTokenID {
				return badRequest("prompt", fmt.Sprintf("prompt: %d is no token id", id))
			}
		}
		r.promptTokens = len(r.promptIDs)
		r.promptBytes = append([]byte("ids\x00"), encode(r.promptIDs)...)
	}
	if r.promptTokens == 0 {
		return badRequest("prompt", "prompt is empty")
	}
	return nil
}

func (r *request) readMessages(in *body) *apiError {
	if len(in.Messages) == 0 {
		return badRequest("messages", "messages: want at least one")
	}
	b := bytes.NewBufferString("chat\x00")
	for i, m := range in.Messages {
		switch m.Role {
		case "system", "developer", "user", "assistant", "tool":
		default:
			return badRequest("messages", fmt.Sprintf("messages[%d].role: %q is no role", i, m.Role))
		}
		text, ok := contentText(m.Content)
		if !ok {
			return badRequest("messages", fmt.Sprintf("messages[%d].content: want a string or a list of text parts", i))
		}
		r.promptTokens += len(strings.Fields(text))
		fmt.Fprintf(b, "%s\x00%d\x00%s\x00", m.Role, len(text), text)
	}
	if r.promptTokens == 0 {
		return badRequest("messages", "messages hold no text")
	}
	r.promptBytes = b.Bytes()
	return nil
}

// contentText reads a string, a list of text parts, or null.
func contentText(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", true
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", false
	}
	for _, p := range parts {
		if p.Type != "text" {
			return "", false
		}
		text += p.Text
	}
	return text, true
}

// setBudget settles how many tokens may be generated.
func (r *request) setBudget(in *body) *apiError {
	limit, name := in.MaxTokens, "max_tokens"
	if r.chat && in.MaxCompletionTokens != nil {
		if limit != nil && *limit != *in.MaxCompletionTokens {
			return badRequest("max_completion_tokens", "max_completion_tokens and max_tokens differ")
		}
		limit, name = in.MaxCompletionTokens, "max_completion_tokens"
	}
	room := r.model.MaxModelLen - r.promptTokens
	switch {
	case room < 1:
		return tooLong(r, fmt.Sprintf("the prompt has %d tokens", r.promptTokens))
	case limit == nil && r.chat:
		r.maxTokens = min(defaultChatTokens, room)
	case limit == nil:
		r.maxTokens = min(defaultCompletionTokens, room)
	case *limit < 1:
		return badRequest(name, name+": want at least 1")
	case *limit > room:
		return tooLong(r, fmt.Sprintf("the prompt has %d tokens and %d are asked for", r.promptTokens, *limit))
	default:
		r.maxTokens = *limit
	}
	if r.maxTokens > maxOutput {
		return badRequest(name, fmt.Sprintf("%s: more than %d tokens are not emulated", name, maxOutput))
	}
	if r.minTokens < 0 || r.minTokens > r.maxTokens {
		return badRequest("min_tokens", fmt.Sprintf("min_tokens: want 0 to %d", r.maxTokens))
	}
	return nil
}

func tooLong(r *request, what string) *apiError {
	e := badRequest("messages", fmt.Sprintf("the maximum context length of %s is %d tokens: %s", r.model.Name, r.model.MaxModelLen, what))
	if !r.chat {
		*e.Param = "prompt"
	}
	return e.withCode(400, "context_length_exceeded")
}
