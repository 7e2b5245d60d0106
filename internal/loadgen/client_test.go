package loadgen

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"assay/internal/workload"
	"assay/schemas"

	"github.com/google/go-cmp/cmp"
)

func TestDoOK(t *testing.T) {
	url := serve(t, streamOf(answerOf(3)...))
	c := newClient(t, Options{BaseURL: url, Held: true})
	for i := range 3 {
		r := c.Do(context.Background(), request(i, 3))
		proper(t, r)
		if r.Outcome != schemas.OutcomeOK || r.HTTPStatus != 200 || *r.OutputTokens != 3 || *r.InputTokens != 5 || len(r.Chunks) != 3 || r.FinishReason != "length" {
			t.Errorf("got %+v", r)
		}
		for name, at := range map[string]*int64{"dispatched": r.DispatchedNs, "conn": r.ConnAcquiredNs, "wrote": r.WroteRequestNs, "byte": r.FirstByteNs,
			"event": r.FirstEventNs, "token": r.FirstTokenNs, "visible": r.FirstVisibleNs, "last": r.LastTokenNs, "finish": r.FinishNs, "usage": r.UsageNs, "done": r.DoneNs} {
			if at == nil {
				t.Errorf("no stamp %s", name)
			}
		}
		if *r.ConnReused != (i > 0) {
			t.Errorf("request %d: connection reused %v", i, *r.ConnReused)
		}
		if r.TextDigest != schemas.DigestOf([]byte("tok tok tok ")) {
			t.Errorf("text digest %s", r.TextDigest)
		}
		doc, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := schemas.Validate("request-record", doc); err != nil {
			t.Error(err)
		}
	}
}

func TestRequestOnTheWire(t *testing.T) {
	type seen struct {
		path, auth, encoding, agent string
		body                        map[string]any
	}
	got := make(chan seen, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		s := seen{path: r.URL.Path, auth: r.Header.Get("Authorization"), encoding: r.Header.Get("Accept-Encoding"), agent: r.Header.Get("User-Agent")}
		if err := json.NewDecoder(r.Body).Decode(&s.body); err != nil {
			t.Error(err)
		}
		got <- s
		streamOf(answerOf(3)...)(w, r)
	})
	ids := []any{}
	for _, id := range workload.PromptTokenIDs(9, 0, 5, workload.Prompt{}) {
		ids = append(ids, float64(id))
	}
	common := map[string]any{"model": "m", "max_tokens": 3.0, "stream": true, "stream_options": map[string]any{"include_usage": true}, "temperature": 0.0}
	with := func(more map[string]any) map[string]any {
		out := map[string]any{}
		for _, m := range []map[string]any{common, more} {
			for k, v := range m {
				out[k] = v
			}
		}
		return out
	}
	for _, c := range []struct {
		opts Options
		want seen
	}{
		{Options{Held: true}, seen{encoding: "identity", path: "/v1/completions", body: with(map[string]any{"prompt": ids, "ignore_eos": true})}},
		{Options{API: APIChat, Extra: map[string]any{"min_p": 0}}, seen{encoding: "identity", path: "/v1/chat/completions", body: with(map[string]any{"min_p": 0.0,
			"messages": []any{map[string]any{"role": "user", "content": workload.PromptText(9, 0, 5, workload.Prompt{})}}})}},
		{Options{Headers: http.Header{"authorization": {"Bearer secret-token"}}}, seen{encoding: "identity", path: "/v1/completions", auth: "Bearer secret-token", body: with(map[string]any{"prompt": ids})}},
	} {
		c.opts.BaseURL, c.opts.ContentSeed, c.want.agent = url+"/v1/", 9, "assay"
		r := newClient(t, c.opts).Do(context.Background(), request(0, 3))
		if r.Outcome != schemas.OutcomeOK {
			t.Errorf("%+v", r)
		}
		if d := cmp.Diff(c.want, <-got, cmp.AllowUnexported(seen{})); d != "" {
			t.Error(d)
		}
	}
}

func TestPromptDigest(t *testing.T) {
	c := newClient(t, Options{BaseURL: "http://127.0.0.1:1", ContentSeed: 9})
	var body struct {
		Prompt json.RawMessage `json:"prompt"`
	}
	if err := json.Unmarshal(c.body(request(4, 3)), &body); err != nil {
		t.Fatal(err)
	}
	if got, want := PromptDigest(APICompletions, 9, request(4, 3)), schemas.DigestOf(body.Prompt); got != want {
		t.Errorf("digest %s, of the body's prompt %s", got, want)
	}
	if PromptDigest(APIChat, 9, request(4, 3)) != schemas.DigestOf([]byte(workload.PromptText(9, 4, 5, workload.Prompt{}))) {
		t.Error("chat digest is not that of the text")
	}
}

func TestOutcomes(t *testing.T) {
	hang := func(events ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // the server sees the client leave only once the body is read
			streamOf(events...)(w, r)
			<-r.Context().Done()
		}
	}
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Error(w, text, code) }
	}
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	event := "data: " + textEvent("tok") + "\n\n"
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(event), event)
	short := Options{IdleTimeout: 100 * time.Millisecond}
	for _, c := range []struct {
		name   string
		url    string
		opts   Options
		want   schemas.Outcome
		error  string
		tokens int
	}{
		{"sse error", serve(t, streamOf(textEvent("a"), `{"error":{"message":"out of blocks"}}`, doneEvent)), Options{}, schemas.OutcomeSSEError, "out of blocks", 1},
		{"engine error", serve(t, streamOf(textEvent("a"), `{"choices":[{"index":0,"text":"","finish_reason":"abort"}]}`, doneEvent)), Options{}, schemas.OutcomeEngineError, "abort", 1},
		{"no token", serve(t, streamOf(lastEvent, doneEvent)), Options{}, schemas.OutcomeNoToken, "without any generated token", 0},
		{"length", serve(t, streamOf(answerOf(2)...)), Options{Held: true}, schemas.OutcomeLengthMismatch, "2 output tokens (by usage), held to 3", 2},
		{"another length, not held", serve(t, streamOf(answerOf(2)...)), Options{}, schemas.OutcomeOK, "", 2},
		{"no finish reason", serve(t, streamOf(textEvent("a"), doneEvent)), Options{}, schemas.OutcomeTruncated, "without a finish reason", 1},
		{"no done, whole body", serve(t, streamOf(textEvent("a"), lastEvent)), Options{}, schemas.OutcomeOK, "", 1},
		{"no done, open end", serveRaw(t, head+"Connection: close\r\n\r\n"+event+"data: "+lastEvent+"\n\n", false), Options{}, schemas.OutcomeTruncated, "without [DONE]", 1},
		{"cut in a chunk", serveRaw(t, head+"Transfer-Encoding: chunked\r\n\r\n"+chunk+"ff\r\ndata: {\"cho", false), Options{}, schemas.OutcomeTruncated, "closed in the middle", 1},
		{"reset in the stream", serveRaw(t, head+"Transfer-Encoding: chunked\r\n\r\n"+chunk, true), Options{}, schemas.OutcomeReset, "while reading the stream", 1},
		{"closed before the answer", serveRaw(t, "", false), Options{}, schemas.OutcomeReset, "waiting for the answer", 0},
		{"reset before the answer", serveRaw(t, "", true), Options{}, schemas.OutcomeReset, "waiting for the answer", 0},
		{"not HTTP", serveRaw(t, "SSH-2.0-OpenSSH_9.6\r\n", false), Options{}, schemas.OutcomeProtocolError, "malformed HTTP", 0},
		{"bad JSON", serve(t, streamOf("{nope")), Options{}, schemas.OutcomeProtocolError, "not the expected JSON", 0},
		{"large event", serve(t, streamOf(textEvent(strings.Repeat("x", 5000)))), Options{MaxEventBytes: 1000}, schemas.OutcomeProtocolError, "larger than 1000 bytes", 0},
		{"not a stream", serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"choices":[]}`)
		}), Options{}, schemas.OutcomeProtocolError, `"application/json"`, 0},
		{"redirect", serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}), Options{}, schemas.OutcomeProtocolError, "redirects are not followed", 0},
		{"429", serve(t, status(429, "slow down")), Options{}, schemas.OutcomeHTTP4xx, "status 429: slow down", 0},
		{"500", serve(t, status(500, "broken")), Options{}, schemas.OutcomeHTTP5xx, "status 500: broken", 0},
		{"idle", serve(t, hang(textEvent("a"))), short, schemas.OutcomeTimeout, "idle limit of 100ms", 1},
		{"request limit", serve(t, hang()), Options{RequestTimeout: 100 * time.Millisecond}, schemas.OutcomeTimeout, "request limit of 100ms", 0},
		{"refused", "http://" + closedPort(t), Options{}, schemas.OutcomeRefused, "connection refused", 0},
		{"no such host", "http://no-such-host.invalid:80", Options{}, schemas.OutcomeRefused, "no connection", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.opts.BaseURL = c.url
			r := newClient(t, c.opts).Do(context.Background(), request(0, 3))
			proper(t, r)
			if r.Outcome != c.want || !strings.Contains(r.Error, c.error) || len(r.Chunks) != c.tokens {
				t.Errorf("got %s %q with %d chunks; want %s %q with %d", r.Outcome, r.Error, len(r.Chunks), c.want, c.error, c.tokens)
			}
		})
	}
}

// closedPort is an address that nothing listens on.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestCancelled(t *testing.T) {
	started := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		streamOf(textEvent("a"))(w, r)
		close(started)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	r := newClient(t, Options{BaseURL: url}).Do(ctx, request(0, 3))
	proper(t, r)
	if r.Outcome != schemas.OutcomeCancelled {
		t.Errorf("got %s %q", r.Outcome, r.Error)
	}
}

// A character cut in two by the network arrives whole.
func TestSplitUTF8(t *testing.T) {
	const text = "日本語🙂é"
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		all := "data: " + textEvent("") + "\n\ndata: {\"choices\":[{\"index\":0,\"text\":\"" + text + "\"}]}\n\ndata: " + lastEvent + "\n\ndata: [DONE]\n\n"
		for i := range len(all) {
			io.WriteString(w, all[i:i+1])
			w.(http.Flusher).Flush()
		}
	})
	r := newClient(t, Options{BaseURL: url}).Do(context.Background(), request(0, 3))
	if r.Outcome != schemas.OutcomeOK || r.TextDigest != schemas.DigestOf([]byte(text)) || r.Chunks[0].Bytes != len(text) {
		t.Errorf("got %+v", r)
	}
}

// A kept connection that the server closed is tried once more on a new one, and no
// more than that.
func TestRetriesOnceOnly(t *testing.T) {
	var posts atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if posts.Add(1) == 1 {
			streamOf(answerOf(3)...)(w, r)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	c := newClient(t, Options{BaseURL: url})
	first, second := c.Do(context.Background(), request(0, 3)), c.Do(context.Background(), request(1, 3))
	if first.Outcome != schemas.OutcomeOK || second.Outcome != schemas.OutcomeReset || *second.ConnReused || second.Reconnects != 1 || posts.Load() != 3 {
		t.Errorf("%s, %s %q, %d requests", first.Outcome, second.Outcome, second.Error, posts.Load())
	}
}

func TestSecretsStayOut(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		coded := base64.StdEncoding.EncodeToString([]byte(r.Header.Get("Authorization")))
		http.Error(w, "bad key "+r.Header.Get("Authorization")+"\nand "+r.Header.Get("X-Key")+strings.Repeat(" ", 430)+coded, http.StatusUnauthorized)
	})
	c := newClient(t, Options{BaseURL: url, Headers: http.Header{"Authorization": {"Bearer s3cret-value"}, "X-Key": {"another-one"}}})
	r := c.Do(context.Background(), request(0, 3))
	_, err := c.ListModels(context.Background())
	for _, text := range []string{r.Error, fmt.Sprint(err)} {
		if strings.Contains(text, "s3cret") || strings.Contains(text, "another-one") || strings.Contains(text, "zM2NyZXQ") || !strings.Contains(text, "***") || strings.Contains(text, "\n") {
			t.Errorf("text %q", text)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"no scheme": {BaseURL: "localhost:8000"},
		"ftp":       {BaseURL: "ftp://h"},
		"user":      {BaseURL: "http://me:pass@h"},
		"query":     {BaseURL: "http://h/?key=abcd"},
		"api":       {BaseURL: "http://h", API: "embeddings"},
		"extra":     {BaseURL: "http://h", Extra: map[string]any{"model": "x"}},
		"header":    {BaseURL: "http://h", Headers: http.Header{"content-length": {"3"}}},
		"unencoded": {BaseURL: "http://h", Extra: map[string]any{"f": func() {}}},
	} {
		_, err := New(o)
		if err == nil || strings.Contains(err.Error(), "pass") || strings.Contains(err.Error(), "abcd") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestListModels(t *testing.T) {
	for _, c := range []struct {
		body, err string
		want      []string
	}{
		{`{"object":"list","data":[{"id":"b","x":1},{"id":"org/a"}]}`, "", []string{"b", "org/a"}},
		{`{"data":[]}`, "", nil},
		{`nope`, "not the expected JSON", nil},
		{`{"data":[{"id":"a"},{"id":"a"}]}`, "repeated id", nil},
		{`{"data":[{"id":""}]}`, "empty", nil},
		{`"` + strings.Repeat("x", maxListBytes) + `"`, "over the limit", nil},
	} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, c.body) })
		got, err := newClient(t, Options{BaseURL: url}).ListModels(context.Background())
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%.40s: %v, %v", c.body, got, err)
		}
	}
}

func TestScrubBounds(t *testing.T) {
	c := newClient(t, Options{BaseURL: "http://h"})
	got := c.scrub("a\x00b\xff" + strings.Repeat("é", 5000))
	if len(got) > maxErrorText+3 || !bytes.HasPrefix([]byte(got), []byte("a b")) || strings.ToValidUTF8(got, "") != got {
		t.Errorf("%d bytes, %.20q", len(got), got)
	}
}

// An answer in one piece is one chunk, and what is wrong with it is told as for a
// stream.
func TestWhole(t *testing.T) {
	const good = `{"choices":[{"index":0,"text":"tok tok","finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`
	for _, c := range []struct {
		api, kind, answer string
		limit             int
		want              schemas.Outcome
		error             string
	}{
		{APICompletions, "application/json", good, 0, schemas.OutcomeOK, ""},
		{APIChat, "application/json; charset=utf-8", `{"choices":[{"index":0,"message":{"role":"assistant","content":"tok tok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`, 0, schemas.OutcomeOK, ""},
		{APICompletions, "text/event-stream", good, 0, schemas.OutcomeProtocolError, "want application/json"},
		{APICompletions, "application/json", good[:40], 0, schemas.OutcomeProtocolError, "not the expected JSON"},
		{APICompletions, "application/json", `{"error":{"message":"no"}}`, 0, schemas.OutcomeSSEError, "no"},
		{APICompletions, "application/json", good, 50, schemas.OutcomeProtocolError, "larger than 50 bytes"},
		{APICompletions, "application/json", `{"choices":[{"index":0,"text":"a"}]}`, 0, schemas.OutcomeTruncated, "without a finish reason"},
	} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err != nil || !bytes.Contains(body, []byte(`"stream":false`)) {
				t.Errorf("asked with %s, %v", body, err)
			}
			w.Header().Set("Content-Type", c.kind)
			io.WriteString(w, c.answer)
		})
		r := newClient(t, Options{BaseURL: url, API: c.api, Whole: true, MaxEventBytes: c.limit}).Do(context.Background(), request(0, 3))
		proper(t, r)
		if r.Outcome != c.want || !strings.Contains(r.Error, c.error) {
			t.Errorf("%s: %s %q", c.answer, r.Outcome, r.Error)
		}
		if c.want == schemas.OutcomeOK && (len(r.Chunks) != 1 || *r.OutputTokens != 2 || r.TextDigest != schemas.DigestOf([]byte("tok tok")) || *r.DoneNs != r.Chunks[0].AtNs) {
			t.Errorf("got %+v", r)
		}
	}
}
