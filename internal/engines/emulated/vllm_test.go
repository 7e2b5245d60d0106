package emulated

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func personalised(t testing.TB, name, extra string) Config {
	t.Helper()
	c, err := ParseConfig(fmt.Appendf(nil, `{"personality":%q,"models":[{"name":"m","prefill_base":"2ms","prefill_per_token":"0s","decode_per_token":"1ms","max_model_len":600}]%s}`, name, extra))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (e *engine) text(t *testing.T, path string) (int, string) {
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
	return resp.StatusCode, string(b)
}

func TestVLLMEndpoints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "traces")
	e := serve(t, personalised(t, PersonalityVLLM, `,"profile":{"output":"`+dir+`"}`))
	if status, out := e.get(t, "/version"); status != 200 || !strings.Contains(out["version"].(string), "emulated") {
		t.Errorf("%d: %v", status, out)
	}
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/tokenize", `{"model":"m","prompt":"a river","return_token_strs":true}`, 200, `"token_strs":["a","river"]`},
		{"/tokenize", `{"prompt":"a river"}`, 200, `"count":2`},
		{"/tokenize", `{"messages":[{"role":"user","content":"one two three"}]}`, 200, `"max_model_len":600`},
		{"/tokenize", `{"model":"nobody","prompt":"x"}`, 404, "model_not_found"},
		{"/tokenize", `{"model":"m"}`, 400, "prompt or messages"},
		{"/tokenize", `{"messages":[{"role":"user","content":7}]}`, 400, "content"},
		{"/detokenize", `{"model":"m","tokens":[0,1]}`, 200, `"prompt":"a river"`},
		{"/detokenize", `{"model":"m","tokens":["x"]}`, 400, "token ids"},
	} {
		resp, b, err := e.post(t, c.path, c.body)
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(b), c.want) {
			t.Errorf("%s %s: %v, %v: %s", c.path, c.body, resp.StatusCode, err, b)
		}
	}
	for _, path := range []string{"/ping", "/reset_prefix_cache", "/start_profile"} {
		if b := e.ok(t, path, ""); len(b) != 0 {
			t.Errorf("%s: %s", path, b)
		}
	}
	e.ok(t, "/v1/completions", `{"model":"m","prompt":"x","max_tokens":4,"ignore_eos":true}`)
	e.ok(t, "/stop_profile", "")
	if b, err := os.ReadFile(filepath.Join(dir, "trace.json")); err != nil || !json.Valid(b) {
		t.Errorf("%v: %s", err, b)
	}
	_, metrics := e.text(t, "/metrics")
	for _, want := range []string{
		`vllm:prompt_tokens_total{engine="0",model_name="m"} 1`, `vllm:generation_tokens_total{engine="0",model_name="m"} 4`,
		`vllm:request_success_total{engine="0",model_name="m",finished_reason="length"} 1`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 1`, `vllm:num_requests_running{engine="0",model_name="m"} 0`,
		`vllm:e2e_request_latency_seconds_bucket{engine="0",model_name="m",le="+Inf"} 1`, `# TYPE vllm:kv_cache_usage_perc gauge`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
}

// TestProfilesAreOffByDefault: without a place for traces there is nothing to start.
func TestProfilesAreOffByDefault(t *testing.T) {
	for _, name := range []string{PersonalityVLLM, PersonalityPyPTO} {
		e := serve(t, personalised(t, name, ""))
		if resp, b, err := e.post(t, "/start_profile", ""); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %v, %v: %s", name, resp, err, b)
		}
	}
}

// TestVLLMTokenIDs: each event tells the ids of its own tokens.
func TestVLLMTokenIDs(t *testing.T) {
	c := personalised(t, PersonalityVLLM, `,"tokens_per_chunk":3`)
	e := serve(t, c)
	const rest = `"model":"m","prompt":[1,2],"max_tokens":8,"ignore_eos":true,"return_token_ids":true`
	whole := decode(t, string(e.ok(t, "/v1/completions", `{`+rest+`}`))).Choices[0]
	var ids []int
	for i, ev := range events(t, e.ok(t, "/v1/completions", `{"stream":true,`+rest+`}`)) {
		if ev == "[DONE]" {
			break
		}
		choice := decode(t, ev).Choices[0]
		if (len(choice.PromptTokenIDs) > 0) != (i == 0) {
			t.Errorf("event %d: prompt ids %v", i, choice.PromptTokenIDs)
		}
		ids = append(ids, choice.TokenIDs...)
	}
	if len(ids) != 8 || fmt.Sprint(ids) != fmt.Sprint(whole.TokenIDs) {
		t.Errorf("%v, want %v", ids, whole.TokenIDs)
	}
}
