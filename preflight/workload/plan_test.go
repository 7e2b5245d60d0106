package workload

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"assay/preflight"
	"assay/schemas"
)

func check(t *testing.T, name string, got []schemas.Finding, id string, want schemas.Severity, text string) {
	t.Helper()
	i := slices.IndexFunc(got, func(f schemas.Finding) bool { return f.ID == id })
	if i < 0 || got[i].Severity != want || !strings.Contains(got[i].Message, text) {
		t.Errorf("%s: %+v; want %s as %s with %q", name, got, id, want, text)
	}
	for _, f := range got {
		if !slices.ContainsFunc(Catalog(), func(e preflight.Entry) bool { return e.ID == f.ID }) {
			t.Errorf("%s stands in no catalog", f.ID)
		}
	}
}

func TestCheckPlan(t *testing.T) {
	limits := map[string]int{"a": 2048, "b": 1024}
	for name, c := range map[string]struct {
		plan Plan
		id   string
		want schemas.Severity
		text string
	}{
		"fits":     {Plan{Sequence: 1024, Limits: limits}, "workload.sequence", "pass", "1024"},
		"too long": {Plan{Sequence: 1025, Limits: limits}, "workload.sequence", "error", "model b takes 1024"},
		"enough":   {Plan{Requests: 662}, "workload.samples", "pass", "662"},
		"few":      {Plan{Requests: 661}, "workload.samples", "info", "p99"},
		"very few": {Plan{Requests: 3}, "workload.samples", "info", "p50, p90, p95, p99"},
	} {
		check(t, name, CheckPlan("s", c.plan), c.id, c.want, c.text)
	}
	if got := CheckPlan("s", Plan{}); len(got) != 0 {
		t.Errorf("nothing is known: %+v", got)
	}
}

func TestCheckBody(t *testing.T) {
	for name, c := range map[string]struct {
		api, body string
		want      schemas.Severity
		text      string
	}{
		"greedy":         {"completions", `{"model":"a","prompt":[1],"max_tokens":2,"min_tokens":2,"temperature":0,"top_k":1,"stream":true,"logprobs":null,"logit_bias":{}}`, "pass", ""},
		"chat":           {"chat", `{"model":"a","messages":[],"max_tokens":2,"logprobs":false,"top_logprobs":0}`, "pass", ""},
		"samples":        {"completions", `{"temperature":0.7}`, "error", "temperature takes only 0"},
		"top_k":          {"completions", `{"top_k":40}`, "error", "top_k"},
		"number as text": {"completions", `{"n":"1"}`, "error", "n takes only 1"},
		"unknown":        {"completions", `{"max_token":2}`, "error", "max_tokens is near"},
		"thinking":       {"chat", `{"enable_thinking":false}`, "error", "422"},
		"of the other":   {"chat", `{"prompt":"x"}`, "error", "prompt"},
		"beams":          {"completions", `{"use_beam_search":true}`, "error", "beam"},
		"bias":           {"completions", `{"logit_bias":{"1":2}}`, "error", "logit_bias"},
		"probabilities":  {"chat", `{"logprobs":true}`, "error", "logprobs"},
		"more at least":  {"completions", `{"max_tokens":2,"min_tokens":3}`, "error", "min_tokens 3"},
	} {
		var body map[string]any
		if err := json.Unmarshal([]byte(c.body), &body); err != nil {
			t.Fatal(err)
		}
		check(t, name, CheckBody("s", c.api, body), "workload.body", c.want, c.text)
	}
}
