package probe

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"assay/internal/loadgen"
	"assay/internal/redact"
	"assay/internal/report"
	"assay/schemas"
)

// chat answers as a server does that thinks before it speaks: a role alone, hidden
// output, then text, in events of several tokens.
func chat(t *testing.T, events ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Model    string
			Messages []struct{ Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Model == "gone" {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"error":"no model for %s"}`, r.Header.Get("Authorization"))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			fmt.Fprintf(w, "data: %s\n\n", strings.ReplaceAll(e, "KEY", r.Header.Get("Authorization")))
			w.(http.Flusher).Flush()
			time.Sleep(15 * time.Millisecond)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

var thinking = []string{
	`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
	`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"two words"}}]}`,
	`{"choices":[{"index":0,"delta":{"content":", é KEY"},"finish_reason":"stop"}]}`,
	`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}`,
	`[DONE]`,
}

func one(t *testing.T, o Options) (schemas.Probe, string) {
	t.Helper()
	o.ID, o.MaxTokens, o.RequestTimeout = "20060102T150405Z-0123abcd", 20, 10*time.Second
	if o.API == "" {
		o.API = loadgen.APIChat
	}
	p, err := NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	doc, dir, err := Run(context.Background(), p, filepath.Join(t.TempDir(), "probes"))
	if err != nil {
		t.Fatal(err)
	}
	return doc, dir
}

func TestASingleProbe(t *testing.T) {
	key := "Bearer sk-12345678"
	doc, dir := one(t, Options{BaseURL: chat(t, thinking...), Models: []string{"m"}, Headers: http.Header{"Authorization": {key}},
		Hide: func(s string) string { return strings.ReplaceAll(s, "sk-12345678", "***") }})
	if doc.Mode != "single" || len(doc.Requests) != 1 || doc.Result.Counts.OK != 1 {
		t.Fatalf("%+v", doc)
	}
	a := doc.Requests[0]
	if a.Text != "two words, é Bearer ***" || a.TextChunks != 2 || a.HiddenChunks != 1 || *a.OutputTokens != 7 || a.OutputTokensSource != "usage" || *a.InputTokens != 9 || a.FinishReason != "stop" {
		t.Errorf("%+v", a)
	}
	order := []*float64{a.ConnectedMs, a.FirstByteMs, a.HeadersMs, a.EmptyMs, a.FirstOutputMs, a.FirstTextMs, a.LastTextMs, a.UsageMs, a.DoneMs, a.TotalMs}
	for i, at := range order {
		if at == nil || i > 0 && *at < *order[i-1] {
			t.Errorf("time %d of %v is missing or before the one before it: %+v", i, order, a)
		}
	}
	// What is on disk is the same, and nothing there holds the key.
	b, err := os.ReadFile(filepath.Join(dir, SummaryFile))
	if err != nil || schemas.Validate("probe", b) != nil || strings.Contains(string(b), "sk-1234") {
		t.Errorf("summary: %v\n%s", err, b)
	}
	rd, err := report.OpenRecords(filepath.Join(dir, RequestsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	for r, err := range rd.All() {
		if err != nil || r.Outcome != schemas.OutcomeOK || len(r.Chunks) != 3 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	lines, err := os.ReadFile(filepath.Join(dir, ScheduleFile))
	if list := strings.Split(strings.TrimSpace(string(lines)), "\n"); err != nil || len(list) != 2 || schemas.Validate("schedule", []byte(list[0])) != nil || schemas.Validate("scheduled-request", []byte(list[1])) != nil {
		t.Errorf("schedule: %v\n%s", err, lines)
	}
}

func TestChunksAreNoTokens(t *testing.T) {
	var events []string
	for _, e := range thinking {
		if !strings.Contains(e, "usage") {
			events = append(events, e)
		}
	}
	doc, _ := one(t, Options{BaseURL: chat(t, events...), Models: []string{"m"}})
	if a := doc.Requests[0]; a.OutputTokens != nil || a.OutputTokensSource != "unknown" || a.InputTokens != nil || a.TextChunks != 2 || a.UsageMs != nil {
		t.Errorf("%+v", a)
	}
	b, _ := json.Marshal(doc.Requests[0])
	if strings.Contains(string(b), `"output_tokens":`) {
		t.Errorf("a count that nobody told: %s", b)
	}
}

func TestATimedProbeTakesTurns(t *testing.T) {
	url := chat(t, thinking...)
	o := Options{BaseURL: url, Models: []string{"a", "gone", "c"}, Rate: 40, Duration: 400 * time.Millisecond, Seed: 3, Headers: http.Header{"Authorization": {"Bearer sk-12345678"}}}
	doc, _ := one(t, o)
	again, _ := one(t, o)
	if doc.Mode != "timed" || len(doc.Requests) < 5 || doc.RequestsDigest != again.RequestsDigest || doc.Repeated {
		t.Fatalf("%d requests, %s and %s", len(doc.Requests), doc.RequestsDigest, again.RequestsDigest)
	}
	prompts := map[string]bool{}
	for i, a := range doc.Requests {
		prompts[a.Prompt] = true
		want := schemas.OutcomeOK
		if a.Model == "gone" {
			want = schemas.OutcomeHTTP4xx
		}
		if a.Index != i || a.Model != o.Models[i%3] || a.Outcome != want || strings.Contains(a.Error, "sk-1") || a.Model == "gone" && a.HTTPStatus != 404 {
			t.Errorf("%+v", a)
		}
		if i > 0 && a.ScheduledS <= doc.Requests[i-1].ScheduledS || a.ScheduledS >= 0.4 {
			t.Errorf("request %d at %v s", i, a.ScheduledS)
		}
	}
	if len(prompts) != len(doc.Requests) {
		t.Errorf("%d prompts for %d requests", len(prompts), len(doc.Requests))
	}
	o.Prompts, o.Seed = []string{"x", "y"}, 4
	other, _ := one(t, o)
	if !other.Repeated || other.Requests[2].Prompt != "x" || other.RequestsDigest == doc.RequestsDigest {
		t.Errorf("%+v", other.Requests[2])
	}
}

func TestNoResultIsOverwritten(t *testing.T) {
	parent := t.TempDir()
	p, err := NewPlan(Options{ID: "same", BaseURL: chat(t, thinking...), Models: []string{"m"}, API: loadgen.APIChat, MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Run(context.Background(), p, parent); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(parent, "same", SummaryFile))
	if _, _, err := Run(context.Background(), p, parent); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second result in one folder: %v", err)
	}
	if after, _ := os.ReadFile(filepath.Join(parent, "same", SummaryFile)); len(before) == 0 || string(after) != string(before) {
		t.Error("the first result was changed")
	}
	if err := os.WriteFile(filepath.Join(parent, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Run(context.Background(), p, filepath.Join(parent, "file")); err == nil {
		t.Error("results below a file: no error")
	}
}

func TestAnInterruptedProbeIsKept(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer s.Close()
	p, err := NewPlan(Options{ID: "i", BaseURL: s.URL, Models: []string{"m"}, API: loadgen.APICompletions, MaxTokens: 2, Rate: 20, Duration: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(300*time.Millisecond, func() { cancel(stopped) })
	doc, dir, err := Run(ctx, p, t.TempDir())
	if !errors.Is(err, stopped) || doc.Result.Counts.Outcomes[schemas.OutcomeNotSent] == 0 || doc.Result.Counts.OK != 0 || len(doc.Requests) != doc.Result.Counts.Issued {
		t.Errorf("%+v, %v", doc.Result.Counts, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, SummaryFile)); err != nil || schemas.Validate("probe", b) != nil {
		t.Errorf("%v\n%s", err, b)
	}
}

func TestNoPlan(t *testing.T) {
	for want, o := range map[string]Options{
		"no model":  {},
		"more than": {Models: []string{"m"}, Rate: 1e4, Duration: time.Hour},
		"nothing":   {Models: []string{"m"}, Rate: 1e-6, Duration: time.Second},
		"rate":      {Models: []string{"m"}, Duration: time.Second},
	} {
		if _, err := NewPlan(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// TestASecretThatIsSaidBack comes over two events, encoded, and where the text is cut.
func TestASecretThatIsSaidBack(t *testing.T) {
	const key = "sk-live-4f9a7c2e81d0b356"
	coded := base64.StdEncoding.EncodeToString([]byte("Bearer " + key))
	for name, before := range map[string]int{"short": 3, "at the cut": maxText - 10} {
		var events []string
		for _, text := range []string{strings.Repeat("x", before), key[:9], key[9:], " " + coded[:13], coded[13:]} {
			events = append(events, fmt.Sprintf(`{"choices":[{"delta":{"content":%q}}]}`, text))
		}
		events = append(events, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
		doc, _ := one(t, Options{ID: "x", BaseURL: chat(t, events...), Models: []string{"m"}, API: loadgen.APIChat, MaxTokens: 9, Hide: redact.New(map[string]string{key: "***"}).String})
		a := doc.Requests[0]
		if a.Outcome != schemas.OutcomeOK || strings.Contains(a.Text, key[:4]) || strings.Contains(a.Text, coded[12:20]) || !strings.Contains(a.Text, "x***") || len(a.Text) > maxText || a.TextCut != (before > 3) {
			t.Errorf("%s: %s, %d bytes, cut %v: ...%q", name, a.Outcome, len(a.Text), a.TextCut, a.Text[max(0, len(a.Text)-80):])
		}
	}
}
