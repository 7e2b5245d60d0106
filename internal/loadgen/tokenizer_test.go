package loadgen

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"assay/schemas"
)

func TestTokenizerAsksEachStyleInItsForm(t *testing.T) {
	var got map[string]any
	var path string
	answer, status := `{"count": 7, "tokens": [1, 2]}`, 200
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, got = r.URL.Path, nil
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, &got); err != nil {
			t.Errorf("body %s: %v", b, err)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	for _, c := range []struct {
		style, path, api string
		field, value     string
	}{
		{schemas.TokenizeVLLM, "/tokenize", APICompletions, "prompt", "a b"},
		{schemas.TokenizeLlamaCpp, "/tokenize", APICompletions, "content", "a b"},
		{schemas.TokenizeLlamaCppPython, "/extras/tokenize/count", APICompletions, "input", "a b"},
		{schemas.TokenizeVLLM, "/tokenize", APIChat, "messages", ""},
	} {
		tk, err := NewTokenizer(server.URL+"/", c.api, schemas.Tokenize{Style: c.style, Path: c.path}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n, err := tk.Count(context.Background(), "m", "a b"); err != nil || n != 7 {
				t.Fatalf("%s: %d, %v", c.style, n, err)
			}
		}
		if path != c.path || tk.Calls() != 1 || tk.Cached() != 1 || got[c.field] == nil || c.value != "" && got[c.field] != c.value {
			t.Errorf("%+v: path %s, body %v, %d calls, %d cached", c, path, got, tk.Calls(), tk.Cached())
		}
		if n, err := tk.Count(context.Background(), "other", "a b"); err != nil || n != 7 || tk.Calls() != 2 {
			t.Errorf("another model has counts of its own: %d, %v, %d calls", n, err, tk.Calls())
		}
		tk.Close()
	}
	tk, err := NewTokenizer(server.URL, APICompletions, schemas.Tokenize{Style: schemas.TokenizeLlamaCpp, Path: "/tokenize"}, http.Header{"Authorization": {"Bearer sk-tokenizer-0123"}})
	if err != nil {
		t.Fatal(err)
	}
	defer tk.Close()
	for _, c := range []struct {
		status       int
		answer, want string
	}{{404, "no such path", "status 404: no such path"}, {200, "<html>", "not the answer of a tokenizer"}, {200, "{}", "neither count nor tokens"}, {200, `{"count": -1}`, "count is -1: want a whole number"}, {200, `{"count": "7"}`, `count is "7"`}, {200, `{"tokens": 7}`, "tokens holds number: want a list"}, {302, "", "status 302"}, {401, "no key " + strings.Repeat("x", 280) + "sk-tokenizer-0123", "***"}} {
		status, answer = c.status, c.answer
		if _, err := tk.Count(context.Background(), "m", c.answer); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/tokenize") {
			t.Errorf("%+v: error %v", c, err)
		}
	}
	status, answer = 200, `{"tokens": [{"id": 1}, {"id": 2}, {"id": 3}]}`
	if n, err := tk.Count(context.Background(), "m", "x"); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestTokenizerRefusesWhatItCannotCount(t *testing.T) {
	for want, c := range map[string]struct {
		url, api string
		t        schemas.Tokenize
	}{
		"chat's template":   {"http://127.0.0.1:1", APIChat, schemas.Tokenize{Style: schemas.TokenizeLlamaCpp, Path: "/tokenize"}},
		"must begin with /": {"http://127.0.0.1:1", APICompletions, schemas.Tokenize{Style: schemas.TokenizeVLLM, Path: "tokenize"}},
		"tokenizer:":        {"ftp://x", APICompletions, schemas.Tokenize{Style: schemas.TokenizeVLLM, Path: "/t"}},
	} {
		if _, err := NewTokenizer(c.url, c.api, c.t, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

func TestPromptsAsTextAndTheirCounts(t *testing.T) {
	c, err := New(Options{BaseURL: "http://127.0.0.1:1", ContentSeed: 3, Held: true, MinTokens: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := request(4, 3)
	req.InputTokens, req.OutputTokens = 4, 3
	for _, x := range []struct {
		words, counted int
		tokens         int
		source         string
	}{{0, 0, 4, "asked"}, {5, 0, 0, ""}, {5, 6, 6, "tokenizer"}} {
		req.PromptWords, req.CountedTokens = x.words, x.counted
		rec := c.newRecord(req)
		if rec.InputTokensSource != x.source || x.source != "" && *rec.InputTokens != x.tokens {
			t.Errorf("%+v: %v by %q", x, rec.InputTokens, rec.InputTokensSource)
		}
		var body struct {
			Prompt    any   `json:"prompt"`
			MinTokens int   `json:"min_tokens"`
			IgnoreEOS *bool `json:"ignore_eos"`
		}
		if err := json.Unmarshal(c.body(req), &body); err != nil || body.MinTokens != 3 || body.IgnoreEOS != nil {
			t.Fatalf("%s: %v", c.body(req), err)
		}
		text, isText := body.Prompt.(string)
		if isText != (x.words > 0) || isText && len(strings.Fields(text)) != x.words {
			t.Errorf("%+v: prompt %v", x, body.Prompt)
		}
		if want, ok := PromptText(APICompletions, 3, req); ok != isText || isText && (want != text || PromptDigest(APICompletions, 3, req) != schemas.DigestOf([]byte(text))) {
			t.Errorf("%+v: the digest is not of what is sent", x)
		}
		s := newStream(&rec, 0)
		s.finish(nil)
		if rec.InputTokens != nil || rec.InputTokensSource != "" {
			t.Errorf("%+v: an answer without a token says how long the prompt was", x)
		}
	}
}
