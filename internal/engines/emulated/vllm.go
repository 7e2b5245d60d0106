package emulated

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"assay/internal/serving"
)

// vllmVersion is what the personality says it is: it has the API of this version,
// and none of its code.
const vllmVersion = "0.11.0+assay-emulated"

func vllmRoutes(s *server, mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "engine": Name, "pid": os.Getpid()})
	})
	ok := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	mux.HandleFunc("GET /ping", ok)
	mux.HandleFunc("POST /ping", ok)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"version": vllmVersion})
	})
	mux.HandleFunc("GET /metrics", s.vllmMetrics)
	mux.HandleFunc("GET /v1/models", s.listModels)
	mux.HandleFunc("GET /v1/models/{name...}", s.showModel)
	mux.HandleFunc("POST /tokenize", s.post(form{
		"model": {kind: kindText, null: true}, "prompt": {kind: kindText}, "messages": {kind: kindList},
		"add_special_tokens": {kind: kindBool}, "return_token_strs": {kind: kindBool, null: true},
		"add_generation_prompt": {kind: kindBool}, "continue_final_message": {kind: kindBool},
	}, true, s.vllmTokenize))
	mux.HandleFunc("POST /detokenize", s.post(form{"model": {kind: kindText, null: true}, "tokens": {kind: kindList, required: true}}, true, s.vllmDetokenize))
	mux.HandleFunc("POST /reset_prefix_cache", ok) // there is none
	if s.profiler != nil {
		mux.HandleFunc("POST /start_profile", s.startProfile)
		mux.HandleFunc("POST /stop_profile", s.stopProfile)
	}
	s.generating(mux)
}

// vllmChunk tells the ids of a chunk's tokens in the chunk, where they are asked for.
func (g *generation) vllmChunk(text string, _ bool) any {
	a := g.textChunk(text)
	if !g.req.returnIDs {
		return a
	}
	from := 0
	for _, c := range g.entry.Chunks {
		from += c.Tokens
	}
	a.Choices[0].TokenIDs = g.out.ids[from:min(from+g.s.config.TokensPerChunk, len(g.out.ids))]
	if from == 0 && !g.req.chat {
		a.Choices[0].PromptTokenIDs = g.req.promptIDs
	}
	return a
}

// modelIn is the model that a body names, or the first one.
func (s *server) modelIn(in map[string]any) (Model, *apiError) {
	name, _ := in["model"].(string)
	if name == "" {
		return s.config.Models[0], nil
	}
	m, ok := s.models[name]
	if !ok {
		return m, badRequest("model", fmt.Sprintf("the model %q does not exist", name)).withCode(http.StatusNotFound, "model_not_found")
	}
	return m, nil
}

func (s *server) vllmTokenize(w http.ResponseWriter, in map[string]any) *apiError {
	m, refused := s.modelIn(in)
	if refused != nil {
		return refused
	}
	text, ok := in["prompt"].(string)
	if !ok {
		var messages []chatMessage
		if json.Unmarshal(encode(in["messages"]), &messages) != nil || len(messages) == 0 {
			return badRequest("prompt", "want prompt or messages")
		}
		var parts []string
		for i, message := range messages {
			part, ok := contentText(message.Content)
			if !ok {
				return badRequest("messages", fmt.Sprintf("messages[%d].content: want a string or a list of text parts", i))
			}
			parts = append(parts, part)
		}
		text = strings.Join(parts, " ")
	}
	ids := s.tokens.ids(text)
	out := map[string]any{"count": len(ids), "max_model_len": m.MaxModelLen, "tokens": ids, "token_strs": nil}
	if truth(in, "return_token_strs", false) {
		out["token_strs"] = strings.Fields(text)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *server) vllmDetokenize(w http.ResponseWriter, in map[string]any) *apiError {
	if _, refused := s.modelIn(in); refused != nil {
		return refused
	}
	ids, refused := tokenIDs(in["tokens"], "tokens")
	if refused != nil {
		return badRequest("tokens", "tokens: want a list of token ids")
	}
	writeJSON(w, http.StatusOK, map[string]any{"prompt": s.tokens.text(ids)})
	return nil
}

// vllmMetrics answers with the families of vLLM that an emulation has numbers for.
func (s *server) vllmMetrics(w http.ResponseWriter, _ *http.Request) {
	kv := 0.0
	if s.live != nil {
		_ = s.live.system.Do(func(sys *serving.System) { kv = sys.KVUsage() }) // one that has stopped holds nothing
	}
	var b bytes.Buffer
	family := func(name, kind string, each func(labels string, t *tallies)) {
		fmt.Fprintf(&b, "# HELP vllm:%s Emulated.\n# TYPE vllm:%s %s\n", name, name, kind)
		for _, m := range s.config.Models {
			t := s.tally(m.Name)
			t.mu.Lock()
			each(fmt.Sprintf(`engine="0",model_name="%s"`, escapeLabel.Replace(m.Name)), t)
			t.mu.Unlock()
		}
	}
	one := func(name, kind string, value func(t *tallies) float64) {
		family(name, kind, func(labels string, t *tallies) { fmt.Fprintf(&b, "vllm:%s{%s} %v\n", name, labels, value(t)) })
	}
	one("num_requests_running", "gauge", func(t *tallies) float64 { return float64(t.running - s.queued(t)) })
	one("num_requests_waiting", "gauge", func(t *tallies) float64 { return float64(s.queued(t)) })
	one("kv_cache_usage_perc", "gauge", func(*tallies) float64 { return kv })
	one("num_preemptions_total", "counter", func(*tallies) float64 { return 0 })
	one("prefix_cache_queries_total", "counter", func(*tallies) float64 { return 0 })
	one("prefix_cache_hits_total", "counter", func(*tallies) float64 { return 0 })
	one("prompt_tokens_total", "counter", func(t *tallies) float64 { return float64(t.prompt) })
	one("generation_tokens_total", "counter", func(t *tallies) float64 { return float64(t.generated) })
	family("request_success_total", "counter", func(labels string, t *tallies) {
		fmt.Fprintf(&b, "vllm:request_success_total{%s,finished_reason=\"stop\"} %d\n", labels, t.stop)
		fmt.Fprintf(&b, "vllm:request_success_total{%s,finished_reason=\"length\"} %d\n", labels, t.length)
		fmt.Fprintf(&b, "vllm:request_success_total{%s,finished_reason=\"abort\"} %d\n", labels, t.aborted)
	})
	for _, h := range []struct {
		name string
		of   func(t *tallies) *histogram
	}{
		{"time_to_first_token_seconds", func(t *tallies) *histogram { return &t.ttft }},
		{"inter_token_latency_seconds", func(t *tallies) *histogram { return &t.gaps }},
		{"e2e_request_latency_seconds", func(t *tallies) *histogram { return &t.e2e }},
	} {
		family(h.name, "histogram", func(labels string, t *tallies) { h.of(t).write(&b, "vllm:"+h.name, labels) })
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // who asked has gone
}

// bounds of histograms, in seconds.
var bounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}

// histogram counts durations below each bound.
type histogram struct {
	counts [20]int64 // the last one is of those beyond all bounds
	sum    float64
}

func (h *histogram) add(d time.Duration) {
	s := d.Seconds()
	i := 0
	for i < len(bounds) && s > bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += s
}

func (h *histogram) write(b *bytes.Buffer, name, labels string) {
	var n int64
	for i, bound := range bounds {
		n += h.counts[i]
		fmt.Fprintf(b, "%s_bucket{%s,le=\"%v\"} %d\n", name, labels, bound, n)
	}
	n += h.counts[len(bounds)]
	fmt.Fprintf(b, "%s_bucket{%s,le=\"+Inf\"} %d\n%s_sum{%s} %.9f\n%s_count{%s} %d\n", name, labels, n, name, labels, h.sum, name, labels, n)
}
