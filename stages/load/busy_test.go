package load

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// busy is an engine of two nodes with room for one model each, on the second of which
// model a answers until done is called.
func busy(t *testing.T, config map[string]any) (s *stage, done func()) {
	t.Helper()
	s = newStage(t, foundry(map[string]any{"workers": 4.0, "prefill_workers": 2.0, "nodes": 2.0, "model_cache_gb": 20.0}, true), config, nil)
	post := func(ctx context.Context, path, body string) *http.Response {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.task.Service.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := post(context.Background(), deployPath, `{"model":"a","node_ids":["node_1"]}`)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	ctx, cancel := context.WithCancel(context.Background())
	stream := post(ctx, "/v1/completions", `{"model":"a","prompt":[1,2,3],"max_tokens":8000,"ignore_eos":true,"stream":true}`)
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("status %d", stream.StatusCode)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, stream.Body)
	}()
	done = func() { cancel(); stream.Body.Close(); <-ended }
	t.Cleanup(done)
	return s, done
}

// TestPartialByTheService: a node whose only model is in use takes no other; what the
// service says of it is kept, and the replica that is ready is used.
func TestPartialByTheService(t *testing.T) {
	s, _ := busy(t, map[string]any{"models": []any{"b"}, "nodes": []any{"node_0", "node_1"}, "allow_partial": true})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	sum, _, _ := s.read(t)
	m := sum.Models[0]
	if m.Deploy.Status != "partial" || len(m.Deploy.Failed) != 1 || m.Deploy.Failed[0].Node != "node_1" || !strings.Contains(m.Deploy.Failed[0].Error, "does not fit") {
		t.Errorf("%+v", m.Deploy)
	}
	if len(m.Replicas) != 2 || m.Replicas[0].Repeat == nil || m.Replicas[1].State != "FAILED" || m.Replicas[1].FirstUse != nil || m.Replicas[1].Unknown == "" {
		t.Errorf("%+v", m.Replicas)
	}
	if !slices.Contains(s.ids(), "load.deploy-partial") {
		t.Errorf("%+v", s.findings)
	}
}

// TestBusyReplicaDrains: a replica with requests is asked to go until it has gone.
func TestBusyReplicaDrains(t *testing.T) {
	s, done := busy(t, map[string]any{"models": []any{}, "undeploy": []any{"a"}})
	first := make(chan struct{})
	hide := s.task.Hide
	calls := 0
	s.task.Hide = func(text string) string { // is given each answer
		if strings.Contains(text, "DRAINING") && strings.HasPrefix(text, "{") {
			if calls++; calls == 2 {
				close(first)
			}
		}
		return hide(text)
	}
	go func() {
		<-first
		done()
	}()
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	sum, _, _ := s.read(t)
	if u := sum.Undeployed[0]; u.Status != "ok" || u.Calls < 3 || len(u.Failed) > 0 {
		t.Errorf("%+v", u)
	}
}
