package emulated

import (
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"assay/internal/serving"
)

// aegaeonState is what Aegaeon's API server knows beside the serving system: which
// models are registered, and how much each was asked of.
type aegaeonState struct {
	s *server
	// placing is held while models are deployed or undeployed, for as long as that
	// takes; mu is held for moments.
	placing sync.Mutex

	mu     sync.Mutex
	order  []string // of registered models
	models map[string]*registered
	events eventLog
}

// registered is a model that is listed, wherever it is ready.
type registered struct {
	Model
	index      int // in the serving system
	path       string
	toolParser string
	asked      window
}

func newAegaeon(s *server) *aegaeonState {
	a := &aegaeonState{s: s, models: map[string]*registered{}}
	for i, m := range s.config.Models {
		if !m.Undeployed {
			a.register(&registered{Model: m, index: i})
		}
	}
	return a
}

// register lists a model; the caller holds mu or is alone.
func (a *aegaeonState) register(m *registered) {
	if a.models[m.Name] == nil {
		a.order = append(a.order, m.Name)
	}
	a.models[m.Name] = m
}

func (a *aegaeonState) unregister(name string) {
	delete(a.models, name)
	a.order = slices.DeleteFunc(a.order, func(n string) bool { return n == name })
}

func (a *aegaeonState) find(name string) (registered, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.models[name]
	if m == nil {
		return registered{}, false
	}
	return *m, true
}

// routable is a model that requests may name: it is registered and ready somewhere.
func (a *aegaeonState) routable(name string) (Model, *apiError) {
	m, ok := a.find(name)
	if !ok {
		return Model{}, badRequest("model", fmt.Sprintf("model %q is not deployed", name))
	}
	ready := false
	err := a.s.live.system.Do(func(sys *serving.System) {
		for node := range sys.Nodes() {
			state, _ := sys.Replica(node, m.index)
			ready = ready || state == serving.ReplicaReady
		}
	})
	if err != nil || !ready {
		return Model{}, errNotReady
	}
	return m.Model, nil
}

// admit holds a request against the limits.
func (a *aegaeonState) admit(r *request) *apiError {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, now := a.models[r.model.Name], time.Now()
	if m == nil {
		return nil
	}
	requests, tokens := m.asked.sum(now)
	l := a.s.config.Limits
	if l != nil && (over(requests+1, l.RequestsPerSecond) || over(tokens+r.promptTokens+r.maxTokens, l.TokensPerSecond)) {
		return &apiError{status: http.StatusTooManyRequests, Type: "rate_limit_error", Message: fmt.Sprintf("model %s is over its rate over the last %d s", m.Name, windowSeconds)}
	}
	m.asked.add(now, r.promptTokens+r.maxTokens)
	return nil
}

func over(n int, perSecond float64) bool {
	return perSecond > 0 && float64(n)/windowSeconds > perSecond
}

// windowSeconds is over how long rates are averages.
const windowSeconds = 60

// window keeps what was asked in the last windowSeconds.
type window struct {
	at     []time.Time
	tokens []int
}

func (w *window) add(now time.Time, tokens int) {
	w.at, w.tokens = append(w.at, now), append(w.tokens, tokens)
}

func (w *window) sum(now time.Time) (requests, tokens int) {
	old := 0
	for old < len(w.at) && now.Sub(w.at[old]) > windowSeconds*time.Second {
		old++
	}
	w.at, w.tokens = w.at[old:], w.tokens[old:]
	for _, n := range w.tokens {
		tokens += n
	}
	return len(w.at), tokens
}

func aegaeonRoutes(s *server, mux *http.ServeMux) {
	a := s.aegaeon
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "engine": Name, "pid": os.Getpid()})
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		data := []any{}
		for _, name := range a.order {
			data = append(data, aegaeonModel(name))
		}
		a.mu.Unlock()
		writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
	})
	mux.HandleFunc("GET /v1/models/{name...}", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := a.find(r.PathValue("name")); !ok {
			writeDetail(w, badRequest("model", "the model is not deployed").withCode(http.StatusNotFound, ""))
			return
		}
		writeJSON(w, http.StatusOK, aegaeonModel(r.PathValue("name")))
	})
	mux.HandleFunc("POST /v1/models/deploy", s.post(deployForm, true, a.deploy))
	mux.HandleFunc("POST /v1/models/undeploy", s.post(deployForm, true, a.undeploy))
	mux.HandleFunc("POST /tokenize", s.post(tokenizeForm, false, a.tokenize))
	mux.HandleFunc("POST /detokenize", s.post(detokenizeForm, false, a.detokenize))
	mux.HandleFunc("GET /v1/aegaeon/runtime", a.runtime)
	mux.HandleFunc("GET /v1/aegaeon/events", a.stream)
	mux.HandleFunc("GET /v1/aegaeon/metrics", a.metrics)
	mux.HandleFunc("GET /v1/aegaeon/gpu-power", a.power)
	mux.HandleFunc("GET /openapi.json", openapi("Aegaeon, emulated", map[string]map[string]any{
		"/v1/models/deploy": deployForm.schema(false), "/v1/models/undeploy": deployForm.schema(false),
		"/v1/chat/completions": aegaeonChat.schema(true), "/v1/completions": aegaeonCompletion.schema(true),
		"/tokenize": tokenizeForm.schema(true), "/detokenize": detokenizeForm.schema(true),
	}, "/health", "/v1/models", "/v1/models/{model_name}", "/v1/aegaeon/runtime", "/v1/aegaeon/events", "/v1/aegaeon/metrics", "/v1/aegaeon/gpu-power"))
	s.generating(mux)
}

var (
	tokenizeForm   = form{"model": {kind: kindText, required: true}, "prompt": {kind: kindText, required: true}, "add_special_tokens": {kind: kindBool}}
	detokenizeForm = form{"model": {kind: kindText, required: true}, "tokens": {kind: kindList, required: true}, "skip_special_tokens": {kind: kindBool}}
)

// aegaeonModel is an entry of the list; its time is that of the question.
func aegaeonModel(name string) any {
	return map[string]any{"id": name, "object": "model", "created": time.Now().Unix(), "owned_by": Name}
}

func (a *aegaeonState) tokenize(w http.ResponseWriter, in map[string]any) *apiError {
	if _, ok := a.find(in["model"].(string)); !ok {
		return badRequest("model", "the model is not deployed")
	}
	ids := a.s.tokens.ids(in["prompt"].(string))
	writeJSON(w, http.StatusOK, map[string]any{"count": len(ids), "tokens": ids, "max_model_len": nil})
	return nil
}

func (a *aegaeonState) detokenize(w http.ResponseWriter, in map[string]any) *apiError {
	if _, ok := a.find(in["model"].(string)); !ok {
		return badRequest("model", "the model is not deployed")
	}
	ids, refused := tokenIDs(in["tokens"], "tokens")
	if refused != nil {
		return refused
	}
	writeJSON(w, http.StatusOK, map[string]any{"prompt": a.s.tokens.text(ids)})
	return nil
}

// baseOf is the base model that a path ends with.
func baseOf(modelPath string) (serving.BaseModel, error) {
	last := strings.ToLower(path.Base(modelPath))
	b, err := serving.FindBaseModel(last)
	if err != nil {
		return b, fmt.Errorf("model_path %q: its last part must be that of an emulated checkpoint: %w", modelPath, err)
	}
	return b, nil
}
