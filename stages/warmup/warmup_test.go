package warmup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"assay/internal/engines/emulated"
	"assay/internal/loadgen"
	"assay/internal/report"
	"assay/pipeline"
	"assay/schemas"

	"pgregory.net/rapid"
)

type stage struct {
	task     *pipeline.Task
	log      bytes.Buffer
	findings []schemas.Finding
}

// newStage starts an emulated engine and makes a task that uses it.
func newStage(t *testing.T, engine, config map[string]any) *stage {
	t.Helper()
	cfg, err := emulated.FromMap(engine)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	view := &pipeline.ServiceView{Name: "engine", Engine: "emulated", URL: "http://" + l.Addr().String(), Emulated: true, Done: done, Dead: func() string {
		select {
		case <-ctx.Done():
			return "killed by signal 9"
		default:
			return ""
		}
	}}
	for _, m := range cfg.Models {
		view.Models = append(view.Models, m.Name)
	}
	go func() {
		defer close(done)
		_ = emulated.Serve(ctx, cfg, emulated.Options{Listener: l, Log: io.Discard, Die: cancel})
	}()
	t.Cleanup(func() { cancel(); <-done })
	fields, _ := schemas.FieldsOf("warmup")
	s := &stage{}
	s.task = &pipeline.Task{Node: schemas.Node{ID: "warm@t001"}, Config: schemas.ApplyDefaults(fields, config), Seed: 7, Dir: t.TempDir(), Log: &s.log, Service: view,
		Report: func(f schemas.Finding) { s.findings = append(s.findings, f) }, Progress: func(int64, int64, string) {}}
	return s
}

func engineOf(models ...string) map[string]any {
	var list []any
	for _, m := range models {
		list = append(list, map[string]any{"name": m, "prefill_base": "2ms", "prefill_per_token": "0s", "decode_per_token": "1ms"})
	}
	return map[string]any{"models": list}
}

func (s *stage) summary(t *testing.T) Summary {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.task.Dir, "outputs", OutputSummary, SummaryFile))
	if err != nil {
		t.Fatal(err)
	}
	var sum Summary
	if err := json.Unmarshal(b, &sum); err != nil {
		t.Fatal(err)
	}
	return sum
}

func (s *stage) records(t *testing.T) []schemas.RequestRecord {
	t.Helper()
	rd, err := report.OpenRecords(filepath.Join(s.task.Dir, "outputs", OutputRequests, RequestsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	var out []schemas.RequestRecord
	for r, err := range rd.All() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestCountRuleVisitsEveryModelInTurn(t *testing.T) {
	s := newStage(t, engineOf("b", "a"), map[string]any{"count": 3.0, "output_tokens": 5.0})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	sum := s.summary(t)
	if len(sum.Models) != 2 || sum.Models[0].Model != "a" || sum.Models[1].Model != "b" || sum.Phase != "warmup" || !sum.Emulated {
		t.Fatalf("summary: %+v", sum)
	}
	for _, m := range sum.Models {
		// 2 ms of prefill and four tokens after the first are the least it takes.
		if m.Sent != 3 || !m.Held || m.FirstE2EMs == nil || *m.FirstE2EMs < 6 || m.FirstTTFTMs == nil || *m.FirstTTFTMs < 2 || m.LastSpreadPercent != nil {
			t.Errorf("model %s: %+v", m.Model, m)
		}
	}
	recs := s.records(t)
	if len(recs) != 6 {
		t.Fatalf("%d records, want 6", len(recs))
	}
	for i, r := range recs {
		if r.Index != i || (i > 0 && *r.DispatchedNs < recs[i-1].EndNs) {
			t.Errorf("request %d began before the one above it had ended", i)
		}
	}
}

func TestStableRuleStopsEarlyOrSaysThatItDoesNotHold(t *testing.T) {
	loose := newStage(t, engineOf("a"), map[string]any{"count": 50.0, "stable": map[string]any{"within_percent": 1e6, "over": 2.0}})
	if err := run(context.Background(), loose.task); err != nil {
		t.Fatal(err)
	}
	if m := loose.summary(t).Models[0]; m.Sent != 2 || !m.Held || m.LastSpreadPercent == nil {
		t.Errorf("loose rule: %+v", m)
	}
	strict := newStage(t, engineOf("a"), map[string]any{"count": 3.0, "stable": map[string]any{"within_percent": 0.0, "over": 2.0}})
	if err := run(context.Background(), strict.task); err != nil {
		t.Fatal(err)
	}
	if m := strict.summary(t).Models[0]; m.Sent != 3 || m.Held {
		t.Errorf("strict rule: %+v", m)
	}
	if len(strict.findings) != 1 || strict.findings[0].ID != "warmup.unstable" || strict.findings[0].Severity != schemas.SeverityWarning {
		t.Errorf("findings: %+v", strict.findings)
	}
}

func TestAFailureNamesModelAndOutcome(t *testing.T) {
	engine := engineOf("a", "b")
	engine["fault"] = map[string]any{"kind": "http_500", "after_requests": 2.0}
	s := newStage(t, engine, map[string]any{"count": 2.0})
	err := run(context.Background(), s.task)
	if err == nil || !strings.Contains(err.Error(), "model b: request 1 ended with http_5xx") {
		t.Fatalf("error: %v", err)
	}
	if recs := s.records(t); len(recs) != 3 || recs[2].Outcome != schemas.OutcomeHTTP5xx {
		t.Errorf("the failed request has no record: %d", len(recs))
	}
	if sum := s.summary(t); len(sum.Models) != 2 || sum.Models[1].Held {
		t.Errorf("summary: %+v", sum)
	}
}

func TestServiceDeathIsNamed(t *testing.T) {
	engine := engineOf("a")
	engine["fault"] = map[string]any{"kind": "die", "after_tokens": 1.0}
	s := newStage(t, engine, map[string]any{})
	if err := run(context.Background(), s.task); err == nil || !strings.Contains(err.Error(), "service engine died during warm-up: killed by signal 9") {
		t.Fatalf("error: %v", err)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	reason := errors.New("time limit")
	ctx, cancel := context.WithCancelCause(context.Background())
	s := newStage(t, engineOf("a"), map[string]any{"count": 100.0})
	s.task.Progress = func(done, _ int64, _ string) {
		if done == 2 {
			cancel(reason)
		}
	}
	if err := run(ctx, s.task); !errors.Is(err, reason) {
		t.Errorf("error %v, want the cause", err)
	}
	if m := s.summary(t).Models[0]; m.Sent != 2 {
		t.Errorf("sent %d, want 2", m.Sent)
	}
}

func TestRuleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rule{count: 100, over: rapid.IntRange(2, 8).Draw(t, "over"), within: rapid.Float64Range(0, 50).Draw(t, "within")}
		times := rapid.SliceOfN(rapid.Float64Range(0.1, 1000), 0, 20).Draw(t, "times")
		held, spread := r.holds(times)
		if (spread != nil) != (len(times) >= r.over) {
			t.Fatalf("spread %v over %d of %d", spread, r.over, len(times))
		}
		if spread != nil && held != (*spread <= r.within) {
			t.Fatalf("held %v at spread %v within %v", held, *spread, r.within)
		}
		same := make([]float64, r.over)
		for i := range same {
			same[i] = 5
		}
		if held, _ := r.holds(append(times, same...)); !held {
			t.Fatal("equal times are stable, whatever came before")
		}
	})
}

func TestWarmsWithTextWhereIdsAreNotTaken(t *testing.T) {
	s := newStage(t, engineOf("a"), map[string]any{"count": 2.0, "input_tokens": 6.0})
	s.task.Service.Asking.TextPrompts = true
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.records(t) {
		if r.Outcome != schemas.OutcomeOK || r.InputTokensSource == "asked" || r.InputTokensSource == "token_ids" {
			t.Errorf("%+v", r)
		}
	}
}

// A prompt that warmed a service would be in its prefix cache when it is measured.
func TestPromptsAreNotThoseOfTheMeasurement(t *testing.T) {
	var mu sync.Mutex
	var prompts []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Prompt string `json:"prompt"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		mu.Lock()
		prompts = append(prompts, q.Prompt)
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"x\",\"index\":0,\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	s := newStage(t, engineOf("a"), map[string]any{"count": 3.0, "input_tokens": 8.0, "output_tokens": 1.0})
	s.task.Service.URL, s.task.Service.Asking.TextPrompts = server.URL, true
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, p := range prompts {
		measured, _ := loadgen.PromptText(loadgen.APICompletions, s.task.Seed, loadgen.Request{ScheduledRequest: schemas.ScheduledRequest{Index: i, PromptWords: 8}})
		if p == measured || len(strings.Fields(p)) != 8 {
			t.Errorf("request %d warms with %q, which is measured with %q", i, p, measured)
		}
	}
	if len(prompts) != 3 {
		t.Errorf("%d prompts", len(prompts))
	}
}
