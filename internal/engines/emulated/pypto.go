package emulated

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"assay/internal/serving"
)

// defaultNewTokens is what PyPTO's generate-config says where a request does not.
const defaultNewTokens = 256

var pyptoCommon = form{
	"model": {kind: kindText}, "max_tokens": {kind: kindInt, null: true}, "temperature": {kind: kindNumber, null: true}, "top_p": {kind: kindNumber, null: true},
	"top_k": {kind: kindInt, null: true}, "seed": {kind: kindInt, null: true}, "stop": {kind: kindList, null: true}, "stream": {kind: kindBool},
	"prompt": {kind: kindText}, "messages": {kind: kindList}, "reasoning_effort": {kind: kindText, null: true}, "chat_template_kwargs": {kind: kindTable, null: true},
	"include_reasoning": {kind: kindBool}, "tools": {kind: kindList, null: true}, "parallel_tool_calls": {kind: kindBool},
}

func writePyPTOError(w http.ResponseWriter, e *apiError) {
	if e.list != nil {
		writeDetail(w, e)
		return
	}
	writeJSON(w, e.status, map[string]any{"object": "error", "message": e.Message})
}

// parsePyPTO reads a request. Unknown fields are ignored; a field that is null
// counts as set.
func parsePyPTO(s *server, raw []byte, chat bool) (*request, *apiError) {
	in, refused := pyptoCommon.read(raw, true)
	if refused != nil {
		return nil, refused
	}
	m := s.config.Models[0]
	if name, _ := in["model"].(string); name != "" {
		var ok bool
		if m, ok = s.models[name]; !ok {
			return nil, badRequest("model", fmt.Sprintf("model %q is not served", name))
		}
	}
	r := &request{chat: chat, model: m, ignoreEOS: !chat, stream: truth(in, "stream", false), stopEnds: true}
	if refused := r.samplePyPTO(in); refused != nil {
		return nil, refused
	}
	var b body
	fields := map[string]any{"prompt": in["prompt"], "messages": in["messages"]}
	if in["prompt"] == nil {
		fields["prompt"] = ""
	}
	if err := json.Unmarshal(encode(fields), &b); err != nil {
		return nil, unprocessable(invalid{Type: "model_type", Loc: []any{"body"}, Msg: err.Error(), Input: json.RawMessage(raw)})
	}
	if chat {
		refused = r.readMessages(&b)
	} else {
		refused = r.readPrompt(&b)
	}
	if refused != nil {
		return nil, refused
	}
	if r.promptTokens+r.maxTokens > m.MaxModelLen {
		return nil, badRequest("prompt", fmt.Sprintf("prompt of %d tokens and max_new_tokens of %d exceed max_model_len of %d", r.promptTokens, r.maxTokens, m.MaxModelLen))
	}
	return r, nil
}

// samplePyPTO checks the fields of sampling and settles the budget.
func (r *request) samplePyPTO(in map[string]any) *apiError {
	r.maxTokens = defaultNewTokens
	if v, set := in["max_tokens"]; set {
		n, ok := v.(float64)
		if !ok || n < 1 || n > maxOutput {
			return badRequest("max_tokens", "max_new_tokens must be a positive integer")
		}
		r.maxTokens = int(n)
	} else if n := r.model.MaxModelLen; r.maxTokens >= n {
		r.maxTokens = max(1, n/2)
	}
	for _, f := range []struct {
		name string
		ok   func(n float64) bool
		want string
	}{
		{"temperature", func(n float64) bool { return n >= 0 }, "temperature must be 0 or more"},
		{"top_p", func(n float64) bool { return n > 0 && n <= 1 }, "top_p must be in (0, 1]"},
		{"top_k", func(n float64) bool { return n >= 1 }, "top_k must be a positive integer"},
		{"seed", func(n float64) bool { return n >= 0 }, "seed must be 0 or more"},
	} {
		if n, ok := in[f.name].(float64); ok && !f.ok(n) {
			return badRequest(f.name, f.want)
		}
	}
	list, _ := in["stop"].([]any)
	for i, e := range list {
		text, ok := e.(string)
		if !ok {
			return unprocessable(invalid{Type: "string_type", Loc: []any{"body", "stop", i}, Msg: "Input should be a valid string", Input: e})
		}
		if text != "" {
			r.stops = append(r.stops, text)
		}
	}
	return nil
}

// pyptoAnswer is a whole response or one event; what is null is there.
type pyptoAnswer struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"` // Unix time, s
	Model   string `json:"model"`
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage"`
}

type pyptoText struct {
	Index        int     `json:"index"`
	Text         string  `json:"text"`
	FinishReason *string `json:"finish_reason"`
}

type pyptoMessage struct {
	Role      string  `json:"role"`
	Content   string  `json:"content"`
	Reasoning *string `json:"reasoning"`
}

type pyptoChat struct {
	Index        int           `json:"index"`
	Message      *pyptoMessage `json:"message"`
	Delta        *pyptoMessage `json:"delta"`
	FinishReason *string       `json:"finish_reason"`
}

func (g *generation) pyptoEnvelope(object string) pyptoAnswer {
	return pyptoAnswer{ID: g.entry.ID, Object: object, Created: time.Now().Unix(), Model: g.req.model.Name, Choices: []any{}}
}

func (g *generation) pyptoWhole() error {
	n := len(g.out.ids)
	if at, ok := g.fault.at(n); ok {
		if at > 0 {
			if err := g.wait(at - 1); err != nil {
				return err
			}
		}
		return g.breakOff()
	}
	if err := g.waitWhole(n - 1); err != nil {
		return err
	}
	text := g.out.text(0, n, g.fault.is(faultSplitUTF8))
	a := g.pyptoEnvelope("text_completion")
	if g.req.chat {
		a.Object = "chat.completion"
		a.Choices = []any{pyptoChat{Message: &pyptoMessage{Role: "assistant", Content: text}, FinishReason: &g.out.finish}}
	} else {
		a.Choices = []any{pyptoText{Text: text, FinishReason: &g.out.finish}}
	}
	a.Usage = g.usage()
	g.w.Header().Set("Content-Type", "application/json")
	return g.emit(append(encode(a), '\n'), n, g.out.due[n-1])
}

// pyptoChunk is an event of a stream: the last one with text says why it ends.
func (g *generation) pyptoChunk(text string, last bool) any {
	var finish *string
	if last {
		finish = &g.out.finish
	}
	if g.req.chat {
		a := g.pyptoEnvelope("chat.completion.chunk")
		a.Choices = []any{pyptoChat{Delta: &pyptoMessage{Role: "assistant", Content: text}, FinishReason: finish}}
		return a
	}
	a := g.pyptoEnvelope("text_completion")
	a.Choices = []any{pyptoText{Text: text, FinishReason: finish}}
	return a
}

// pyptoStream ends with the usage, asked for or not.
func (g *generation) pyptoStream() error {
	h := g.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	if err := g.flush.Flush(); err != nil { // the status goes out before the first token
		return errClient
	}
	if err := g.tokens(); err != nil {
		return err
	}
	a := g.pyptoEnvelope(g.object())
	a.Usage = g.usage()
	if err := g.event(a, 0, 0); err != nil {
		return err
	}
	if g.fault.is(faultNoDone) {
		return nil
	}
	return g.write([]byte("data: [DONE]\n\n"))
}

func pyptoRoutes(s *server, mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		out, code := map[string]any{"status": "ok", "engine": Name, "pid": os.Getpid()}, http.StatusOK
		if s.live != nil && s.live.system.Do(func(*serving.System) {}) != nil {
			out["status"], code = "not_ready", http.StatusServiceUnavailable
		}
		writeJSON(w, code, out)
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		data := []any{}
		for _, m := range s.config.Models {
			data = append(data, map[string]any{"id": m.Name, "object": "model", "owned_by": Name})
		}
		writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var b strings.Builder
		for _, f := range s.pyptoFigures() {
			fmt.Fprintf(&b, "# TYPE pypto_serving_%s %s\npypto_serving_%s %v\n", f.name, f.kind, f.name, f.value)
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte(b.String())) // who asked has gone
	})
	mux.HandleFunc("GET /metrics/json", func(w http.ResponseWriter, _ *http.Request) {
		out := map[string]any{}
		for _, f := range s.pyptoFigures() {
			out[f.name] = f.value
		}
		writeJSON(w, http.StatusOK, out)
	})
	if s.profiler != nil {
		mux.HandleFunc("POST /start_profile", s.startProfile)
		mux.HandleFunc("POST /stop_profile", s.stopProfile)
	}
	s.generating(mux)
}

type figure struct {
	name, kind string
	value      float64
}

// pyptoFigures are cumulative, over all models.
func (s *server) pyptoFigures() []figure {
	var running, waiting, prompt, generated, finished, ttft, e2e float64
	for _, m := range s.config.Models {
		t := s.tally(m.Name)
		t.mu.Lock()
		running, waiting = running+float64(t.running-s.queued(t)), waiting+float64(s.queued(t))
		prompt, generated, finished = prompt+float64(t.prompt), generated+float64(t.generated), finished+float64(t.stop+t.length)
		ttft, e2e = ttft+t.firstTokensS, e2e+t.e2eSum
		t.mu.Unlock()
	}
	kv := 0.0
	if s.live != nil {
		_ = s.live.system.Do(func(sys *serving.System) { kv = sys.KVUsage() }) // one that has stopped holds nothing
	}
	return []figure{
		{"num_running_reqs", "gauge", running}, {"num_waiting_reqs", "gauge", waiting}, {"kv_cache_usage", "gauge", kv},
		{"prefix_cache_queries", "counter", 0}, {"prefix_cache_query_tokens", "counter", 0}, {"prefix_cache_hits", "counter", 0}, {"num_preemptions", "counter", 0},
		{"num_finished_reqs", "counter", finished}, {"num_prompt_tokens", "counter", prompt}, {"num_generation_tokens", "counter", generated},
		{"time_to_first_token_seconds_sum", "counter", ttft}, {"e2e_latency_seconds_sum", "counter", e2e},
	}
}
