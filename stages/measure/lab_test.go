package measure

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"assay/internal/engines/emulated"
	"assay/internal/report"
	"assay/pipeline"
	"assay/schemas"
)

// engine is an emulated engine on loopback, in this process.
type engine struct {
	view pipeline.ServiceView
	stop func()
}

// firstUse is a listener that tells when the first connection is accepted.
type firstUse struct {
	net.Listener
	once sync.Once
	tell func()
}

func (f *firstUse) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	if err == nil {
		f.once.Do(f.tell)
	}
	return c, err
}

func startEngine(t *testing.T, config map[string]any, used func()) *engine {
	t.Helper()
	cfg, err := emulated.FromMap(config)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	e := &engine{view: pipeline.ServiceView{Name: "engine", Engine: "emulated", URL: "http://" + l.Addr().String(), Emulated: true, Done: done}}
	var mu sync.Mutex
	why := ""
	die := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if why == "" {
			why = text
		}
	}
	e.view.Dead = func() string { mu.Lock(); defer mu.Unlock(); return why }
	for _, m := range cfg.Models {
		e.view.Models = append(e.view.Models, m.Name)
	}
	go func() {
		defer close(done)
		_ = emulated.Serve(ctx, cfg, emulated.Options{Listener: &firstUse{Listener: l, tell: used}, Log: io.Discard, Die: func() {
			die("killed by signal 9")
			cancel()
		}})
	}()
	e.stop = func() { cancel(); <-done }
	t.Cleanup(e.stop)
	return e
}

func fast(models ...string) map[string]any {
	var list []any
	for _, m := range models {
		list = append(list, map[string]any{"name": m, "prefill_base": "1ms", "prefill_per_token": "0s", "decode_per_token": "1ms"})
	}
	return map[string]any{"models": list}
}

const synthForm = "Request Time,Model Name,Input Length,Output Length\r\n" +
	"00:00:00.000,m1,8,4\r\n00:00:00.010,m0,9,5\r\n00:00:00.020,m1,10,6\r\n00:00:00.030,m0,11,7\r\n"

const requestsForm = "request_id,timestamp,input_tokens,output_tokens\nr-a,0,8,4\nr-b,10,9,5\nr-c,25.5,10,6\n"

type stage struct {
	task     *pipeline.Task
	log      bytes.Buffer
	findings []schemas.Finding
	states   []string
}

func newStage(t *testing.T, e *engine, workload string, config map[string]any) *stage {
	t.Helper()
	base := t.TempDir()
	file := filepath.Join(base, "w.csv")
	if err := os.WriteFile(file, []byte(workload), 0o644); err != nil {
		t.Fatal(err)
	}
	config["workload"] = file
	fields, _ := schemas.FieldsOf("measure")
	s := &stage{}
	var mu sync.Mutex
	view := e.view
	s.task = &pipeline.Task{
		Node: schemas.Node{ID: "replay@t001", Stage: "replay", Kind: "measure", Trial: "t001"}, Trial: schemas.Trial{ID: "t001"},
		Config: schemas.ApplyDefaults(fields, config), Seed: 42, Work: filepath.Join(base, "work"), Dir: filepath.Join(base, "archive"), Log: &s.log,
		Service: &view, Models: []pipeline.ModelIdentity{{ID: "q", Name: "m0", Fingerprint: schemas.DigestOf([]byte("w")), Level: "header"}},
		Experiment: schemas.Experiment{
			Model: map[string]schemas.Model{"q": {Name: "m0", Checkpoint: "${machine.models}/q"}}, Trials: schemas.Trials{Repeat: 1, Order: "abba"},
			Service: map[string]schemas.Service{"engine": {Engine: "emulated", Restart: "trial", Config: fast("m0", "m1")}},
			Stage: map[string]schemas.StageDef{
				"replay": {Kind: "measure", Service: "engine", Needs: []string{"gate"}},
				"gate":   {Kind: "command", Needs: []string{"warm"}}, "warm": {Kind: "warmup", Service: "engine", Config: map[string]any{"count": 2.0}}},
		},
		Report:   func(f schemas.Finding) { mu.Lock(); defer mu.Unlock(); s.findings = append(s.findings, f) },
		Progress: func(done, total int64, note string) { mu.Lock(); defer mu.Unlock(); s.states = append(s.states, note) },
	}
	for _, d := range []string{"logs", "outputs"} {
		if err := os.MkdirAll(filepath.Join(s.task.Dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *stage) path(output, file string) string {
	return filepath.Join(s.task.Dir, "outputs", output, file)
}

func (s *stage) result(t *testing.T) schemas.Result {
	t.Helper()
	b, err := os.ReadFile(s.path(OutputResult, ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := schemas.Validate("result", b); err != nil {
		t.Fatal(err)
	}
	var res schemas.Result
	if err := json.Unmarshal(b, &res); err != nil {
		t.Fatal(err)
	}
	return res
}

func (s *stage) records(t *testing.T) map[string]schemas.RequestRecord {
	t.Helper()
	rd, err := report.OpenRecords(s.path(OutputRequests, RequestsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	out := map[string]schemas.RequestRecord{}
	for r, err := range rd.All() {
		if err != nil {
			t.Fatal(err)
		}
		out[r.ID] = r
	}
	return out
}

func (s *stage) schedule(t *testing.T) (schemas.Schedule, []schemas.ScheduledRequest) {
	t.Helper()
	f, err := os.Open(s.path(OutputSchedule, ScheduleFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rd := bufio.NewReader(f)
	var header schemas.Schedule
	var list []schemas.ScheduledRequest
	for n := 0; ; n++ {
		line, err := rd.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return header, list
		}
		name, to := "scheduled-request", any(&schemas.ScheduledRequest{})
		if n == 0 {
			name, to = "schedule", &header
		}
		if err := errors.Join(schemas.Validate(name, line), json.Unmarshal(line, to)); err != nil {
			t.Fatalf("schedule line %d: %v", n+1, err)
		}
		if r, ok := to.(*schemas.ScheduledRequest); ok {
			list = append(list, *r)
		}
	}
}
