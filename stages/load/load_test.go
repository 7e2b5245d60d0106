package load

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"assay/internal/engines/emulated"
	"assay/internal/observe"
	"assay/internal/report"
	"assay/pipeline"
	"assay/schemas"
)

type stage struct {
	task     *pipeline.Task
	log      bytes.Buffer
	findings []schemas.Finding
}

// newStage makes a task that uses an emulated engine, with what stands in front of
// it, if anything.
func newStage(t *testing.T, engine, config map[string]any, front func(http.Handler) http.Handler) *stage {
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
	view := &pipeline.ServiceView{Name: "engine", Engine: "emulated", URL: "http://" + l.Addr().String(), Emulated: true, Done: done}
	go func() {
		defer close(done)
		_ = emulated.Serve(ctx, cfg, emulated.Options{Listener: l, Log: io.Discard, Die: cancel})
	}()
	t.Cleanup(func() { cancel(); <-done })
	if front != nil {
		u, err := url.Parse(view.URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(u)
		proxy.FlushInterval = -1
		// The whole body first: a proxy that still looks for its end when the answer begins
		// finds it closed, and gives up.
		srv := httptest.NewServer(front(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
			proxy.ServeHTTP(w, r)
		})))
		t.Cleanup(srv.Close)
		view.URL = srv.URL
	}
	fields, _ := schemas.FieldsOf("load")
	config["kind"], config["service"] = "load", "engine"
	if vs := schemas.CheckTable(fields, config, false); len(vs) > 0 {
		t.Fatal(vs)
	}
	s := &stage{}
	s.task = &pipeline.Task{Node: schemas.Node{ID: "load@t001"}, Config: schemas.ApplyDefaults(fields, config), Seed: 7, Dir: t.TempDir(), Log: &s.log, Service: view,
		Hide:   func(text string) string { return strings.ReplaceAll(text, "hunter2", "***") },
		Report: func(f schemas.Finding) { s.findings = append(s.findings, f) }, Progress: func(int64, int64, string) {}}
	return s
}

// foundry is an Aegaeon of three models that no node has.
func foundry(serving map[string]any, undeployed bool) map[string]any {
	set := map[string]any{"policy": "aegaeon", "workers": 2.0, "prefill_workers": 1.0}
	for k, v := range serving {
		set[k] = v
	}
	var models []any
	for _, m := range []string{"a", "b", "c"} {
		models = append(models, map[string]any{"name": m, "base": "qwen2.5-7b", "undeployed": undeployed})
	}
	return map[string]any{"personality": "aegaeon", "time_scale": 50.0, "models": models, "serving": set}
}

func (s *stage) read(t *testing.T) (schemas.Load, []schemas.RequestRecord, []kept) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.task.Dir, "outputs", OutputSummary, SummaryFile))
	if err != nil {
		t.Fatal(err)
	}
	var sum schemas.Load
	if err := json.Unmarshal(b, &sum); err != nil {
		t.Fatal(err)
	}
	rd, err := report.OpenRecords(filepath.Join(s.task.Dir, "outputs", OutputRequests, RequestsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	var recs []schemas.RequestRecord
	for r, err := range rd.All() {
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	b, err = os.ReadFile(filepath.Join(s.task.Dir, "outputs", OutputAnswers, AnswersFile))
	if err != nil {
		t.Fatal(err)
	}
	var answers []kept
	for line := range strings.Lines(string(b)) {
		var k kept
		if err := json.Unmarshal([]byte(line), &k); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, k)
	}
	return sum, recs, answers
}

func (s *stage) ids() []string {
	var out []string
	for _, f := range s.findings {
		out = append(out, f.ID)
	}
	return out
}

// TestTellsCostsApart: three models that nobody has are deployed, one after another;
// a cold load, a hit of the host's cache, a repeat and a switch are told apart.
func TestTellsCostsApart(t *testing.T) {
	// 14 GB at 2.5 GB/s, 20 times as fast: 280 ms into the host, 44 ms onto a device.
	engine := foundry(map[string]any{"load_gb_per_s": 2.5}, true)
	engine["time_scale"] = 20.0
	s := newStage(t, engine, map[string]any{"models": []any{"a", "b", "c"}, "switches": 2.0, "undeploy": true}, nil)
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	sum, recs, answers := s.read(t)
	if sum.Via != schemas.LoadByDeploy || !sum.Snapshot || !sum.Emulated || len(sum.Models) != 3 || len(sum.Evictions) != 0 || sum.EvictionsCounted == nil || *sum.EvictionsCounted != 0 {
		t.Fatalf("%+v", sum)
	}
	if len(recs) != 3*2+3*2 {
		t.Errorf("%d records", len(recs))
	}
	for i, m := range sum.Models {
		r := m.Replicas[0]
		if len(m.Replicas) != 1 || r.Node != "node_0" || r.State != observe.ReplicaReady || m.Deploy.Status != "ok" || m.ReadyMs == nil {
			t.Fatalf("%+v", m)
		}
		if c := r.ColdLoad; c == nil || !c.Loading || c.AtMostMs < 270 || c.AboveMs >= c.AtMostMs {
			t.Errorf("model %s: cold load %+v", m.Model, r.ColdLoad)
		}
		if r.FirstUse.Met != schemas.LoadCPUCacheHit || r.Repeat.Met != schemas.LoadResident || r.FirstUse.ToldBy != "order and counter" || *r.FirstUse.ModelSwitches != 1 || *r.Repeat.ModelSwitches != 0 {
			t.Errorf("model %s: first %+v, repeat %+v", m.Model, r.FirstUse, r.Repeat)
		}
		if len(r.Switches) != 2 || r.Switches[0].Met != schemas.LoadSwitch || r.Switches[0].After != sum.Models[(i+2)%3].Model {
			t.Errorf("model %s: switches %+v", m.Model, r.Switches)
		}
		// A prefill and a decode device load it, one after the other.
		for _, c := range []*schemas.LoadCost{r.CPUCacheHit, r.GPUSwitch} {
			if c == nil || c.TTFTMs < 10 || c.E2EMs < 20 {
				t.Errorf("model %s: costs %+v", m.Model, c)
			}
		}
	}
	for _, r := range recs {
		if r.Outcome != schemas.OutcomeOK || *r.OutputTokens != 8 || !r.Held {
			t.Errorf("%+v", r)
		}
	}
	if len(sum.Undeployed) != 3 || sum.Undeployed[0].Status != "ok" {
		t.Errorf("%+v", sum.Undeployed)
	}
	if len(s.findings) > 0 {
		t.Errorf("%+v", s.findings)
	}
	var calls []string
	for _, k := range answers {
		calls = append(calls, k.Call+" "+k.Model)
	}
	if got := strings.Join(calls, ","); got != "snapshot before ,deploy a,deploy b,deploy c,snapshot loaded ,undeploy a,undeploy b,undeploy c,snapshot after " {
		t.Error(got)
	}
}

// TestReplicasOnNodes: every replica answers, whichever the service chooses.
func TestReplicasOnNodes(t *testing.T) {
	for _, routing := range []string{"least-outstanding", "round-robin"} {
		t.Run(routing, func(t *testing.T) {
			engine := foundry(map[string]any{"workers": 6.0, "prefill_workers": 3.0, "nodes": 3.0, "routing": routing}, true)
			s := newStage(t, engine, map[string]any{"models": []any{"a", "b"}, "replicas": 3.0, "each": []any{map[string]any{"model": "b", "replicas": 1.0, "nodes": []any{"node_1"}}}}, nil)
			if err := run(context.Background(), s.task); err != nil {
				t.Fatal(err)
			}
			sum, _, _ := s.read(t)
			if len(sum.Models[0].Replicas) != 3 || len(sum.Models[1].Replicas) != 1 || sum.Models[1].Replicas[0].Node != "node_1" {
				t.Fatalf("%+v", sum.Models)
			}
			for _, m := range sum.Models {
				for _, r := range m.Replicas {
					if r.FirstUse == nil || r.Repeat == nil || r.FirstUse.Outcome != schemas.OutcomeOK || r.ColdLoad == nil {
						t.Errorf("model %s on %s: %+v", m.Model, r.Node, r)
					}
				}
			}
			// Only node_1 holds both.
			if r := sum.Models[0].Replicas[1]; len(r.Switches) != 1 || r.Switches[0].Met != schemas.LoadSwitch || r.Switches[0].After != "b" {
				t.Errorf("%+v", r)
			}
			if r := sum.Models[0].Replicas[0]; len(r.Switches) != 1 || r.Switches[0].Met != schemas.LoadResident {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestStartupList(t *testing.T) {
	t.Run("with a snapshot", func(t *testing.T) {
		s := newStage(t, foundry(nil, false), map[string]any{"models": []any{"a", "b"}, "via": "startup"}, nil)
		if err := run(context.Background(), s.task); err != nil {
			t.Fatal(err)
		}
		sum, _, answers := s.read(t)
		r := sum.Models[1].Replicas[0]
		if sum.Via != schemas.LoadByStartup || r.Unknown != "it was ready before" || r.ColdLoad != nil || r.CPUCacheHit == nil || sum.Models[1].Deploy != nil {
			t.Errorf("%+v", r)
		}
		if slices.ContainsFunc(answers, func(k kept) bool { return k.Call == "deploy" }) {
			t.Error("it was deployed")
		}
	})
	t.Run("without one, loading at first", func(t *testing.T) {
		var asked atomic.Int64
		front := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && asked.Add(1) <= 3 {
					http.Error(w, "loading", http.StatusServiceUnavailable)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
		s := newStage(t, map[string]any{"models": []any{map[string]any{"name": "m", "prefill_base": "2ms", "decode_per_token": "1ms"}}}, map[string]any{"models": []any{"m"}}, front)
		if err := run(context.Background(), s.task); err != nil {
			t.Fatal(err)
		}
		sum, recs, _ := s.read(t)
		r := sum.Models[0].Replicas[0]
		if sum.Via != schemas.LoadByStartup || sum.Snapshot || r.Node != "" || r.FirstUse.Index != 3 || r.Repeat == nil || len(recs) != 5 || r.FirstUse.ToldBy != "order" {
			t.Errorf("%+v, %d records", r, len(recs))
		}
	})
}

// TestFailures: each is the stage's error, with the service's own text, and a finding.
func TestFailures(t *testing.T) {
	answer := func(path string, status int, body string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == path {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	two := map[string]any{"workers": 4.0, "prefill_workers": 2.0, "nodes": 2.0}
	for name, c := range map[string]struct {
		serving    map[string]any
		config     map[string]any
		front      func(http.Handler) http.Handler
		id, text   string
		undeployed bool
	}{
		"no room":        {map[string]any{"model_cache_gb": 10.0}, map[string]any{}, nil, "load.deploy-refused", "status 507: no replica is ready", true},
		"unknown model":  {nil, map[string]any{"models": []any{"nobody"}}, nil, "load.deploy-refused", "is not configured", true},
		"unknown node":   {nil, map[string]any{"nodes": []any{"node_7"}}, nil, "load.deploy-refused", "status 400: there is no node", true},
		"a secret":       {nil, map[string]any{}, answer(deployPath, 500, `{"detail":"token hunter2 is wrong"}`), "load.deploy-refused", "token *** is wrong", true},
		"no JSON":        {nil, map[string]any{}, answer(deployPath, 200, `<html>`), "load.deploy-refused", "not a JSON object", true},
		"partial":        {two, map[string]any{"nodes": []any{"node_0", "node_1"}}, answer(deployPath, 200, `{"status":"partial","ready_nodes":["node_0"],"failed":[{"node_id":"node_1","status":"FAILED","error":"disk on fire"}]}`), "load.deploy-partial", "node_1 FAILED: disk on fire", true},
		"never ready":    {nil, map[string]any{"ready_timeout": "300ms"}, answer(deployPath, 200, `{"status":"ok","ready_nodes":["node_0"],"failed":[]}`), "load.not-ready", "not ready within 300ms: want 1 replica, the service has it is on no node", true},
		"too few nodes":  {nil, map[string]any{"replicas": 2.0, "ready_timeout": "300ms"}, nil, "load.not-ready", "want 2 replicas, the service has node_0 READY", true},
		"failed replica": {nil, map[string]any{"via": "startup"}, answer(runtimePath, 200, `{"model_placements":{"a":{"node_0":{"state":"FAILED","error":"bad weights"}}}}`), "load.not-ready", "it failed on node_0: bad weights", true},
		"evicted":        {map[string]any{"model_cache_gb": 20.0}, map[string]any{"models": []any{"a", "b"}}, nil, "load.evicted", "it was ready on node_0 and is no more: evicted for model b", true},
		"no answer":      {nil, map[string]any{}, answer("/v1/completions", 500, `{"detail":"worker hunter2 died"}`), "load.request-failed", "http_5xx", false},
		"not undeployed": {nil, map[string]any{"undeploy": []any{"nobody"}}, nil, "load.undeploy-failed", `status 400: model "nobody" is not deployed`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.config["models"] == nil {
				c.config["models"] = []any{"a"}
			}
			s := newStage(t, foundry(c.serving, c.undeployed), c.config, c.front)
			err := run(context.Background(), s.task)
			if err == nil || !strings.Contains(err.Error(), c.text) || !slices.Contains(s.ids(), c.id) {
				t.Errorf("error %v, findings %v", err, s.ids())
			}
			sum, _, _ := s.read(t)
			b, _ := json.Marshal(sum)
			if strings.Contains(err.Error()+string(b), "hunter2") || strings.Contains(err.Error(), "127.0.0.1") {
				t.Error("a secret or an address is told")
			}
		})
	}
}

// TestSendsTheKey: everything that asks the service carries its key.
func TestSendsTheKey(t *testing.T) {
	var asked atomic.Int64
	front := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer key-of-a-service" {
				t.Errorf("%s %s came without the key", r.Method, r.URL.Path)
			}
			asked.Add(1)
			next.ServeHTTP(w, r)
		})
	}
	s := newStage(t, foundry(nil, true), map[string]any{"models": []any{"a"}, "undeploy": true}, front)
	key, err := schemas.NewAPIKey("key-of-a-service")
	if err != nil {
		t.Fatal(err)
	}
	s.task.Service.Asking.Key = key
	if err := run(context.Background(), s.task); err != nil || asked.Load() < 6 {
		t.Errorf("%v after %d questions", err, asked.Load())
	}
}

func TestPartialIsAllowed(t *testing.T) {
	// Room for one model a node: node_0 has a, which is in use by none, so b fits on
	// both after an eviction; a third node does not exist for the fourth replica.
	front := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != deployPath {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			body := strings.Replace(rec.Body.String(), `"status":"ok"`, `"status":"partial"`, 1)
			body = strings.Replace(body, `"failed":[]`, `"failed":{"node_9":"unreachable"}`, 1)
			w.WriteHeader(rec.Code)
			_, _ = io.WriteString(w, body)
		})
	}
	s := newStage(t, foundry(nil, true), map[string]any{"models": []any{"a"}, "allow_partial": true}, front)
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	sum, _, _ := s.read(t)
	d := sum.Models[0].Deploy
	if d.Status != "partial" || len(d.Failed) != 1 || d.Failed[0].Node != "node_9" || d.Failed[0].Error != "unreachable" || sum.Models[0].Replicas[0].Repeat == nil {
		t.Errorf("%+v", sum.Models[0])
	}
	if len(s.findings) != 1 || s.findings[0].ID != "load.deploy-partial" || s.findings[0].Severity != schemas.SeverityWarning {
		t.Errorf("%+v", s.findings)
	}
}

func TestKeysThatContradict(t *testing.T) {
	for text, config := range map[string]map[string]any{
		"is there twice":                         {"models": []any{"a", "a"}},
		`each: model "x" is none of a`:           {"models": []any{"a"}, "each": []any{map[string]any{"model": "x"}}},
		"replicas = 3 but 1 nodes":               {"models": []any{"a"}, "replicas": 3.0, "nodes": []any{"node_0"}},
		"no model to deploy and none to":         {"models": []any{}},
		"are for a deploy endpoint":              {"models": []any{"a"}, "via": "startup", "max_model_len": 10.0},
		"keeps what its start-up list":           {"models": []any{"a"}, "via": "startup", "undeploy": true},
		"neither the experiment nor service eng": {},
	} {
		s := newStage(t, foundry(nil, true), config, nil)
		if err := run(context.Background(), s.task); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v", config, err)
		}
	}
}
