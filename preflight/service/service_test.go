package service

import (
	"slices"
	"strings"
	"testing"

	"assay/preflight"
	"assay/schemas"
)

const wholeAnswer = `{"choices":[{"finish_reason":"length","token_ids":[1,2]}],"usage":{"prompt_tokens":4,"completion_tokens":2}}`

func answer(status int, body string) Documents {
	return Documents{Answer: &Answer{Model: "a/b", Status: status, Body: []byte(body), PromptTokens: 4, OutputTokens: 2}}
}

func runtimeDoc(body string) Documents { return Documents{Runtime: []byte(body)} }

// TestCheck has, for every check, documents that show what it is about and some that
// do not.
func TestCheck(t *testing.T) {
	const ready = `"request_routing":{"total":0},"nodes":[{}]`
	for name, c := range map[string]struct {
		docs Documents
		id   string
		want schemas.Severity
		text string
	}{
		"models":               {Documents{Models: []byte(`{"data":[{"id":"a/b"},{"id":"c"}]}`)}, "service.models", "pass", ""},
		"model missing":        {Documents{Models: []byte(`{"data":[{"id":"a/B"}]}`)}, "service.models", "error", `"a/B"`},
		"no models":            {Documents{Models: []byte(`{"data":3}`)}, "service.document", "error", "data"},
		"not JSON":             {Documents{Models: []byte(`<html>`)}, "service.document", "error", "html"},
		"null":                 {Documents{Metrics: []byte(`null`)}, "service.document", "error", "null"},
		"no limits":            {Documents{Metrics: []byte(`{"limits":{"max_requests_per_second":null,"tokens":{"a":0}}}`)}, "service.limits", "pass", ""},
		"limited":              {Documents{Metrics: []byte(`{"limits":{"max_requests_per_second":2.5}}`)}, "service.limits", "error", "max_requests_per_second = 2.5"},
		"limited by model":     {Documents{Metrics: []byte(`{"limits":{"a":{"tokens":1}}}`)}, "service.limits", "error", "a.tokens = 1"},
		"limits not told":      {Documents{Metrics: []byte(`{"metrics":{}}`)}, "service.limits", "unknown", ""},
		"idle":                 {runtimeDoc(`{` + ready + `}`), "service.outstanding", "pass", ""},
		"outstanding":          {runtimeDoc(`{"request_routing":{"total":3}}`), "service.outstanding", "error", "3 requests"},
		"outstanding not told": {runtimeDoc(`{}`), "service.outstanding", "unknown", ""},
		"one node":             {runtimeDoc(`{` + ready + `}`), "service.nodes", "pass", ""},
		"two nodes":            {runtimeDoc(`{"nodes":[{},{}]}`), "service.nodes", "error", "2 nodes"},
		"nodes not told":       {runtimeDoc(`{"nodes":1}`), "service.nodes", "unknown", ""},
		"ready":                {runtimeDoc(`{"model_placements":{"a/b":{"node_0":{"state":"READY","error":null}}}}`), "service.placement", "pass", ""},
		"ready, by node":       {runtimeDoc(`{"model_placements":{"node_0":{"a/b":"READY"}}}`), "service.placement", "pass", ""},
		"ready, as a list":     {runtimeDoc(`{"model_placements":[{"model":"a/b","node":"node_0","state":"ready"}]}`), "service.placement", "pass", ""},
		"loading":              {runtimeDoc(`{"model_placements":{"a/b":{"node_0":{"state":"LOADING"}}}}`), "service.placement", "error", "LOADING"},
		"failed on one":        {runtimeDoc(`{"model_placements":{"a/b":{"node_0":"READY","node_1":{"state":"FAILED","error":"x"}}}}`), "service.placement", "error", "FAILED"},
		"nowhere":              {runtimeDoc(`{"model_placements":{"c":{}}}`), "service.placement", "error", "no node"},
		"placement not told":   {runtimeDoc(`{}`), "service.placement", "unknown", ""},
		"deployed":             {Documents{Deploys: [][]byte{[]byte(`{"status":"ok","failed":{ }}`)}}, "service.deploy", "pass", ""},
		"partial":              {Documents{Deploys: [][]byte{[]byte(`{"status":"partial","failed":{"node_1":"busy"}}`)}}, "service.deploy", "error", "partial"},
		"ok, one failed":       {Documents{Deploys: [][]byte{[]byte(`{"status":"ok","failed":["node_1"]}`)}}, "service.deploy", "error", "node_1"},
		"deploy not told":      {Documents{Deploys: [][]byte{[]byte(`{}`)}}, "service.deploy", "unknown", ""},
		"power":                {Documents{Power: []byte(`{"gpus":[{"index":0,"power_w":41.5}]}`)}, "service.energy", "pass", ""},
		"no GPU":               {Documents{Power: []byte(`{"gpus":[]}`)}, "service.energy", "error", "no GPU"},
		"no power":             {Documents{Power: []byte(`{"gpus":[{"index":3,"power_w":null}]}`)}, "service.energy", "error", "index 3"},
		"exact":                {answer(200, wholeAnswer), "service.request", "pass", ""},
		"refused":              {answer(503, `{"detail":"x"}`), "service.request", "error", "503"},
		"shorter":              {answer(200, strings.Replace(wholeAnswer, `_tokens":2`, `_tokens":1`, 1)), "service.request", "error", "asked were 2"},
		"ids":                  {answer(200, strings.Replace(wholeAnswer, `[1,2]`, `[1]`, 1)), "service.request", "error", "1 token ids"},
		"prompt":               {answer(200, strings.Replace(wholeAnswer, `":4`, `":5`, 1)), "service.request", "error", "prompt of 4"},
		"stopped":              {answer(200, strings.Replace(wholeAnswer, `"length"`, `"stop"`, 1)), "service.request", "error", "stop"},
		"no usage":             {answer(200, strings.Replace(wholeAnswer, `usage`, `used`, 1)), "service.request", "unknown", ""},
		"no choice":            {answer(200, `{"choices":[]}`), "service.request", "error", "choice"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Check("service x", c.docs, Want{Models: []string{"a/b"}, Nodes: 1})
			i := slices.IndexFunc(got, func(f schemas.Finding) bool { return f.ID == c.id })
			if i < 0 || got[i].Severity != c.want || !strings.Contains(got[i].Message, c.text) {
				t.Errorf("%+v; want %s as %s with %q", got, c.id, c.want, c.text)
			}
			inCatalog(t, got)
		})
	}
}

func inCatalog(t *testing.T, findings []schemas.Finding) {
	t.Helper()
	for _, f := range findings {
		if !slices.ContainsFunc(Catalog(), func(e preflight.Entry) bool { return e.ID == f.ID }) {
			t.Errorf("%s stands in no catalog", f.ID)
		}
		if f.Severity == schemas.SeverityError && f.Remedy == "" {
			t.Errorf("%s says no remedy", f.ID)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(wholeAnswer))
	f.Add([]byte(`{"model_placements":[{"model":"a/b","state":"READY"}],"request_routing":{"total":0},"limits":{"a":{"b":[1]}},"gpus":[{}],"data":[{}],"status":"ok"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := Check("s", Documents{Models: b, Metrics: b, Runtime: b, Power: b, Deploys: [][]byte{b}, Answer: &Answer{Status: 200, Body: b, OutputTokens: 2}}, Want{Models: []string{"a/b"}, Nodes: 1})
		if len(got) < 5 {
			t.Fatalf("%d findings for six documents: %+v", len(got), got)
		}
		inCatalog(t, got)
	})
}
