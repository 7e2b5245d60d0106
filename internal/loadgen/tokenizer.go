package loadgen

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"assay/internal/redact"
	"assay/schemas"
)

const (
	tokenizeTimeout = time.Minute
	tokenizeBytes   = 64 << 20 // of an answer, which may list every token
	tokenizeKept    = 1 << 20  // answers remembered
)

// Tokenizer asks a service how many tokens a prompt has. Answers are remembered by
// the prompt's digest. It is for one goroutine.
type Tokenizer struct {
	style, url, api string
	headers         http.Header
	client          *http.Client
	known           map[[sha256.Size]byte]int
	calls, cached   int
}

// NewTokenizer checks what is asked for; nothing is sent. A style that counts texts
// alone cannot tell what a chat's template adds.
// headers, in canonical form, go with every question.
func NewTokenizer(baseURL, api string, t schemas.Tokenize, headers http.Header) (*Tokenizer, error) {
	base, err := checkedURL(baseURL)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	switch {
	case t.Path == "" || t.Path[0] != '/':
		return nil, fmt.Errorf("tokenizer: path %q: must begin with /", t.Path)
	case api == APIChat && t.Style != schemas.TokenizeVLLM:
		return nil, fmt.Errorf("tokenizer: style %s counts a text without the chat's template: use api = \"completions\", or tokenize = { style = \"usage\" } where the service reports usage", t.Style)
	}
	return &Tokenizer{style: t.Style, url: base + t.Path, api: api, headers: headers, known: map[[sha256.Size]byte]int{}, client: &http.Client{
		Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: DefaultConnectTimeout}).DialContext, MaxIdleConnsPerHost: 1, IdleConnTimeout: keepAlive, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       tokenizeTimeout,
	}}, nil
}

// Close gives up its connection.
func (t *Tokenizer) Close() { t.client.CloseIdleConnections() }

// Calls are the questions sent so far, Cached those answered from memory.
func (t *Tokenizer) Calls() int  { return t.calls }
func (t *Tokenizer) Cached() int { return t.cached }

// Count returns how many tokens the model sees of the prompt, special ones that the
// service adds included.
func (t *Tokenizer) Count(ctx context.Context, model, text string) (int, error) {
	key := sha256.Sum256([]byte(model + "\x00" + text))
	if n, ok := t.known[key]; ok {
		t.cached++
		return n, nil
	}
	n, err := t.ask(ctx, model, text)
	if err != nil {
		return 0, fmt.Errorf("tokenizer: model %s: %w", model, err)
	}
	if len(t.known) < tokenizeKept {
		t.known[key] = n
	}
	return n, nil
}

// question is the body of a request, in the style's form.
func (t *Tokenizer) question(model, text string) map[string]any {
	switch {
	case t.style == schemas.TokenizeLlamaCpp:
		return map[string]any{"content": text, "add_special": true}
	case t.style == schemas.TokenizeLlamaCppPython:
		return map[string]any{"model": model, "input": text}
	case t.api == APIChat:
		return map[string]any{"model": model, "messages": []map[string]string{{"role": "user", "content": text}}, "add_generation_prompt": true}
	}
	return map[string]any{"model": model, "prompt": text, "add_special_tokens": true}
}

func (t *Tokenizer) ask(ctx context.Context, model, text string) (int, error) {
	body, err := json.Marshal(t.question(model, text))
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for name, values := range t.headers {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	t.calls++
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, tokenizeBytes+1))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %w", req.URL.Path, err)
	case resp.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("%s: status %d: %s", req.URL.Path, resp.StatusCode, t.said(answer))
	case len(answer) > tokenizeBytes:
		return 0, fmt.Errorf("%s: the answer is larger than %d bytes", req.URL.Path, tokenizeBytes)
	}
	n, err := countOf(answer)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", req.URL.Path, err, t.said(answer))
	}
	return n, nil
}

// said is the beginning of an answer, without what was sent with the question.
func (t *Tokenizer) said(answer []byte) string {
	marks := map[string]string{}
	for _, values := range t.headers {
		for _, s := range secretsOf(values) {
			marks[s] = "***"
		}
	}
	text := redact.New(marks).String(string(answer[:min(len(answer), maxErrorBody)]))
	return strings.ToValidUTF8(text[:min(len(text), 300)], "\uFFFD")
}

// countOf takes the count, or counts the tokens, of an answer.
func countOf(answer []byte) (int, error) {
	var doc struct {
		Count  *count            `json:"count"`
		Tokens []json.RawMessage `json:"tokens"`
	}
	if err := json.Unmarshal(answer, &doc); err != nil {
		return 0, fmt.Errorf("not the answer of a tokenizer: %w", schemas.PlainJSON(err))
	}
	switch {
	case doc.Count != nil:
		n, err := doc.Count.whole()
		if err != nil {
			return 0, fmt.Errorf("count is %w", err)
		}
		return *n, nil
	case doc.Tokens != nil:
		return len(doc.Tokens), nil
	}
	return 0, errors.New("the answer has neither count nor tokens")
}
