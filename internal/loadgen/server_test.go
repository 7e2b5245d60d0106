package loadgen

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"assay/schemas"
)

// serve starts a real server on loopback.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// serveRaw answers each connection by writing text as it is, after the request's
// head was read, and closing. reset makes the close a reset.
func serveRaw(t testing.TB, text string, reset bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				readRequest(conn)
				fmt.Fprint(conn, text)
				if reset {
					time.Sleep(20 * time.Millisecond) // let the bytes be read before the reset discards them
					conn.(*net.TCPConn).SetLinger(0)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func readRequest(conn net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	buf := make([]byte, 4096)
	for {
		if _, err := req.Body.Read(buf); err != nil {
			return
		}
	}
}

// stream is a handler that sends the events given, with a flush after each.
func streamOf(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			fmt.Fprintf(w, "data: %s\n\n", e)
			w.(http.Flusher).Flush()
		}
	}
}

const (
	usageEvent = `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":%d}}`
	lastEvent  = `{"choices":[{"index":0,"text":"","finish_reason":"length"}]}`
	doneEvent  = `[DONE]`
)

func textEvent(s string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"text":%q,"finish_reason":null}]}`, s)
}

// answer is a proper completion of n tokens.
func answerOf(n int) []string {
	var out []string
	for range n {
		out = append(out, textEvent("tok "))
	}
	return append(out, lastEvent, fmt.Sprintf(usageEvent, n), doneEvent)
}

func request(index, out int) Request {
	return Request{ScheduledRequest: schemas.ScheduledRequest{Index: index, ID: fmt.Sprintf("r%d", index), Model: "m", InputTokens: 5, OutputTokens: out}}
}

func newClient(t testing.TB, opts Options) *Client {
	t.Helper()
	c, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// proper fails the test for a record that contradicts itself or the schema.
func proper(t testing.TB, r schemas.RequestRecord) {
	t.Helper()
	before := int64(-1 << 62)
	for _, at := range []*int64{r.DispatchedNs, r.ConnAcquiredNs, r.FirstByteNs, r.FirstEventNs, r.FirstTokenNs, r.LastTokenNs, r.FinishNs, r.DoneNs, &r.EndNs} {
		if at != nil {
			if *at < before {
				t.Errorf("request %s: stamps out of order: %+v", r.ID, r)
				break
			}
			before = *at
		}
	}
	if (r.Outcome == schemas.OutcomeOK) != (r.Error == "") || strings.ContainsAny(r.Error, "\n\r") {
		t.Errorf("request %s: outcome %s, error %q", r.ID, r.Outcome, r.Error)
	}
}
