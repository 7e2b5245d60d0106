package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"assay/schemas"
)

// write sends b until the client is gone, with a flush after each.
func writeForEver(w http.ResponseWriter, r *http.Request, b []byte, every time.Duration) {
	flush := http.NewResponseController(w)
	for r.Context().Err() == nil {
		if _, err := w.Write(b); err != nil || flush.Flush() != nil {
			return
		}
		if every > 0 {
			wait := time.NewTimer(every)
			select {
			case <-wait.C:
			case <-r.Context().Done():
			}
			wait.Stop()
		}
	}
}

// Services that fail in the ways that fill a client's time or memory: the outcome
// is right, and both are bounded, through net/http as well.
func TestBadServices(t *testing.T) {
	stream := func(body func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			body(w, r)
		}
	}
	token := []byte("data: " + textEvent("tok") + "\n\n")
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    schemas.Outcome
		error   string
	}{
		{"stalls before its answer", func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, schemas.OutcomeTimeout, "request limit"},
		{"stalls in its answer", stream(func(w http.ResponseWriter, r *http.Request) {
			w.Write(token)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), schemas.OutcomeTimeout, "idle limit"},
		{"a byte at a time", stream(func(w http.ResponseWriter, r *http.Request) { writeForEver(w, r, []byte("d"), 20*time.Millisecond) }), schemas.OutcomeTimeout, "request limit"},
		{"comments for ever", stream(func(w http.ResponseWriter, r *http.Request) { writeForEver(w, r, []byte(": alive\n\n"), 0) }), schemas.OutcomeTimeout, "request limit"},
		{"tokens for ever", stream(func(w http.ResponseWriter, r *http.Request) {
			writeForEver(w, r, bytes.Repeat(token, 100), 0)
		}), schemas.OutcomeProtocolError, "goes on after"},
		{"a line of 64 MB", stream(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "data: ")
			writeForEver(w, r, bytes.Repeat([]byte("x"), 1<<20), 0)
		}), schemas.OutcomeProtocolError, "larger than"},
		{"an endless head", func(w http.ResponseWriter, r *http.Request) {
			conn, out, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(out, "HTTP/1.1 200 OK\r\nX: ")
			for line := bytes.Repeat([]byte("x"), 1000); err == nil; _, err = out.Write(line) {
			}
		}, schemas.OutcomeProtocolError, ""},
		{"503 with an endless text", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			writeForEver(w, r, []byte("no room "), 0)
		}, schemas.OutcomeHTTP5xx, "no room"},
		{"429", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}, schemas.OutcomeHTTP4xx, "429"},
		{"answers and does not end", stream(func(w http.ResponseWriter, r *http.Request) {
			streamOf(answerOf(3)...)(w, r)
			writeForEver(w, r, bytes.Repeat([]byte(": more\n"), 1000), 0)
		}), schemas.OutcomeOK, ""},
		{"answers and stalls", stream(func(w http.ResponseWriter, r *http.Request) {
			streamOf(answerOf(3)...)(w, r)
			<-r.Context().Done()
		}), schemas.OutcomeOK, ""},
	} {
		for _, tls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, tls %v", c.name, tls), func(t *testing.T) {
				server := httptest.NewUnstartedServer(c.handler)
				server.Config.ErrorLog = log.New(io.Discard, "", 0)
				if tls {
					server.StartTLS()
				} else {
					server.Start()
				}
				t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
				opts := Options{BaseURL: server.URL}
				switch c.error { // only the limit that the case is about
				case "request limit":
					opts.RequestTimeout = 300 * time.Millisecond
				case "idle limit":
					opts.IdleTimeout = 200 * time.Millisecond
				}
				client := newClient(t, opts)
				if tls {
					client.http.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				started := time.Now()
				r := client.Do(context.Background(), request(0, 3))
				took := time.Since(started)
				runtime.ReadMemStats(&after)
				proper(t, r)
				if r.Outcome != c.want || !strings.Contains(r.Error, c.error) {
					t.Errorf("%s %q", r.Outcome, r.Error)
				}
				if took > 60*time.Second || len(r.Chunks) > 10_000 {
					t.Errorf("took %s, %d chunks", took, len(r.Chunks))
				}
				if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 160<<20 {
					t.Errorf("the heap grew by %d MiB", grown>>20)
				}
			})
		}
	}
}
