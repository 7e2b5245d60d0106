package stages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"assay/archive"
	"assay/internal/engines/emulated"
	"assay/internal/supervise"
	"assay/pipeline"
	"assay/schemas"
)

func TestMain(m *testing.M) {
	if supervise.IsWorker(os.Args[1:]) {
		syscall.Exit(supervise.Main())
	}
	os.Exit(m.Run())
}

type supervisor struct{}

func (supervisor) Run(ctx context.Context, cmd pipeline.Command) (int, error) {
	return supervise.Run(ctx, supervise.Spec{Argv: cmd.Argv, Dir: cmd.Dir, Env: cmd.Env, Stdout: cmd.Stdout, Stderr: cmd.Stderr})
}

// inProcess is the emulated engine, served by this process over real HTTP.
type inProcess struct {
	view pipeline.ServiceView
	stop context.CancelFunc
	done chan struct{}
}

func (s *inProcess) View() pipeline.ServiceView { return s.view }

func (s *inProcess) Stop(context.Context) pipeline.ServiceEnd {
	s.stop()
	<-s.done
	return pipeline.ServiceEnd{Status: "stopped"}
}

func startInProcess(_ context.Context, l pipeline.ServiceLaunch) (pipeline.Service, error) {
	delete(l.Config, "restart") // a key of every service, not of the engine
	cfg, err := emulated.FromMap(l.Config)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &inProcess{stop: cancel, done: make(chan struct{})}
	s.view = pipeline.ServiceView{Name: l.Service, Engine: l.Engine, URL: "http://" + ln.Addr().String(), Emulated: true, Done: s.done, Dead: func() string { return "" }}
	for _, m := range cfg.Models {
		s.view.Models = append(s.view.Models, m.Name)
	}
	go func() {
		defer close(s.done)
		_ = emulated.Serve(ctx, cfg, emulated.Options{Listener: ln, Log: io.Discard})
	}()
	return s, nil
}

// lab runs experiments in a folder of its own.
type lab struct {
	dir   string
	store *archive.Store
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	store, err := archive.Create(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	return &lab{dir: dir, store: store}
}

func (l *lab) run(t *testing.T, exp schemas.Experiment) (pipeline.Outcome, error) {
	t.Helper()
	plan, err := pipeline.NewPlan(exp, Kinds())
	if err != nil {
		t.Fatal(err)
	}
	id, err := pipeline.NewRunID(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return pipeline.Run(context.Background(), pipeline.Options{
		Experiment: exp, Source: []byte("schema = \"assay/experiment/v1\"\n"), Plan: plan, Kinds: Kinds(), Store: l.store, StoreDir: filepath.Join(l.dir, "store"), BaseDir: l.dir,
		Supervise: supervisor{}, StartService: startInProcess, RunID: id, Now: time.Now,
	})
}

func wholeDAG() schemas.Experiment {
	model := func(name string) map[string]any {
		return map[string]any{"name": name, "prefill_base": "1ms", "prefill_per_token": "0s", "decode_per_token": "100us"}
	}
	return schemas.Experiment{
		Schema: schemas.ExperimentV1, Name: "whole", Params: map[string]any{"rate": 20.0, "note": map[string]any{"path": "note.txt"}},
		Trials:  schemas.Trials{Repeat: 2, Order: schemas.OrderInterleaved, Seed: 5},
		Service: map[string]schemas.Service{"engine": {Engine: "emulated", Restart: "trial", Config: map[string]any{"models": []any{model("a"), model("b")}}}},
		Stage: map[string]schemas.StageDef{
			"check":  {Kind: "preflight", Scope: schemas.ScopeRun, Config: map[string]any{"disk": "1MiB"}},
			"gen":    {Kind: "workload", Scope: schemas.ScopeTrial, Needs: []string{"check"}, Config: map[string]any{"models": 2.0, "rate": "${param.rate}", "duration": "500ms", "input_mean": 8.0, "output_mean": 16.0}},
			"warm":   {Kind: "warmup", Scope: schemas.ScopeTrial, Needs: []string{"check"}, Service: "engine", Config: map[string]any{"count": 2.0}},
			"replay": {Kind: "measure", Scope: schemas.ScopeTrial, Needs: []string{"warm"}, Service: "engine", Config: map[string]any{"workload": "${stage.gen.workload}", "slo": map[string]any{"ttft": "10s"}, "allow_errors": 0.0}},
			"sum":    {Kind: "report", Scope: schemas.ScopeRun, Needs: []string{"replay"}},
			"count": {Kind: "command", Scope: schemas.ScopeTrial, Config: map[string]any{"argv": []any{"wc -c < note > size"}, "shell": true, "reuse": true,
				"inputs": map[string]any{"note": "${param.note}"}, "outputs": map[string]any{"size": "size"}}},
		},
		Claim: []schemas.Claim{{Name: "all answered", Metric: "replay.error_rate", Expect: 0, Gate: true}},
	}
}

func TestAWholeExperimentPasses(t *testing.T) {
	l := newLab(t)
	if err := os.WriteFile(filepath.Join(l.dir, "note.txt"), []byte("twelve bytes"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := l.run(t, wholeDAG())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range out.Report.Stages {
		if s.Status != schemas.StagePassed {
			t.Errorf("stage %s: %s: %s", s.Node, s.Status, s.Error)
		}
	}
	if out.Status != schemas.RunPassed || !out.Report.Emulated || len(out.Report.Results) != 2 || !out.Report.Claims[0].Holds {
		t.Errorf("run %s, emulated %v, %d results, claim %+v", out.Status, out.Report.Emulated, len(out.Report.Results), out.Report.Claims)
	}
	for _, r := range out.Report.Results {
		if r.Result.Counts.OK == 0 || r.Result.Counts.OK != r.Result.Counts.Issued {
			t.Errorf("%s: %+v", r.Node, r.Result.Counts)
		}
	}
	// 2 trials of gen, warm, replay; check, sum; the unseeded pure stage once.
	if out.Executed != 9 || out.Reused != 0 {
		t.Errorf("executed %d, reused %d", out.Executed, out.Reused)
	}
	again, err := l.run(t, wholeDAG())
	if err != nil || again.Status != schemas.RunPassed {
		t.Fatalf("second run: %v, %s", err, again.Status)
	}
	if again.Reused != 3 { // gen twice, count once; what is measured never is
		t.Errorf("second run reused %d stages", again.Reused)
	}
}

func TestAMissingPathIsAFindingNotAnError(t *testing.T) {
	l := newLab(t)
	exp := wholeDAG()
	check := exp.Stage["check"]
	check.Config = map[string]any{"disk": "1MiB", "paths": map[string]any{"note": "${param.note}"}}
	exp.Stage["check"] = check
	out, err := l.run(t, exp)
	if err != nil {
		t.Fatal(err)
	}
	var refused *pipeline.RefusedError
	if out.Refused == nil || !errors.As(error(out.Refused), &refused) {
		t.Fatalf("not refused: %+v", out)
	}
	var missing []string
	for _, f := range refused.Findings {
		if f.ID == "path.missing" {
			missing = append(missing, f.Subject)
		}
	}
	if got := strings.Join(missing, "; "); got != "path note; param note; stage count: inputs note" {
		t.Errorf("missing: %q of %s", got, fmt.Sprint(refused))
	}
	if out.Digest != "" {
		t.Error("a refused run was published")
	}
}
