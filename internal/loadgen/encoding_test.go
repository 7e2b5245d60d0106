package loadgen

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"assay/internal/workload"
	"assay/schemas"
)

// A compressed answer is told by the name of its encoding, not by what its bytes
// look like.
func TestEncodedAnswers(t *testing.T) {
	bothWays(t, func(t *testing.T, secure bool) {
		for _, c := range []struct {
			name, code string
			status     int
			want       schemas.Outcome
			says       string
		}{
			{"gzip", "gzip", 200, schemas.OutcomeProtocolError, `encoded with "gzip"`},
			{"any other", "zstd", 200, schemas.OutcomeProtocolError, `encoded with "zstd"`},
			{"two", "identity, br", 200, schemas.OutcomeProtocolError, `encoded with "br"`},
			{"none by name", "Identity", 200, schemas.OutcomeOK, ""},
			{"a refusal", "gzip", 503, schemas.OutcomeHTTP5xx, `status 503: a text encoded with "gzip"`},
			{"a long name", strings.Repeat("x", 5000), 200, schemas.OutcomeProtocolError, `encoded with "xxx`},
		} {
			f := serveConns(t, secure, func(_ int64, conn net.Conn, r *bufio.Reader) {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				io.Copy(io.Discard, req.Body)
				if got := req.Header.Values("Accept-Encoding"); len(got) != 1 || got[0] != "identity" {
					t.Errorf("asked for the encodings %q", got)
				}
				fmt.Fprintf(conn, "HTTP/1.1 %d X\r\nConnection: close\r\nContent-Type: text/event-stream\r\nContent-Encoding: %s\r\n\r\n", c.status, c.code)
				var out io.Writer = conn
				if c.want != schemas.OutcomeOK {
					z := gzip.NewWriter(conn)
					defer z.Close()
					out = z
				}
				for _, e := range answerOf(3) {
					fmt.Fprintf(out, "data: %s\n\n", e)
				}
			})
			r := f.client(t, Options{}).Do(context.Background(), request(0, 3))
			proper(t, r)
			if r.Outcome != c.want || !strings.Contains(r.Error, c.says) || len(r.Error) > maxErrorText+10 {
				t.Errorf("%s: %s %q", c.name, r.Outcome, r.Error)
			}
		}
	})
}

// The length of a prompt that was sent as text is known only if the service tells, or
// if it was counted before.
func TestPromptLengthIsKnownOrNot(t *testing.T) {
	events := []string{textEvent("a"), lastEvent, doneEvent}
	text := request(0, 1)
	text.InputTokens, text.Text = 0, "a text"
	counted := text
	counted.CountedTokens = 4
	words := request(0, 1)
	words.PromptWords = 3
	for _, c := range []struct {
		name, api string
		req       Request
		events    []string
		tokens    int
		source    string
	}{
		{"a text", APICompletions, text, events, 0, ""},
		{"a text of a stated length", APICompletions, Request{ScheduledRequest: request(0, 1).ScheduledRequest, Prompt: workload.Prompt{Text: "a text"}}, events, 0, ""},
		{"a text by chat", APIChat, text, events, 0, ""},
		{"words", APICompletions, words, events, 0, ""},
		{"words by chat", APIChat, request(0, 1), events, 0, ""},
		{"a counted text", APICompletions, counted, events, 4, "tokenizer"},
		{"token ids", APICompletions, request(0, 1), events, 5, "asked"},
		{"token ids, nothing generated", APICompletions, request(0, 1), []string{lastEvent, doneEvent}, 0, ""},
		{"usage", APICompletions, text, []string{textEvent("a"), lastEvent, `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}`, doneEvent}, 7, "usage"},
		{"usage without a prompt", APICompletions, text, []string{textEvent("a"), lastEvent, `{"choices":[],"usage":{"completion_tokens":1}}`, doneEvent}, 0, ""},
		{"a usage of no prompt", APICompletions, text, []string{textEvent("a"), lastEvent, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":1}}`, doneEvent}, 0, ""},
	} {
		r := newClient(t, Options{BaseURL: serve(t, streamOf(c.events...)), API: c.api}).Do(context.Background(), c.req)
		proper(t, r)
		got := 0
		if r.InputTokens != nil {
			got = *r.InputTokens
		}
		if got != c.tokens || r.InputTokensSource != c.source || (r.InputTokens == nil) != (c.source == "") {
			t.Errorf("%s: %d by %q", c.name, got, r.InputTokensSource)
		}
	}
}
