package emulated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

const quick = `{"models":[
	{"name":"m","prefill_base":"2ms","prefill_per_token":"0s","decode_per_token":"1ms","max_model_len":64},
	{"name":"org/n","prefill_base":"1ms","decode_per_token":"0s"}]%s}`

func config(t testing.TB, extra string) Config {
	t.Helper()
	c, err := ParseConfig(fmt.Appendf(nil, quick, extra))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// engine is a running server with its emission log.
type engine struct {
	url    string
	log    string
	client *http.Client
	stop   func() error
	died   chan struct{}
}

func serve(t *testing.T, c Config) *engine {
	t.Helper()
	e := &engine{log: filepath.Join(t.TempDir(), "emissions.jsonl"), died: make(chan struct{})}
	tr := &http.Transport{}
	e.client = &http.Client{Transport: tr, Timeout: 20 * time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	var once sync.Once
	die := func() { once.Do(func() { close(e.died) }); panic(http.ErrAbortHandler) }
	go func() {
		ended <- Serve(ctx, c, Options{Listen: "127.0.0.1:0", EmissionLog: e.log, Ready: func(a string) { ready <- a }, Die: die})
	}()
	select {
	case a := <-ready:
		e.url = "http://" + a
	case err := <-ended:
		t.Fatal(err)
	}
	e.stop = sync.OnceValue(func() error { cancel(); tr.CloseIdleConnections(); return <-ended })
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// post returns status and body; the error is that of reading the body.
func (e *engine) post(t *testing.T, path, body string) (*http.Response, []byte, error) {
	t.Helper()
	resp, err := e.client.Post(e.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, b, err
}

func (e *engine) ok(t *testing.T, path, body string) []byte {
	t.Helper()
	resp, b, err := e.post(t, path, body)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Server") != Name {
		t.Fatalf("%v, %v: %s", resp, err, b)
	}
	return b
}

func (e *engine) emissions(t *testing.T) (EmissionHeader, []Emission) {
	t.Helper()
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(e.log)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	var h EmissionHeader
	if err := json.Unmarshal(lines[0], &h); err != nil {
		t.Fatal(err)
	}
	out := make([]Emission, len(lines)-1)
	for i, l := range lines[1:] {
		if err := json.Unmarshal(l, &out[i]); err != nil {
			t.Fatal(err)
		}
	}
	return h, out
}

// events splits a stream; the last one must end with an empty line.
func events(t *testing.T, b []byte) []string {
	t.Helper()
	if !bytes.HasSuffix(b, []byte("\n\n")) {
		t.Fatalf("the stream ends amid an event: %q", b)
	}
	var out []string
	for _, e := range strings.Split(strings.TrimSuffix(string(b), "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok {
			t.Fatalf("event %q", e)
		}
		out = append(out, data)
	}
	return out
}

func decode(t *testing.T, s string) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(s), &a); err != nil {
		t.Fatalf("%v: %s", err, s)
	}
	return a
}

func TestHealthAndModels(t *testing.T) {
	e := serve(t, config(t, ""))
	for path, want := range map[string]string{
		"/health": `"status":"ok"`, "/v1/models": `"owned_by":"assay-emulated"`, "/v1/models/org/n": `"id":"org/n"`,
	} {
		resp, err := e.client.Get(e.url + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(string(b), want) || resp.Header.Get("Server") != Name {
			t.Errorf("%s: %d %s", path, resp.StatusCode, b)
		}
	}
}

func TestChatStream(t *testing.T) {
	e := serve(t, config(t, ""))
	b := e.ok(t, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"one two three"},{"role":"user","content":[{"type":"text","text":"four"}]}],
		"max_tokens":9,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`)
	evs := events(t, b)
	if len(evs) != 1+9+1+1+1 || evs[len(evs)-1] != "[DONE]" {
		t.Fatalf("%d events: %s", len(evs), b)
	}
	if first := decode(t, evs[0]); first.Choices[0].Delta.Role != "assistant" || *first.Choices[0].Delta.Content != "" {
		t.Errorf("role chunk: %s", evs[0])
	}
	var text string
	for _, ev := range evs[1:10] {
		a := decode(t, ev)
		if a.Choices[0].FinishReason != nil || a.Usage != nil || a.Object != "chat.completion.chunk" {
			t.Errorf("content chunk: %s", ev)
		}
		text += *a.Choices[0].Delta.Content
	}
	if n := len(strings.Fields(text)); n != 9 {
		t.Errorf("%d words: %q", n, text)
	}
	if last := decode(t, evs[10]); *last.Choices[0].FinishReason != "length" {
		t.Errorf("last chunk: %s", evs[10])
	}
	u := decode(t, evs[11])
	if !strings.Contains(evs[11], `"choices":[]`) || *u.Usage != (usage{4, 9, 13}) {
		t.Errorf("usage chunk: %s", evs[11])
	}
}

func TestCompletionsWholeAndStreamAgree(t *testing.T) {
	e := serve(t, config(t, `,"tokens_per_chunk":4`))
	const rest = `"model":"m","prompt":[1,2,3],"max_tokens":10,"min_tokens":10,"return_token_ids":true`
	a := decode(t, string(e.ok(t, "/v1/completions", `{`+rest+`}`)))
	evs := events(t, e.ok(t, "/v1/completions", `{"stream":true,`+rest+`}`))
	var text string
	for _, ev := range evs[:3] { // 4+4+2 tokens
		text += *decode(t, ev).Choices[0].Text
	}
	last := decode(t, evs[3]).Choices[0]
	c := a.Choices[0]
	if len(evs) != 5 || text != *c.Text || len(c.TokenIDs) != 10 || fmt.Sprint(last.TokenIDs) != fmt.Sprint(c.TokenIDs) ||
		fmt.Sprint(c.PromptTokenIDs) != "[1 2 3]" || *a.Usage != (usage{3, 10, 13}) || *c.FinishReason != "length" {
		t.Errorf("%+v\n%v", a, evs)
	}
	_, log := e.emissions(t)
	if len(log) != 2 || len(log[1].Chunks) != 3 || log[1].Chunks[2].Tokens != 2 || log[0].Chunks[0].Tokens != 10 {
		t.Errorf("emissions: %+v", log)
	}
}

func TestEqualRequestsGetEqualAnswers(t *testing.T) {
	c := config(t, `,"seed":7`)
	body := func(prompt string, n int) []byte {
		return fmt.Appendf(nil, `{"model":"m","prompt":%q,"max_tokens":%d,"ignore_eos":true}`, prompt, n)
	}
	models := map[string]Model{"m": c.Models[0]}
	models["m"] = Model{Name: "m", PrefillBase: 1e6, DecodePerToken: 1e6, Jitter: 0.5, MaxModelLen: 100}
	draw := func(c Config, b []byte) output {
		r, e := parseRequest(b, false, models)
		if e != nil {
			t.Fatal(e)
		}
		return plan(c, r)
	}
	a, again := draw(c, body("x y", 10)), draw(c, body("x y", 10))
	if fmt.Sprint(a) != fmt.Sprint(again) {
		t.Error("equal requests differ")
	}
	longer := draw(c, body("x y", 12))
	if fmt.Sprint(longer.ids[:10]) != fmt.Sprint(a.ids) {
		t.Error("a longer answer begins otherwise")
	}
	other, c2 := draw(c, body("x z", 10)), c
	c2.Seed++
	if fmt.Sprint(other.ids) == fmt.Sprint(a.ids) || fmt.Sprint(draw(c2, body("x y", 10)).ids) == fmt.Sprint(a.ids) {
		t.Error("another prompt or seed gives the same answer")
	}
	for i := 1; i < len(a.due); i++ {
		if d := a.due[i] - a.due[i-1]; d < 500*time.Microsecond || d > 1500*time.Microsecond {
			t.Errorf("gap %d is %v with jitter 0.5 of 1ms", i, d)
		}
	}
	c.TimeScale = 10
	if scaled := draw(c, body("x y", 10)); (scaled.due[9] - a.due[9]/10).Abs() > time.Microsecond {
		t.Errorf("time_scale 10: %v and %v", scaled.due[9], a.due[9])
	}
}

func TestNaturalEnd(t *testing.T) {
	c := config(t, "")
	m := map[string]Model{"org/n": c.Models[1]}
	r, e := parseRequest([]byte(`{"model":"org/n","prompt":"p","max_tokens":1000}`), false, m)
	if e != nil {
		t.Fatal(e)
	}
	if o := plan(c, r); o.finish != "stop" || len(o.ids) >= 1000 || len(o.ids) < 8 {
		t.Errorf("finish %s after %d", o.finish, len(o.ids))
	}
	r.minTokens = 900
	if o := plan(c, r); o.finish != "stop" || len(o.ids) != 900 {
		t.Errorf("min_tokens 900: finish %s after %d", o.finish, len(o.ids))
	}
}

func TestNothingIsSentBeforeItIsDue(t *testing.T) {
	e := serve(t, config(t, ""))
	req, _ := http.NewRequest("POST", e.url+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"a b","max_tokens":20,"ignore_eos":true,"stream":true,"request_id":"in-body"}`))
	req.Header.Set("X-Request-Id", "r-1")
	begun := time.Now()
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if d := time.Since(begun); d < 21*time.Millisecond { // 2ms + 19 * 1ms
		t.Errorf("done after %v", d)
	}
	h, log := e.emissions(t)
	if h.Schema != EmissionsV1 || h.AnchorUnixNs == 0 || h.Config.Models[0].Name != "m" || len(log) != 1 {
		t.Fatalf("%+v %+v", h, log)
	}
	m := log[0]
	if m.RequestID != "r-1" || m.ID != "cmpl-r-1" || m.Outcome != "ok" || m.InputTokens != 2 || m.OutputTokens != 20 || len(m.Chunks) != 20 {
		t.Fatalf("%+v", m)
	}
	for i, c := range m.Chunks {
		want := m.ArrivedNs + int64(2*time.Millisecond) + int64(i)*int64(time.Millisecond)
		if c.DueNs != want || c.BeforeNs < c.DueNs || c.AfterNs < c.BeforeNs || m.EndedNs < c.AfterNs {
			t.Errorf("chunk %d: %+v, arrived %d", i, c, m.ArrivedNs)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	e := serve(t, config(t, ""))
	for _, c := range []struct {
		path, body string
		status     int
		text       string
	}{
		{"completions", `{"model":"x","prompt":"p"}`, 404, "model_not_found"},
		{"completions", `{"model":"m","prompt":`, 400, "JSON"},
		{"completions", `{"model":"m","prompt":"p"} x`, 400, "follows"},
		{"completions", `{"prompt":"p"}`, 400, "model is missing"},
		{"completions", `{"model":"m"}`, 400, "prompt"},
		{"completions", `{"model":"m","prompt":""}`, 400, "empty"},
		{"completions", `{"model":"m","prompt":[[1],[2]]}`, 400, "token ids"},
		{"completions", `{"model":"m","prompt":[-1]}`, 400, "no token id"},
		{"completions", `{"model":"m","prompt":"p","max_tokens":0}`, 400, "at least 1"},
		{"completions", `{"model":"m","prompt":"p","max_tokens":64}`, 400, "context_length_exceeded"},
		{"completions", `{"model":"m","prompt":"p","max_tokens":2,"min_tokens":3}`, 400, "min_tokens"},
		{"completions", `{"model":"m","prompt":"` + strings.Repeat("w ", 64) + `"}`, 400, "context_length_exceeded"},
		{"completions", `{"model":"m","prompt":"p","n":2}`, 400, "n is not emulated"},
		{"completions", `{"model":"m","prompt":"p","stop":["x"]}`, 400, "stop is not emulated"},
		{"chat/completions", `{"model":"m","messages":[]}`, 400, "messages"},
		{"chat/completions", `{"model":"m","messages":[{"role":"judge","content":"x"}]}`, 400, "role"},
		{"chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "content"},
		{"chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1,"max_completion_tokens":2}`, 400, "differ"},
	} {
		resp, b, err := e.post(t, "/v1/"+c.path, c.body)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct{ Error *apiError }
		if resp.StatusCode != c.status || json.Unmarshal(b, &doc) != nil || doc.Error == nil || doc.Error.Message == "" || !strings.Contains(string(b), c.text) {
			t.Errorf("%s: %d %s", c.body, resp.StatusCode, b)
		}
	}
	if _, log := e.emissions(t); len(log) != 0 {
		t.Errorf("refused requests are in the log: %+v", log)
	}
}

func TestClientGoes(t *testing.T) {
	e := serve(t, config(t, `,"time_scale":0.001`)) // a token a second
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", e.url+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"p","stream":true,"max_tokens":9}`))
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if b, _ := os.ReadFile(e.log); bytes.Count(b, []byte("\n")) == 2 {
			break
		}
	}
	if _, log := e.emissions(t); len(log) != 1 || log[0].Outcome != "disconnected" || len(log[0].Chunks) != 0 {
		t.Fatalf("%+v", log)
	}
}

func TestListenOnlyOnLoopback(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "8.8.8.8:80", "nonsense"} {
		if err := Serve(context.Background(), config(t, ""), Options{Listen: addr}); err == nil {
			t.Errorf("%s is accepted", addr)
		}
	}
}

const oneStream = `{"model":"m","prompt":"p","max_tokens":8,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`

func fault(kind string, rest string) string {
	return `,"fault":{"kind":"` + kind + `"` + rest + `}`
}

func TestFaultsOfStreams(t *testing.T) {
	for kind, check := range map[string]func(t *testing.T, b []byte, err error){
		"cut": func(t *testing.T, b []byte, err error) {
			if !errors.Is(err, io.ErrUnexpectedEOF) || len(events(t, b)) != 2 {
				t.Errorf("%v, %q", err, b)
			}
		},
		"sse_error": func(t *testing.T, b []byte, err error) {
			evs := events(t, b)
			if err != nil || len(evs) != 4 || !strings.Contains(evs[2], `"error"`) || evs[3] != "[DONE]" {
				t.Errorf("%v, %q", err, b)
			}
		},
		"no_done": func(t *testing.T, b []byte, err error) {
			if evs := events(t, b); err != nil || len(evs) != 10 || strings.Contains(string(b), "[DONE]") {
				t.Errorf("%v, %q", err, evs)
			}
		},
		"lie_usage": func(t *testing.T, b []byte, err error) {
			if u := decode(t, events(t, b)[9]).Usage; err != nil || u.CompletionTokens == 8 || u.PromptTokens == 1 {
				t.Errorf("%v, %+v", err, u)
			}
		},
		"split_utf8": func(t *testing.T, b []byte, err error) {
			if evs := events(t, b); err != nil || len(evs) != 11 || !utf8.Valid(b) || utf8.RuneCount(b) == len(b) {
				t.Errorf("%v, %q", err, evs)
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			e := serve(t, config(t, fault(kind, `,"after_requests":1`)))
			if evs := events(t, e.ok(t, "/v1/completions", oneStream)); len(evs) != 11 || evs[10] != "[DONE]" {
				t.Fatalf("the proper request: %q", evs)
			}
			resp, b, err := e.post(t, "/v1/completions", oneStream)
			if resp == nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			check(t, b, err)
			if _, log := e.emissions(t); len(log) != 2 || log[0].Outcome != "ok" || log[1].Outcome != "fault:"+kind {
				t.Errorf("%+v", log)
			}
		})
	}
}

func TestFaultsOfStatus(t *testing.T) {
	for kind, status := range map[string]int{"http_500": 500, "http_429": 429} {
		e := serve(t, config(t, fault(kind, "")))
		resp, b, err := e.post(t, "/v1/completions", oneStream)
		if err != nil || resp.StatusCode != status || !strings.Contains(string(b), kind) {
			t.Errorf("%s: %v %v %s", kind, resp, err, b)
		}
	}
}

func TestFaultRefuse(t *testing.T) {
	e := serve(t, config(t, fault("refuse", `,"after_requests":2`)))
	for range 2 {
		e.ok(t, "/v1/completions", oneStream)
	}
	if _, _, err := e.post(t, "/v1/completions", oneStream); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

func TestFaultHang(t *testing.T) {
	e := serve(t, config(t, fault("hang", `,"after_tokens":3`)))
	resp, err := e.client.Post(e.url+"/v1/completions", "application/json", strings.NewReader(oneStream))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got bytes.Buffer
	for buf := make([]byte, 4096); bytes.Count(got.Bytes(), []byte("\n\n")) < 3; {
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(buf[:n])
	}
	go e.stop() // ends the request, which nothing else would
	if rest, _ := io.ReadAll(resp.Body); len(rest) != 0 {
		t.Errorf("went on with %q", rest)
	}
	if _, log := e.emissions(t); len(log) != 1 || log[0].Outcome != "shutdown" && log[0].Outcome != "fault:hang" || len(log[0].Chunks) != 3 {
		t.Errorf("%+v", log)
	}
}

func TestFaultDie(t *testing.T) {
	e := serve(t, config(t, fault("die", `,"after_tokens":1`)))
	if _, b, err := e.post(t, "/v1/completions", oneStream); err == nil || len(events(t, b)) != 1 {
		t.Errorf("%v %q", err, b)
	}
	select {
	case <-e.died:
	default:
		t.Error("it lives")
	}
}

func TestFaultSlowStart(t *testing.T) {
	begun := time.Now()
	e := serve(t, config(t, fault("slow_start", `,"delay":"60ms"`)))
	if d := time.Since(begun); d < 60*time.Millisecond {
		t.Errorf("up after %v", d)
	}
	e.ok(t, "/v1/completions", oneStream)
	if _, log := e.emissions(t); log[0].Outcome != "ok" {
		t.Errorf("%+v", log)
	}
}

func TestManyAtOnce(t *testing.T) {
	e := serve(t, config(t, ""))
	want := e.ok(t, "/v1/completions", `{"model":"m","prompt":"p","max_tokens":8,"return_token_ids":true}`)
	ids := fmt.Sprint(decode(t, string(want)).Choices[0].TokenIDs)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_, b, err := e.post(t, "/v1/completions", `{"model":"m","prompt":"p","max_tokens":8,"return_token_ids":true}`)
			if err != nil || fmt.Sprint(decode(t, string(b)).Choices[0].TokenIDs) != ids {
				t.Errorf("%v %s", err, b)
			}
		})
	}
	wg.Wait()
	if _, log := e.emissions(t); len(log) != 51 {
		t.Errorf("%d lines", len(log))
	}
}
