package observe

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"assay/schemas"
)

func readFile(t *testing.T, dir, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const runtimeState = `{"timestamp": 1.5, "model_placement_policy": "least-loaded", "request_routing": {"total": %d, "by_node": {"node_0": 0}}, "engines": {}, "nodes": []}`

func TestAegaeon(t *testing.T) {
	var asked, connected, sent atomic.Int64
	url := service(t, map[string]http.HandlerFunc{
		"/v1/aegaeon/runtime": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, runtimeState, 3-min(asked.Add(1), 3)) },
		"/v1/aegaeon/events": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			n := connected.Add(1)
			fmt.Fprintf(w, "event: runtime\r\ndata: {\"engines\": {},\r\ndata: \"events\": [%d]}\r\n\r\n: keep-alive\r\n\r\n", n)
			w.(http.Flusher).Flush()
			for i := 0; r.Context().Err() == nil && (n > 1 || i < 3); i++ { // the first stream breaks
				time.Sleep(20 * time.Millisecond)
				io.WriteString(w, "event: runtime\ndata: not json\n\n")
				w.(http.Flusher).Flush()
				if n > 1 {
					sent.Add(1)
				}
			}
		},
	})
	c := ConfigOf(nil)
	c.Metrics, c.Host = "off", "off"
	opts := Options{Config: c, URL: url, Engine: "aegaeon", Dir: t.TempDir()}
	seen, findings, err := observe(t, opts, until(t, func() bool { return sent.Load() >= 3 }))
	if err != nil {
		t.Fatal(err)
	}
	s := find(seen.Series, "routed_requests")
	if s.First == nil || *s.First != 2 || s.Last == nil || *s.Last != 1 || asked.Load() != 2 {
		t.Errorf("%+v", s)
	}
	if b := readFile(t, opts.Dir, SnapshotBeforeFile); string(b) != fmt.Sprintf(runtimeState, 2) {
		t.Errorf("the snapshot is not as it came: %s", b)
	}
	st := sourceOf(t, seen, "events")
	rows := lines(t, opts.Dir, EventsFile)[1:]
	first := rows[0]
	if at := first["at_ns"].(float64); at >= 0 || first["event"] != "runtime" || fmt.Sprint(first["data"]) != "map[engines:map[] events:[1]]" {
		t.Errorf("first event: %v", first)
	}
	again := false
	for _, r := range rows {
		again = again || r["reconnected"] == true
	}
	if !again || connected.Load() != 2 || st.Errors != 1 || st.Looks < 5 || st.Status != schemas.ObservedSeen || !strings.Contains(st.LastError, "stream ended") {
		t.Errorf("again %v, %+v", again, st)
	}
	found := Check(&seen, schemas.Counts{}, "stage s")
	if len(found) != 1 || found[0].ID != "server.in-use" || len(findings) > 1 {
		t.Errorf("%v, %v", found, findings)
	}
}

func TestAegaeonThatAnswersNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		h    http.HandlerFunc
		want string
	}{
		{"missing", http.NotFound, "404"}, {"wrong type", text(`[1]`), ""}, {"null", text("null"), ""},
		{"silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "within 100ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limit := "20s"
			if c.name == "silent" {
				limit = "100ms"
			}
			cfg := ConfigOf(schemas.Settings{"timeout": limit, "metrics": "off", "host": "off"})
			url := service(t, map[string]http.HandlerFunc{cfg.SnapshotPath: c.h, cfg.EventsPath: c.h})
			seen, findings, err := observe(t, Options{Config: cfg, URL: url, Engine: "aegaeon"}, nothing)
			if err != nil || len(findings) != 2 {
				t.Errorf("%v, %v", err, findings)
			}
			for _, name := range []string{"snapshot", "events"} {
				if st := sourceOf(t, seen, name); st.Status != schemas.ObservedUnknown || !strings.Contains(st.Unknown, c.want) {
					t.Errorf("%+v", st)
				}
			}
		})
	}
}

func TestEventsAreBounded(t *testing.T) {
	rd := bufio.NewReader(io.MultiReader(strings.NewReader("data: "), bytes.NewReader(make([]byte, 8<<20))))
	if _, err := ReadEvent(rd, maxEventBytes, nil); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("one line: %v", err)
	}
	rd = bufio.NewReader(strings.NewReader(strings.Repeat("data: 0123456789\n", 1000)))
	if _, err := ReadEvent(rd, 4096, nil); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("many lines: %v", err)
	}
	rd = bufio.NewReader(strings.NewReader("event: a\n\n:c\ndata\nid: 3\n\ndata: x\n"))
	ev, err := ReadEvent(rd, 4096, nil)
	if err != nil || ev.Name != "" || string(ev.Data) != "" {
		t.Errorf("empty data: %+v, %v", ev, err)
	}
	if _, err := ReadEvent(rd, 4096, nil); err == nil {
		t.Error("a cut event was taken")
	}
}

func FuzzReadEvent(f *testing.F) {
	f.Add([]byte("event: runtime\ndata: {}\n\n"))
	f.Add([]byte("data:\r\ndata: a\r\n\r\n:x\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rd := bufio.NewReader(bytes.NewReader(b))
		for {
			ev, err := ReadEvent(rd, 1024, nil)
			if err != nil {
				return
			}
			if len(ev.Data) > 1024 {
				t.Fatalf("%d bytes", len(ev.Data))
			}
		}
	})
}

func TestHooks(t *testing.T) {
	var asked []string
	note := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.Method+" "+r.URL.RequestURI())
			w.WriteHeader(status)
		}
	}
	url := service(t, map[string]http.HandlerFunc{"/reset_prefix_cache": note(200), "/flush": note(500), "/start_profile": note(200), "/stop_profile": note(200), "/metrics": note(404)})
	cfg := quiet()
	cfg.Profile = true
	cfg.Metrics = schemas.ObserveAuto
	cfg.Resets = []Reset{{"POST", "/reset_prefix_cache?device=gpu", 200, true}, {"GET", "/flush", 200, false}}
	seen, findings, err := observe(t, Options{Config: cfg, URL: url}, nothing)
	if err != nil || strings.Join(asked, ", ") != "POST /reset_prefix_cache?device=gpu, GET /flush, GET /metrics, POST /start_profile, POST /stop_profile" {
		t.Errorf("%v, asked %v", err, asked)
	}
	if len(findings) != 2 || findings[0].ID != "observe.reset" || findings[1].ID != "result.profiled" {
		t.Errorf("findings %+v", findings)
	}
	if st := sourceOf(t, seen, "reset"); st.Status != schemas.ObservedUnknown || st.Looks != 1 || st.Errors != 1 {
		t.Errorf("%+v", st)
	}
	if st := sourceOf(t, seen, "profile"); st.Status != schemas.ObservedSeen || st.Looks != 2 {
		t.Errorf("%+v", st)
	}
	cfg.Resets[1].Fail = true
	if _, err := Start(context.Background(), Options{Config: cfg, URL: url, Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "GET /flush: want status 200: status 500") {
		t.Errorf("a reset that must not fail: %v", err)
	}
	cfg.Resets = nil
	missing := service(t, nil)
	if _, err := Start(context.Background(), Options{Config: cfg, URL: missing, Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "/start_profile: status 404") {
		t.Errorf("a service without profiles: %v", err)
	}
}

func TestAProfileIsStoppedEvenWhenInterrupted(t *testing.T) {
	var stopped atomic.Bool
	url := service(t, map[string]http.HandlerFunc{"/start_profile": text(""), "/stop_profile": func(http.ResponseWriter, *http.Request) { stopped.Store(true) }})
	cfg := quiet()
	cfg.Profile = true
	ctx, cancel := context.WithCancel(context.Background())
	r, err := Start(ctx, Options{Config: cfg, URL: url, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r.Begin(time.Now())
	cancel()
	if _, _, err := r.End(ctx); err != nil || !stopped.Load() {
		t.Errorf("%v, stopped %v", err, stopped.Load())
	}
}
