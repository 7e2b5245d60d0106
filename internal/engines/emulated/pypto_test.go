package emulated

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPyPTOChecks(t *testing.T) {
	e := serve(t, personalised(t, PersonalityPyPTO, `,"time_scale":50`))
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"completions", `{"prompt":"x","max_tokens":3}`, 200, `"finish_reason":"length"`},
		{"completions", `{"model":"m","prompt":"x","max_tokens":3,"unknown":[1]}`, 200, `"id":"cmpl-`},
		{"completions", `{"prompt":"x","max_tokens":null}`, 400, `"object":"error"`},
		{"completions", `{"prompt":"x","max_tokens":0}`, 400, "positive"},
		{"completions", `{"prompt":"x","top_k":0}`, 400, "top_k"},
		{"completions", `{"prompt":"x","top_p":0}`, 400, "top_p"},
		{"completions", `{"prompt":"x","temperature":-1}`, 400, "temperature"},
		{"completions", `{"prompt":"x","seed":-1}`, 400, "seed"},
		{"completions", `{"prompt":[1,2]}`, 422, "string_type"},
		{"completions", `{"prompt":"x","stop":"word"}`, 422, "list_type"},
		{"completions", `{"prompt":"x","stop":[4]}`, 422, "string_type"},
		{"completions", `{"prompt":"x","stream":3}`, 422, "bool_type"},
		{"completions", `{"model":"other","prompt":"x"}`, 400, "not served"},
		{"completions", `{"prompt":"` + strings.Repeat("x ", 599) + `","max_tokens":2}`, 400, "max_model_len"},
		{"completions", `{}`, 400, "empty"},
		{"chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":3}`, 200, `"delta":null`},
		{"chat/completions", `{"messages":[]}`, 400, "at least one"},
	} {
		resp, b, err := e.post(t, "/v1/"+c.path, c.body)
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(b), c.want) {
			t.Errorf("%.80s: %v, %v: %s", c.body, resp.StatusCode, err, b)
		}
	}
	if status, out := e.get(t, "/health"); status != 200 || out["status"] != "ok" {
		t.Errorf("%d: %v", status, out)
	}
	if status, out := e.get(t, "/v1/models"); status != 200 || !strings.Contains(string(encode(out)), `"id":"m"`) {
		t.Errorf("%d: %v", status, out)
	}
	if _, out := e.get(t, "/metrics/json"); out["num_finished_reqs"] != 3.0 {
		t.Errorf("%v", out)
	}
	if _, text := e.text(t, "/metrics"); !strings.Contains(text, "pypto_serving_num_finished_reqs 3\n") {
		t.Error(text)
	}
}

// TestPyPTOStream: chunks with nulls, a reason in the last one with text, then the
// usage, asked for or not.
func TestPyPTOStream(t *testing.T) {
	e := serve(t, personalised(t, PersonalityPyPTO, ""))
	for path, body := range map[string]string{
		"/v1/completions":      `{"prompt":"one two","max_tokens":4,"stream":true}`,
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"one two"}],"max_tokens":4,"stream":true}`,
	} {
		evs := events(t, e.ok(t, path, body))
		if len(evs) != 6 || evs[5] != "[DONE]" {
			t.Fatalf("%s: %d events: %v", path, len(evs), evs)
		}
		for i, ev := range evs[:4] {
			want := `"finish_reason":null`
			if i == 3 {
				want = `"finish_reason":"length"`
			}
			if !strings.Contains(ev, want) || !strings.Contains(ev, `"usage":null`) {
				t.Errorf("%s: %s", path, ev)
			}
			if path == "/v1/chat/completions" && (!strings.Contains(ev, `"role":"assistant"`) || !strings.Contains(ev, `"message":null`)) {
				t.Errorf("%s", ev)
			}
		}
		var last pyptoAnswer
		if err := json.Unmarshal([]byte(evs[4]), &last); err != nil || len(last.Choices) != 0 || last.Usage == nil || *last.Usage != (usage{2, 4, 6}) {
			t.Errorf("%s: %s", path, evs[4])
		}
		if !regexp.MustCompile(`^(cmpl|chatcmpl)-[0-9a-f]{8}$`).MatchString(last.ID) {
			t.Errorf("id %q", last.ID)
		}
	}
}

// TestPyPTOStops: a stop text ends the generation, not only what is shown.
func TestPyPTOStops(t *testing.T) {
	e := serve(t, personalised(t, PersonalityPyPTO, `,"time_scale":50`))
	_, whole := e.send(t, "/v1/completions", `{"prompt":"x","max_tokens":40}`)
	text := whole["choices"].([]any)[0].(map[string]any)["text"].(string)
	stop := strings.Fields(text)[10]
	before, _, _ := strings.Cut(text, stop)
	_, out := e.send(t, "/v1/completions", fmt.Sprintf(`{"prompt":"x","max_tokens":40,"stop":[%q]}`, stop))
	choice := out["choices"].([]any)[0].(map[string]any)
	if choice["text"] != before || choice["finish_reason"] != "stop" {
		t.Errorf("%v, want %q", choice, before)
	}
}

// TestPyPTOProfile: start and stop leave a trace and its fragments; the next start
// deletes them.
func TestPyPTOProfile(t *testing.T) {
	for _, contended := range []string{``, `,"time_scale":20,"serving":{"policy":"serverlessllm","workers":1}`} {
		dir := t.TempDir()
		e := serve(t, personalised(t, PersonalityPyPTO, `,"profile":{"output":"`+dir+`","level":"verbose"}`+contended))
		trace := filepath.Join(dir, "trace.json")
		e.ok(t, "/v1/completions", `{"prompt":"before","max_tokens":2}`)
		e.ok(t, "/start_profile", "")
		e.ok(t, "/start_profile", "")
		e.ok(t, "/v1/completions", `{"prompt":"x","max_tokens":3}`)
		e.ok(t, "/v1/completions", `{"prompt":"x","max_tokens":3,"stream":true}`)
		e.ok(t, "/stop_profile", "")
		e.ok(t, "/stop_profile", "")
		count := checkTrace(t, trace)
		if count["kernel.decode_fwd"] != 4 || count["http.completions"] != 2 || count["http.stream_completion"] != 1 || count["http.stream_completion.finished"] != 1 {
			t.Errorf("%v", count)
		}
		lines, err := filepath.Glob(filepath.Join(dir, "fragments", "trace.*.jsonl"))
		if err != nil || len(lines) != 1 {
			t.Errorf("fragments %v, %v", lines, err)
		}
		e.ok(t, "/start_profile", "")
		if _, err := os.Stat(trace); !os.IsNotExist(err) {
			t.Errorf("the last trace is still there: %v", err)
		}
		if err := e.stop(); err != nil {
			t.Fatal(err)
		}
		checkTrace(t, trace) // merged at the end
	}
}

// checkTrace reads a trace and counts the names in it.
func checkTrace(t *testing.T, path string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Events []span `json:"traceEvents"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	cats := map[string]bool{}
	for _, s := range doc.Events {
		count[s.Name]++
		cats[s.Cat] = true
		if (s.Ph == "X") != (s.Dur != nil) || (s.Ph == "X" && *s.Dur < 0) || s.PID == 0 {
			t.Errorf("%+v", s)
		}
	}
	if count["process_name"] != 1 {
		t.Errorf("%v in %v", count, cats)
	}
	return count
}

func TestPyPTOOffline(t *testing.T) {
	dir := t.TempDir()
	c := personalised(t, PersonalityPyPTO, `,"profile":{"output":"`+dir+`/window.json"}`)
	var b bytes.Buffer
	o := Offline{Prompts: []string{"one two", "three"}, GenerateConfig: `{"max_new_tokens":70,"ignore_eos":true}`}
	if err := Generate(context.Background(), c, o, &b); err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^Generating 2 prompt\(s\): model=m
-- prompt 1/2 --
text: [^\n]+
token_ids: \[(\d+, ){63}\d+\]\.\.\.
finish_reason: length
-- prompt 2/2 --
text: [^\n]+
token_ids: \[(\d+, ){63}\d+\]\.\.\.
finish_reason: length
\[generate\] 140 tokens in \d+\.\d\ds \(\d+\.\d tok/s\)
$`)
	if !form.MatchString(b.String()) {
		t.Errorf("printed\n%s", b.String())
	}
	if count := checkTrace(t, filepath.Join(dir, "window.json")); count["cli.generate"] != 1 {
		t.Errorf("%v", count)
	}
	// The ids are those of the server.
	e := serve(t, c)
	_, out := e.send(t, "/v1/completions", `{"prompt":"one two","max_tokens":70}`)
	text := out["choices"].([]any)[0].(map[string]any)["text"].(string)
	if !strings.Contains(b.String(), "text: "+text+"\n") {
		t.Errorf("the server answers %q", text)
	}
	b.Reset()
	o = Offline{Prompts: []string{"one two"}, GenerateConfig: `{"max_new_tokens":5,"ignore_eos":true,"stream":true}`}
	c.Profile = nil
	if err := Generate(context.Background(), c, o, &b); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("Generating 1 prompt(s): model=m\n%s\nfinish_reason: length\n[generate] 5 tokens in ", strings.Join(strings.Fields(text)[:5], " "))
	if !strings.HasPrefix(b.String(), want) {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
	for config, want := range map[string]string{
		`{"max_new_tokens":0}`: "max_new_tokens", `{"top_k":0}`: "top_k", `{"top_p":2}`: "top_p", `{"beam":1}`: "beam", `{"stop":"x"}`: "stop", `[]`: "dictionary", `{"max_new_tokens":700}`: "max_model_len",
	} {
		if err := Generate(context.Background(), c, Offline{Prompts: []string{"x"}, GenerateConfig: config}, &b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
	if err := (Offline{Prompts: []string{"x", "y"}, GenerateConfig: `{"stream":true}`}).Check(c); err == nil {
		t.Error("two prompts are streamed")
	}
}
