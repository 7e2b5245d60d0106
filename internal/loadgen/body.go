package loadgen

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"assay/internal/workload"
	"assay/schemas"
)

// The endpoints.
const (
	APICompletions = "completions"
	APIChat        = "chat"
)

// Request is one request to send: what the schedule says, and what its prompt is
// made from where that is not its index and length.
type Request struct {
	schemas.ScheduledRequest
	// Prompt is a given text, or blocks that requests share.
	workload.Prompt
}

// PromptDigest is the SHA-256 of a request's prompt as it will be sent: the JSON
// of the token id list for completions, the text for chat and for a given text, the
// JSON of the messages for a turn of a conversation after its first.
func PromptDigest(api string, contentSeed uint64, req Request) schemas.Digest {
	if text, ok := promptText(api, contentSeed, req); ok {
		if len(req.History) > 0 {
			return schemas.DigestOf(appendMessages(nil, req.History, text))
		}
		return schemas.DigestOf([]byte(text))
	}
	return schemas.DigestOf(appendIDs(nil, workload.PromptTokenIDs(contentSeed, req.Index, req.InputTokens, req.Prompt)))
}

// PromptText is the text that will be sent, false for a prompt of token ids.
func PromptText(api string, contentSeed uint64, req Request) (string, bool) {
	return promptText(api, contentSeed, req)
}

// promptText is false for a prompt that is sent as token ids.
func promptText(api string, contentSeed uint64, req Request) (string, bool) {
	switch {
	case req.Text != "":
		return req.Text, true
	case req.PromptWords > 0:
		return workload.PromptText(contentSeed, req.Index, req.PromptWords, req.Prompt), true
	case api == APIChat:
		return workload.PromptText(contentSeed, req.Index, req.InputTokens, req.Prompt), true
	}
	return "", false
}

// body builds a request's body. Keys stand in a fixed order, so equal requests
// have equal bytes.
func (c *Client) body(req Request) []byte {
	b := append([]byte(`{"model":`), mustString(req.Model)...)
	text, isText := promptText(c.opts.API, c.opts.ContentSeed, req)
	switch {
	case c.opts.API == APIChat:
		b = appendMessages(append(b, `,"messages":`...), req.History, text)
	case isText:
		b = append(append(b, `,"prompt":`...), mustString(text)...)
	default:
		b = append(b, `,"prompt":`...)
		b = appendIDs(b, workload.PromptTokenIDs(c.opts.ContentSeed, req.Index, req.InputTokens, req.Prompt))
	}
	b = append(b, `,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(req.OutputTokens), 10)
	if c.opts.Whole {
		b = append(b, `,"stream":false,"temperature":0`...)
	} else {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true},"temperature":0`...)
	}
	switch {
	case c.opts.Held && c.opts.MinTokens:
		b = append(b, `,"min_tokens":`...)
		b = strconv.AppendInt(b, int64(req.OutputTokens), 10)
	case c.opts.Held:
		b = append(b, `,"ignore_eos":true`...)
	}
	return append(append(b, c.extra...), '}')
}

// appendMessages adds what was said, and then the prompt, as a person's words.
func appendMessages(b []byte, history []workload.Message, prompt string) []byte {
	b = append(b, '[')
	for _, m := range history {
		b = append(append(b, `{"role":`...), mustString(m.Role)...)
		b = append(append(append(b, `,"content":`...), mustString(m.Text)...), `},`...)
	}
	b = append(b, `{"role":"user","content":`...)
	return append(append(b, mustString(prompt)...), `}]`...)
}

// extraFields encodes the fields that a caller adds to every body.
func extraFields(extra map[string]any) ([]byte, error) {
	ours := []string{"model", "prompt", "messages", "max_tokens", "stream", "ignore_eos", "min_tokens"}
	names := make([]string, 0, len(extra))
	for n := range extra {
		names = append(names, n)
	}
	slices.Sort(names)
	var b []byte
	for _, n := range names {
		if slices.Contains(ours, n) || n == "stream_options" || n == "temperature" {
			return nil, fmt.Errorf("extra field %q: this client sets it itself; leave it out", n)
		}
		v, err := json.Marshal(extra[n])
		if err != nil {
			return nil, fmt.Errorf("extra field %q: %w", n, err)
		}
		b = append(append(append(append(b, ','), mustString(n)...), ':'), v...)
	}
	return b, nil
}

func appendIDs(b []byte, ids []int) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, ']')
}

// mustString encodes a string, which cannot fail.
func mustString(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}
