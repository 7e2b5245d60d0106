package emulated

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const aegaeonModels = `{"personality":"aegaeon","time_scale":200,"models":[
	{"name":"org/a","base":"qwen2.5-7b","max_model_len":64},{"name":"b","base":"yi-9b","max_model_len":4096},{"name":"later","base":"qwen2.5-7b","undeployed":true}]%s}`

func aegaeonConfig(t testing.TB, extra string) Config {
	t.Helper()
	c, err := ParseConfig(fmt.Appendf(nil, aegaeonModels, extra))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (e *engine) get(t *testing.T, path string) (int, map[string]any) {
	t.Helper()
	resp, err := e.client.Get(e.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s: %v: %s", path, err, b)
	}
	return resp.StatusCode, out
}

func (e *engine) send(t *testing.T, path, body string) (int, map[string]any) {
	t.Helper()
	resp, b, err := e.post(t, path, body)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s %s: %v: %s", path, body, err, b)
	}
	return resp.StatusCode, out
}

// at goes down into nested tables.
func at(t *testing.T, v any, path ...string) any {
	t.Helper()
	for _, name := range path {
		table, ok := v.(map[string]any)
		if !ok || table[name] == nil {
			t.Fatalf("nothing at %s of %v in %v", name, path, v)
		}
		v = table[name]
	}
	return v
}

// TestAegaeonChecks: what is refused, how, and what is not.
func TestAegaeonChecks(t *testing.T) {
	e := serve(t, aegaeonConfig(t, ""))
	chat := func(more string) string {
		return `{"model":"b","messages":[{"role":"user","content":"hello"}]` + more + `}`
	}
	text := func(more string) string { return `{"model":"b","prompt":"hello there","max_tokens":3` + more + `}` }
	for _, c := range []struct {
		name, path, body string
		status           int
		want             string // in the detail
	}{
		{"chat", "chat/completions", chat(``), 200, ""},
		{"text", "completions", text(``), 200, ""},
		{"ids", "completions", `{"model":"b","prompt":[1,2,3]}`, 200, ""},
		{"neutral values", "completions", text(`,"n":1,"temperature":0,"top_p":1,"top_k":1,"min_p":0,"repetition_penalty":1,"logit_bias":{},"seed":4,"user":"me","priority":0,"logprobs":null`), 200, ""},
		{"unknown field", "completions", text(`,"best_of":1`), 422, "extra_forbidden"},
		{"response_format", "chat/completions", chat(`,"response_format":{}`), 422, "extra_forbidden"},
		{"enable_thinking", "chat/completions", chat(`,"enable_thinking":false`), 422, "extra_forbidden"},
		{"no model", "completions", `{"prompt":"x"}`, 422, "missing"},
		{"no prompt", "completions", `{"model":"b"}`, 422, "missing"},
		{"wrong type", "completions", text(`,"stream":"yes"`), 422, "bool_type"},
		{"max_tokens 0", "completions", `{"model":"b","prompt":"x","max_tokens":0}`, 422, "greater_than_equal"},
		{"no JSON", "completions", `{`, 422, "json_invalid"},
		{"no object", "completions", `[]`, 422, "model_attributes_type"},
		{"temperature", "completions", text(`,"temperature":0.7`), 400, "temperature"},
		{"n", "completions", text(`,"n":2`), 400, `"n"`},
		{"beam search", "completions", text(`,"use_beam_search":true`), 400, "use_beam_search"},
		{"logit_bias", "completions", text(`,"logit_bias":{"1":2}`), 400, "logit_bias"},
		{"logprobs", "completions", text(`,"logprobs":1`), 400, "logprobs"},
		{"logprobs false in chat", "chat/completions", chat(`,"logprobs":false`), 200, ""},
		{"side", "completions", text(`,"truncation_side":"middle"`), 400, "truncation_side"},
		{"min over max", "completions", text(`,"min_tokens":9`), 400, "min_tokens"},
		{"two budgets", "chat/completions", chat(`,"max_tokens":3,"max_completion_tokens":4`), 400, "max_completion_tokens"},
		{"continue", "chat/completions", chat(`,"continue_final_message":true`), 400, "continue_final_message"},
		{"not deployed", "completions", `{"model":"nobody","prompt":"x"}`, 400, "not deployed"},
		{"not deployed yet", "completions", `{"model":"later","prompt":"x"}`, 400, "not deployed"},
		{"too long", "completions", `{"model":"org/a","prompt":"` + strings.Repeat("x ", 64) + `"}`, 400, "maximum context length"},
		{"several prompts", "completions", `{"model":"b","prompt":["a","b"]}`, 400, "prompt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, out := e.send(t, "/v1/"+c.path, c.body)
			if status != c.status {
				t.Fatalf("status %d, want %d: %v", status, c.status, out)
			}
			detail, isList := out["detail"].([]any)
			if (status == 422) != isList || !strings.Contains(string(encode(out)), c.want) {
				t.Errorf("detail %v (a list: %v), want %q", out["detail"], detail != nil, c.want)
			}
			if status == 400 && at(t, out, "detail", "type") != "invalid_request_error" {
				t.Errorf("%v", out)
			}
		})
	}
}

// TestAegaeonBudget: an answer ends at the context's end, whatever was asked.
func TestAegaeonBudget(t *testing.T) {
	e := serve(t, aegaeonConfig(t, ""))
	status, out := e.send(t, "/v1/completions", `{"model":"org/a","prompt":[1,2,3,4],"max_tokens":1000,"ignore_eos":true,"return_token_ids":true}`)
	if status != 200 || at(t, out, "usage", "completion_tokens") != 60.0 {
		t.Errorf("%d: %v", status, out["usage"])
	}
	choice := out["choices"].([]any)[0].(map[string]any)
	if choice["finish_reason"] != "length" || len(choice["token_ids"].([]any)) != 60 || len(choice["prompt_token_ids"].([]any)) != 4 {
		t.Errorf("%v", choice)
	}
	_, out = e.send(t, "/v1/completions", `{"model":"b","prompt":[1,2,3,4,5,6],"max_tokens":2,"truncate_prompt_tokens":2,"return_token_ids":true}`)
	if ids := out["choices"].([]any)[0].(map[string]any)["prompt_token_ids"]; fmt.Sprint(ids) != "[5 6]" {
		t.Errorf("the end of the prompt stays, got %v", ids)
	}
}

// TestAegaeonStops: a stop text hides what follows, a stop token ends it, echo
// repeats the prompt.
func TestAegaeonStops(t *testing.T) {
	e := serve(t, aegaeonConfig(t, ""))
	const base = `"model":"b","prompt":"hello there","max_tokens":20,"ignore_eos":true,"return_token_ids":true`
	_, whole := e.send(t, "/v1/completions", `{`+base+`}`)
	choice := func(out map[string]any) map[string]any { return out["choices"].([]any)[0].(map[string]any) }
	text := choice(whole)["text"].(string)
	words := strings.Fields(text)
	stop := words[7]
	before, _, _ := strings.Cut(text, stop)
	_, out := e.send(t, "/v1/completions", `{`+base+`,"stop":"`+stop+`"}`)
	if choice(out)["text"] != before || choice(out)["finish_reason"] != "stop" {
		t.Errorf("%q stopped at %q: %v", text, stop, choice(out))
	}
	_, out = e.send(t, "/v1/completions", `{`+base+`,"stop":["never there","`+stop+`"],"include_stop_str_in_output":true}`)
	if choice(out)["text"] != before+stop {
		t.Errorf("with the stop text: %v", choice(out)["text"])
	}
	streamed := events(t, e.ok(t, "/v1/completions", `{`+base+`,"stream":true,"echo":true,"stop":"`+stop+`"}`))
	var seen string
	for _, ev := range streamed[:len(streamed)-1] {
		for _, c := range decode(t, ev).Choices {
			seen += *c.Text
		}
	}
	if seen != "hello there "+before {
		t.Errorf("streamed %q, want %q", seen, "hello there "+before)
	}
	ids := choice(whole)["token_ids"].([]any)
	_, out = e.send(t, "/v1/completions", fmt.Sprintf(`{%s,"stop_token_ids":[%v]}`, base, ids[4]))
	if n := len(choice(out)["token_ids"].([]any)); n > 5 || choice(out)["finish_reason"] != "stop" {
		t.Errorf("stopped at token %v: %v", ids[4], choice(out))
	}
}

// TestAegaeonIDsAreThoseOfEveryMode: equal prompts get equal ids, streamed or not,
// on chat twice, under each policy of graphs.
func TestAegaeonIDsAreThoseOfEveryMode(t *testing.T) {
	dir := t.TempDir()
	var first string
	for _, extra := range []string{``, `,"cuda_graph":{"mode":"save","archive_dir":"` + dir + `"}`, `,"cuda_graph":{"mode":"load","archive_dir":"` + dir + `"}`} {
		c := aegaeonConfig(t, extra)
		c.Models = c.Models[:2]
		e := serve(t, c)
		const body = `"prompt":"say it again","max_tokens":12,"ignore_eos":true,"return_token_ids":true}`
		for _, model := range []string{"org/a", "b"} {
			for _, stream := range []string{"false", "true"} {
				b := e.ok(t, "/v1/completions", `{"model":"`+model+`","stream":`+stream+`,`+body)
				last := string(b)
				if stream == "true" {
					evs := events(t, b)
					last = evs[len(evs)-2]
				}
				ids := fmt.Sprint(decode(t, last).Choices[0].TokenIDs)
				if first == "" && model == "b" {
					first = ids
				}
				if model == "b" && ids != first {
					t.Errorf("%s, stream %s: %s, want %s", extra, stream, ids, first)
				}
			}
		}
		if err := e.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAegaeonDeploy(t *testing.T) {
	e := serve(t, aegaeonConfig(t, `,"serving":{"policy":"aegaeon","workers":4,"prefill_workers":2,"nodes":2,"model_cache_gb":40}`))
	step := func(path, body string, want int) map[string]any {
		t.Helper()
		status, out := e.send(t, "/v1/models/"+path, body)
		if status != want {
			t.Fatalf("%s %s: status %d, want %d: %v", path, body, status, want, out)
		}
		return out
	}
	ask := func(model string) int {
		status, _ := e.send(t, "/v1/completions", `{"model":"`+model+`","prompt":"x","max_tokens":2}`)
		return status
	}
	out := step("deploy", `{"model":"later","typo":1}`, 200)
	if out["status"] != "ok" || len(out["ready_nodes"].([]any)) != 1 || ask("later") != 200 {
		t.Errorf("%v", out)
	}
	if out = step("deploy", `{"model":"later","replica_count":2}`, 200); len(out["ready_nodes"].([]any)) != 2 {
		t.Errorf("two replicas: %v", out)
	}
	out = step("undeploy", `{"model":"later","node_ids":["node_0"]}`, 200)
	if fmt.Sprint(out["remaining_nodes"]) != "[node_1]" || ask("later") != 200 {
		t.Errorf("%v", out)
	}
	step("undeploy", `{"model":"later"}`, 200)
	if ask("later") != 400 {
		t.Error("a model that was undeployed everywhere is served")
	}
	step("undeploy", `{"model":"later"}`, 400)
	step("deploy", `{"model":"new","model_path":"/models/llama2-13b","max_model_len":100}`, 200)
	if ask("new") != 200 {
		t.Error("a new model is not served")
	}
	if status, list := e.get(t, "/v1/models"); status != 200 || !strings.Contains(string(encode(list)), `"new"`) {
		t.Errorf("%v", list)
	}
	step("deploy", `{"model":"new","model_path":"/elsewhere/llama2-13b"}`, 400)
	step("deploy", `{"model":"other"}`, 400)
	step("deploy", `{"model":"other","model_path":"/models/unheard-of"}`, 400)
	step("deploy", `{"model":"later","node_ids":["node_7"]}`, 400)
	step("deploy", `{"model":"later","replica_count":0}`, 422)
	step("deploy", `{"model_path":"/x"}`, 422)
	if out = step("deploy", `{"model":"new","max_model_len":200}`, 200); out["status"] != "ok" {
		t.Errorf("another length: %v", out)
	}
	// 40 GB hold two of these on a node: more evict the one least used.
	for i := range 4 {
		step("deploy", fmt.Sprintf(`{"model":"m%d","model_path":"/x/llama2-13b","node_ids":["node_0"]}`, i), 200)
	}
	_, run := e.get(t, "/v1/aegaeon/runtime")
	if n := at(t, run, "model_placement_stats", "by_node", "node_0", "evictions").(float64); n < 3 {
		t.Errorf("%v evictions on node_0", n)
	}
	if status := ask("m0"); status != 503 {
		t.Errorf("a registered model that no node has: %d", status)
	}
}

// TestAegaeonDeployLoads: while a model is deployed the snapshot tells that it loads,
// other models are served, and the answer comes when it is ready.
func TestAegaeonDeployLoads(t *testing.T) {
	// 15 GB at 0.25 GB/s, 200 times as fast: 0.3 s.
	e := serve(t, aegaeonConfig(t, `,"serving":{"policy":"aegaeon","workers":2,"prefill_workers":1,"load_gb_per_s":0.25}`))
	answered := make(chan int, 1)
	began := time.Now()
	go func() {
		resp, err := e.client.Post(e.url+"/v1/models/deploy", "application/json", strings.NewReader(`{"model":"later"}`))
		if err != nil {
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	loading := false
	for status := -1; status < 0; {
		_, run := e.get(t, "/v1/aegaeon/runtime")
		if later := at(t, run, "model_placements", "later").(map[string]any); len(later) > 0 && at(t, later, "node_0", "state") == "LOADING" {
			if !loading {
				if got, _ := e.send(t, "/v1/completions", `{"model":"b","prompt":"x","max_tokens":2}`); got != 200 {
					t.Errorf("another model meanwhile: %d", got)
				}
			}
			loading = true
		}
		select {
		case status = <-answered:
			if status != 200 {
				t.Errorf("status %d", status)
			}
		case <-time.After(time.Millisecond):
		}
	}
	if took := time.Since(began); !loading || took < 250*time.Millisecond {
		t.Errorf("loading seen: %v, after %s", loading, took)
	}
	if got, _ := e.send(t, "/v1/completions", `{"model":"later","prompt":"x","max_tokens":2}`); got != 200 {
		t.Errorf("it is ready but answers %d", got)
	}
}

func TestAegaeonDeployWithoutRoom(t *testing.T) {
	e := serve(t, aegaeonConfig(t, `,"serving":{"policy":"aegaeon","workers":2,"prefill_workers":1,"model_cache_gb":10}`))
	status, out := e.send(t, "/v1/models/deploy", `{"model":"later"}`)
	if status != http.StatusInsufficientStorage || at(t, out, "detail", "message") == "" {
		t.Errorf("%d: %v", status, out)
	}
	if status, _ := e.send(t, "/v1/completions", `{"model":"b","prompt":"x"}`); status != 503 {
		t.Errorf("registered, nowhere ready: %d", status)
	}
}

func TestAegaeonRuntime(t *testing.T) {
	e := serve(t, aegaeonConfig(t, `,"serving":{"policy":"aegaeon","workers":4,"prefill_workers":2,"nodes":2,"replicas":2,"work_stealing":true}`))
	const requests = 6
	for i := range requests {
		e.ok(t, "/v1/completions", fmt.Sprintf(`{"model":"b","prompt":"x %d","max_tokens":5,"ignore_eos":true}`, i))
	}
	status, run := e.get(t, "/v1/aegaeon/runtime")
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	for _, key := range strings.Fields("timestamp model_placement_policy request_routing_policy last_model_placement_decision model_placement_stats model_placements request_routing engines events work_stealing decode_load nodes") {
		if run[key] == nil {
			t.Errorf("no %s", key)
		}
	}
	if at(t, run, "work_stealing", "enabled") != true || at(t, run, "work_stealing", "min_batch_gap") != 2.0 {
		t.Errorf("%v", run["work_stealing"])
	}
	if at(t, run, "model_placements", "b", "node_1", "state") != "READY" {
		t.Errorf("%v", run["model_placements"])
	}
	if at(t, run, "request_routing", "total") != 0.0 || at(t, run, "request_routing", "cumulative_assignments", "total") != float64(requests) {
		t.Errorf("%v", run["request_routing"])
	}
	tokens := 0.0
	for _, l := range at(t, run, "decode_load", "engines").([]any) {
		tokens += at(t, l, "output_tokens").(float64)
	}
	if tokens != requests*4 {
		t.Errorf("%v tokens decoded, want %d: the first ones are not", tokens, requests*4)
	}
	if len(run["nodes"].([]any)) != 2 || len(run["engines"].([]any)) != 4 || at(t, run["nodes"].([]any)[0], "model_cache", "total_bytes").(float64) <= 0 {
		t.Errorf("%v, %v", run["nodes"], run["engines"])
	}
	finished := 0
	for _, ev := range run["events"].([]any) {
		if at(t, ev, "type") == "finish" {
			finished++
		}
	}
	if finished != requests {
		t.Errorf("%d events of requests that finished", finished)
	}
	if _, power := e.get(t, "/v1/aegaeon/gpu-power"); len(power["gpus"].([]any)) != 4 || at(t, power["gpus"].([]any)[0], "power_w").(float64) <= 0 {
		t.Errorf("%v", power)
	}
	if _, m := e.get(t, "/v1/aegaeon/metrics"); m["window_seconds"] != 60.0 || at(t, m, "metrics", "b", "requests") != float64(requests) {
		t.Errorf("%v", m)
	}
}

func TestAegaeonLimits(t *testing.T) {
	e := serve(t, aegaeonConfig(t, `,"limits":{"max_requests_per_second":0.05}`)) // three a minute
	for i, want := range []int{200, 200, 200, 429} {
		if status, out := e.send(t, "/v1/completions", `{"model":"b","prompt":"x","max_tokens":1}`); status != want {
			t.Errorf("request %d: %d, want %d: %v", i, status, want, out)
		}
	}
	if status, _ := e.send(t, "/v1/completions", `{"model":"org/a","prompt":"x","max_tokens":1}`); status != 200 {
		t.Errorf("limits are of each model: %d", status)
	}
}

func TestAegaeonTokens(t *testing.T) {
	e := serve(t, aegaeonConfig(t, ""))
	rapid.Check(t, func(rt *rapid.T) {
		list := rapid.SliceOfN(rapid.SampledFrom(append([]string{"unheard", "Wörter"}, words...)), 1, 20).Draw(rt, "words")
		prompt := strings.Join(list, " ")
		status, out := e.send(t, "/tokenize", string(encode(map[string]any{"model": "b", "prompt": prompt})))
		if status != 200 || out["count"] != float64(len(list)) {
			rt.Fatalf("%d: %v", status, out)
		}
		status, back := e.send(t, "/detokenize", string(encode(map[string]any{"model": "b", "tokens": out["tokens"]})))
		if status != 200 || back["prompt"] != prompt {
			rt.Fatalf("%q came back as %v", prompt, back)
		}
	})
	if status, out := e.get(t, "/openapi.json"); status != 200 || at(t, out, "paths", "/v1/completions", "post") == nil || !strings.Contains(string(encode(out)), `"stop_token_ids"`) {
		t.Errorf("%d: %v", status, out)
	}
	for body, want := range map[string]int{
		`{"model":"b"}`:                                422,
		`{"model":"b","prompt":5}`:                     422,
		`{"model":"nobody","prompt":"x"}`:              400,
		`{"model":"b","prompt":"x","chat_template":1}`: 422,
	} {
		if status, out := e.send(t, "/tokenize", body); status != want {
			t.Errorf("%s: %d, want %d: %v", body, status, want, out)
		}
	}
	if status, _ := e.send(t, "/detokenize", `{"model":"b","tokens":[1,-2]}`); status != 422 {
		t.Errorf("a negative id: %d", status)
	}
}

// TestAegaeonEvents: a listener is told at once of what is kept, then of what
// changes.
func TestAegaeonEvents(t *testing.T) {
	e := serve(t, aegaeonConfig(t, ""))
	e.ok(t, "/v1/completions", `{"model":"b","prompt":"x","max_tokens":2}`)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/v1/aegaeon/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReaderSize(resp.Body, 1<<20)
	next := func() string {
		t.Helper()
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				return data
			}
		}
	}
	if first := next(); !strings.Contains(first, `"finish"`) || !strings.Contains(first, `"engines"`) {
		t.Errorf("at first: %s", first)
	}
	e.ok(t, "/v1/completions", `{"model":"org/a","prompt":"x","max_tokens":2}`)
	for seen := next(); !strings.Contains(seen, `"org/a"`); seen = next() {
		if strings.Contains(seen, `"type":"finish","model":"b"`) {
			t.Errorf("told twice: %s", seen)
		}
	}
	cancel()
}

// TestAegaeonGoesOn: a request whose client has gone keeps its place until it ends.
func TestAegaeonGoesOn(t *testing.T) {
	c := aegaeonConfig(t, "")
	c.TimeScale = 1
	e := serve(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v1/completions", strings.NewReader(`{"model":"b","prompt":"x","max_tokens":3000,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	_, run := e.get(t, "/v1/aegaeon/runtime")
	if at(t, run, "request_routing", "total") != 1.0 {
		t.Errorf("%v", run["request_routing"])
	}
}

// FuzzAegaeonBody: whatever a body holds is refused or read, never worse, and what
// is read keeps within the model's length.
func FuzzAegaeonBody(f *testing.F) {
	f.Add([]byte(`{"model":"b","prompt":[1,2],"max_tokens":3,"stop":["x"],"stop_token_ids":[4],"truncate_prompt_tokens":1}`), false)
	f.Add([]byte(`{"model":"b","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"max_completion_tokens":2}`), true)
	f.Add([]byte(`{"model":"b","prompt":"a b","temperature":0,"logit_bias":{},"truncation_side":"right","truncate_prompt_tokens":-1}`), false)
	f.Fuzz(func(t *testing.T, b []byte, chat bool) {
		rules := aegaeonCompletion
		if chat {
			rules = aegaeonChat
		}
		in, refused := rules.read(b, false)
		if refused == nil {
			refused = greedy(in, chat)
		}
		r := &request{chat: chat, model: Model{Name: "b", MaxModelLen: 100}}
		if refused == nil {
			refused = r.readAegaeon(&server{}, b, in)
		}
		if refused != nil {
			if refused.status < 400 || refused.status > 499 {
				t.Errorf("status %d", refused.status)
			}
			return
		}
		if r.promptTokens < 1 || r.maxTokens < 1 || r.promptTokens+r.maxTokens > 100 || r.promptTokens != len(r.promptIDs) {
			t.Errorf("%+v", r)
		}
		out := plan(Config{TimeScale: 1}, r)
		if len(out.ids) < 1 || len(out.ids) > r.maxTokens || len(out.due) != len(out.ids) || out.shown() > len(out.ids) {
			t.Errorf("%+v", out)
		}
	})
}
