package emulated

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestMetricsCountWhatWasServed(t *testing.T) {
	e := serve(t, config(t, ""))
	e.ok(t, "/v1/completions", `{"model":"m","prompt":"one two three","max_tokens":5,"ignore_eos":true,"stream":true}`)
	e.ok(t, "/v1/completions", `{"model":"m","prompt":"one two","max_tokens":4,"ignore_eos":true}`)
	want := []string{
		`emulated:prompt_tokens_total{model_name="m"} 5`, `emulated:generation_tokens_total{model_name="m"} 9`,
		`emulated:request_success_total{model_name="m",finished_reason="length"} 2`, `emulated:num_requests_running{model_name="m"} 0`,
		`emulated:generation_tokens_total{model_name="org/n"} 0`, `emulated:time_to_first_token_seconds_count{model_name="m"} 2`,
	}
	// A request is counted as it ends, which the client may see first.
	missing := ""
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		resp, err := e.client.Get(e.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Fatal(resp, err)
		}
		missing = ""
		for _, line := range want {
			if !strings.Contains(string(b), line+"\n") {
				missing += line + "\n"
			}
		}
		if missing == "" {
			return
		}
	}
	t.Errorf("missing:\n%s", missing)
}
