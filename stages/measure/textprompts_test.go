package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"assay/pipeline"
	"assay/schemas"
)

// textServer answers as servers do that take text only, stop when they like unless
// min_tokens holds them, and may report no usage.
type textServer struct {
	*httptest.Server
	usage   bool
	path    string // of the tokenizer
	mu      sync.Mutex
	prompts []string
	counts  int
}

// tokensOf is one token for the text's beginning and one for each four letters.
func tokensOf(text string) int {
	n := 1
	for _, w := range strings.Fields(text) {
		n += (len(w) + 3) / 4
	}
	return n
}

func startTextServer(t *testing.T, usage bool) (*textServer, *engine) {
	t.Helper()
	s := &textServer{usage: usage, path: "/extras/tokenize/count"}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s, &engine{view: pipeline.ServiceView{Name: "engine", Engine: "openai", URL: s.URL, Models: []string{"m"}, Asking: schemas.AskingOf(map[string]any{
		"prompts": "text", "hold": "min_tokens", "tokenize": map[string]any{"style": "llama-cpp-python"}}), Dead: func() string { return "" }}}
}

func (s *textServer) serve(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Input     string `json:"input"`
		Prompt    any    `json:"prompt"`
		MaxTokens int    `json:"max_tokens"`
		MinTokens int    `json:"min_tokens"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == s.path {
		s.counts++
		fmt.Fprintf(w, `{"count":%d}`, tokensOf(q.Input))
		return
	}
	text, ok := q.Prompt.(string)
	if r.URL.Path != "/v1/completions" || !ok {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"error":{"message":"Input should be a valid string"}}`)
		return
	}
	s.prompts = append(s.prompts, text)
	s.answer(w, text, max(q.MinTokens, min(2, q.MaxTokens)), q.MaxTokens)
}

func (s *textServer) answer(w io.Writer, text string, n, limit int) {
	w.(http.ResponseWriter).Header().Set("Content-Type", "text/event-stream")
	for range n {
		fmt.Fprint(w, "data: {\"choices\": [{\"text\": \" x\", \"index\": 0, \"finish_reason\": null}]}\n\n")
	}
	reason := "stop"
	if n == limit {
		reason = "length"
	}
	fmt.Fprintf(w, "data: {\"choices\": [{\"text\": \"\", \"index\": 0, \"finish_reason\": %q}]}\n\n", reason)
	if s.usage {
		fmt.Fprintf(w, "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": %d, \"completion_tokens\": %d}}\n\n", tokensOf(text), n)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// asked gives the prompts sent so far, and how often it counted.
func (s *textServer) asked() (prompts []string, counts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.prompts), s.counts
}

func sizedConfig(more map[string]any) map[string]any {
	config := map[string]any{"concurrency": 1.0, "requests": 12.0, "calibrate": false, "input": map[string]any{"dist": "uniform", "min": 9.0, "max": 90.0}, "output": fixed(5)}
	for k, v := range more {
		config[k] = v
	}
	return config
}

func TestTextPromptsHaveTheAskedLengthsByTheTokenizer(t *testing.T) {
	server, e := startTextServer(t, false)
	s := generated(t, e, "", sizedConfig(map[string]any{"require_lengths": true}))
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	h, list := s.schedule(t)
	prompts, counts := server.asked()
	// Some words of the fixture have two tokens: one too many is then the nearest.
	if c := h.Lengths; c == nil || c.Counted != 12 || c.Asked != 12 || c.Exact < 4 || c.MaxAbsDiff > 1 || c.Calls != counts || c.Calls > 12*maxSizings {
		t.Fatalf("calibration %+v, the server counted %d times", h.Lengths, counts)
	}
	for i, r := range list {
		if sent := prompts[i]; r.PromptDigest != schemas.DigestOf([]byte(sent)) || tokensOf(sent) != r.CountedTokens || len(strings.Fields(sent)) != r.PromptWords {
			t.Errorf("request %+v was sent as %q of %d tokens", r, sent, tokensOf(sent))
		}
	}
	for _, r := range s.records(t) {
		if r.Outcome != schemas.OutcomeOK || r.InputTokensSource != "tokenizer" || *r.InputTokens != list[r.Index].CountedTokens || *r.OutputTokens != 5 || r.OutputTokensSource != "chunks" {
			t.Errorf("record %+v", r)
		}
	}
	b, err := os.ReadFile(s.path(OutputResult, ConditionsFile))
	if err != nil || !strings.Contains(string(b), `"style":"llama-cpp-python"`) || !strings.Contains(string(b), `"held_by":"min_tokens"`) {
		t.Errorf("conditions %s, %v", b, err)
	}
	again := generated(t, e, "", sizedConfig(nil))
	if err := run(context.Background(), again.task); err != nil {
		t.Fatal(err)
	}
	if h2, _ := again.schedule(t); h2.RequestsDigest != h.RequestsDigest {
		t.Error("equal seeds and counts gave another schedule")
	}
}

func TestTextPromptsHaveAboutTheAskedLengthsByUsage(t *testing.T) {
	server, e := startTextServer(t, true)
	e.view.Asking.Tokenize = &schemas.Tokenize{Style: schemas.TokenizeUsage}
	s := generated(t, e, "", sizedConfig(map[string]any{"input": fixed(80)}))
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	h, list := s.schedule(t)
	if c := h.Lengths; c == nil || c.Calls != len(usageWords) || c.PerWord["m"] <= 1 || c.Counted != 0 {
		t.Fatalf("calibration %+v", h.Lengths)
	}
	learnt := map[string]bool{}
	prompts, _ := server.asked()
	for _, p := range prompts[:len(usageWords)] {
		learnt[p] = true
	}
	for _, p := range prompts[len(usageWords):] {
		if n := tokensOf(p); learnt[p] || n < 72 || n > 88 {
			t.Errorf("%d tokens, sent for learning before: %v", n, learnt[p])
		}
	}
	for _, r := range s.records(t) {
		if r.InputTokensSource != "usage" || *r.InputTokens != tokensOf(prompts[len(usageWords)+r.Index]) || list[r.Index].CountedTokens != 0 {
			t.Errorf("record %+v", r)
		}
	}
}

func TestLengthsThatAreOff(t *testing.T) {
	server, e := startTextServer(t, false)
	short := sizedConfig(map[string]any{"input": fixed(1), "require_lengths": true})
	err := run(context.Background(), generated(t, e, "", short).task)
	if sent, _ := server.asked(); err == nil || !strings.Contains(err.Error(), "require_lengths: prompts differ") || len(sent) != 0 {
		t.Errorf("error %v, %d requests sent", err, len(sent))
	}
	s := generated(t, e, "", sizedConfig(map[string]any{"ignore_eos": false}))
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	found := ""
	for _, f := range s.result(t).Findings {
		found += f.ID + " "
	}
	if !strings.Contains(found, findingOutput) || strings.Contains(found, findingInput) {
		t.Errorf("findings %s", found)
	}
	strict := generated(t, e, "", sizedConfig(map[string]any{"ignore_eos": false, "require_lengths": true}))
	if err := run(context.Background(), strict.task); err == nil || !strings.Contains(err.Error(), "require_lengths: the tokens of answers") {
		t.Errorf("error %v", err)
	}
	server.mu.Lock()
	server.path = "/tokenize"
	server.mu.Unlock()
	if err := run(context.Background(), generated(t, e, "", sizedConfig(nil)).task); err == nil || !strings.Contains(err.Error(), "/extras/tokenize/count: status 500") {
		t.Errorf("error %v", err)
	}
	e.view.Asking.Tokenize = &schemas.Tokenize{Style: schemas.TokenizeUsage}
	if err := run(context.Background(), generated(t, e, "", sizedConfig(nil)).task); err == nil || !strings.Contains(err.Error(), "reports no usage") {
		t.Errorf("error %v", err)
	}
}

func TestStagesOfOneServiceSendDifferentPrompts(t *testing.T) {
	_, e := startTextServer(t, false)
	first := func(stage string, seeds map[string]any) schemas.Digest {
		config := sizedConfig(map[string]any{"requests": 1.0})
		if seeds != nil {
			config["seeds"] = seeds
		}
		s := generated(t, e, "", config)
		s.task.Node.Stage = stage
		s.task.Experiment.Stage = map[string]schemas.StageDef{
			"a": {Kind: "measure", Service: "engine"}, "b": {Kind: "measure", Service: "engine"}, "c": {Kind: "measure", Service: "other"}, "d": {Kind: "warmup", Service: "other"},
		}
		if err := run(context.Background(), s.task); err != nil {
			t.Fatal(err)
		}
		_, list := s.schedule(t)
		return list[0].PromptDigest
	}
	a, b, c := first("a", nil), first("b", nil), first("c", nil)
	if a == b || a != c {
		t.Errorf("prompts of a service's stages %s and %s, of another service %s", a, b, c)
	}
	if held := map[string]any{"content": 9.0}; first("a", held) != first("b", held) {
		t.Error("a held seed does not hold the prompts")
	}
}
