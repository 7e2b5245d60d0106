package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"assay/archive"
	"assay/pipeline"
	"assay/schemas"
)

// lab is a project folder with a store and one kind, "command", that runs its
// arguments as a real process and publishes what it prints as output "out".
type lab struct {
	t     *testing.T
	dir   string
	store *archive.Store
	exp   schemas.Experiment

	extra []pipeline.Kind

	mu      sync.Mutex
	ran     []string // stage names, in the order they began
	started []string // services
	active  int
	overlap bool
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	store, err := archive.OpenOrCreate(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	return &lab{t: t, dir: dir, store: store, exp: schemas.Experiment{
		Schema: schemas.ExperimentV1, Name: "lab", Params: map[string]any{}, Trials: schemas.Trials{Repeat: 1, Order: schemas.OrderInterleaved, Seed: 1},
		Stage: map[string]schemas.StageDef{}, Service: map[string]schemas.Service{},
	}}
}

func (l *lab) file(name, content string) string {
	l.t.Helper()
	p := filepath.Join(l.dir, name)
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		l.t.Fatal(err)
	}
	return p
}

func (l *lab) stage(name, kind, script string, change func(*schemas.StageDef)) {
	def := schemas.StageDef{Kind: kind, Scope: schemas.ScopeTrial, Config: map[string]any{"argv": []any{"sh", "-c", script}, "reuse": true}}
	if change != nil {
		change(&def)
	}
	l.exp.Stage[name] = def
}

func (l *lab) kinds() []pipeline.Kind {
	kind := pipeline.Kind{
		Name: "command", Version: 1,
		Pure: func(c map[string]any) bool { return c["reuse"] == true },
		Seed: func(c map[string]any) pipeline.SeedUse {
			if c["seeded"] == true {
				return pipeline.SeedRepetition
			}
			return pipeline.SeedNone
		},
		Outputs: func(map[string]any) []string { return []string{"out"} },
		Run:     l.run,
	}
	return append([]pipeline.Kind{kind}, l.extra...)
}

func (l *lab) run(ctx context.Context, task *pipeline.Task) error {
	l.mu.Lock()
	l.ran = append(l.ran, task.Node.ID)
	l.active++
	l.mu.Unlock()
	defer func() { l.mu.Lock(); l.active--; l.mu.Unlock() }()
	argv := task.Config["argv"].([]any)
	args := make([]string, len(argv))
	for i, a := range argv {
		args[i] = a.(string)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = &out, task.Log, task.Work, task.Env
	for name, p := range task.Inputs {
		cmd.Env = append(cmd.Env, "IN_"+strings.NewReplacer("/", "_", ".", "_").Replace(name)+"="+p)
	}
	if err := cmd.Run(); err != nil {
		return err
	}
	p, err := task.OutputFile("out", "out.txt")
	if err != nil {
		return err
	}
	return os.WriteFile(p, out.Bytes(), 0o644)
}

func (l *lab) options() pipeline.Options {
	l.t.Helper()
	plan, err := pipeline.NewPlan(l.exp, l.kinds())
	if err != nil {
		l.t.Fatal(err)
	}
	id, err := pipeline.NewRunID(time.Now())
	if err != nil {
		l.t.Fatal(err)
	}
	return pipeline.Options{
		Experiment: l.exp, Source: []byte("# lab\n"), Plan: plan, Kinds: l.kinds(), Store: l.store, StoreDir: l.store.Dir(), BaseDir: l.dir,
		ParamPaths: map[string]string{}, RunID: id, Now: time.Now, Environment: schemas.Environment{OS: "linux", Tool: schemas.ToolIdentity{Version: "test"}, Accelerators: []schemas.Accelerator{}, CommandLine: []string{"test"}},
		StartService: l.startService, Sealed: l.sealed,
	}
}

func (l *lab) mustRun() pipeline.Outcome {
	l.t.Helper()
	l.ran = nil
	out, err := pipeline.Run(context.Background(), l.options())
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// record returns the record of a node of a sealed run.
func (l *lab) record(out pipeline.Outcome, node string) schemas.ReportStage {
	l.t.Helper()
	for _, s := range out.Report.Stages {
		if s.Node == node {
			return s
		}
	}
	l.t.Fatalf("no stage %s in the report; it has %v", node, out.Report.Stages)
	return schemas.ReportStage{}
}

// verify checks every byte of the newest run.
func (l *lab) verify() {
	l.t.Helper()
	ref, err := l.store.Resolve(context.Background(), "latest")
	if err != nil {
		l.t.Fatal(err)
	}
	v, err := ref.Verify(context.Background())
	if err != nil || v.Verdict != "valid" {
		l.t.Fatalf("verify: %v %+v", err, v)
	}
}

// sealed says whether a run is in the store's index.
func (l *lab) sealed(runID string) bool {
	runs, err := l.store.Runs(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range runs {
		if r.ID == runID {
			return true
		}
	}
	return false
}

func (l *lab) extract(out pipeline.Outcome, dest string) {
	l.t.Helper()
	ref, err := l.store.Resolve(context.Background(), string(out.Digest))
	if err != nil {
		l.t.Fatal(err)
	}
	run, err := ref.Run(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	if err := run.Extract(context.Background(), dest); err != nil {
		l.t.Fatal(err)
	}
}

type testService struct {
	l    *lab
	name string
	done chan struct{}
}

func (l *lab) startService(_ context.Context, launch pipeline.ServiceLaunch) (pipeline.Service, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = append(l.started, launch.Unit)
	l.active++
	if l.active > 1 {
		l.overlap = true
	}
	if err := os.WriteFile(filepath.Join(launch.LogDir, "service.log"), []byte("up\n"), 0o644); err != nil {
		return nil, err
	}
	if launch.Config["ready_log"] == "never" {
		l.active--
		return nil, errors.New("exit code 3 before it was ready")
	}
	return &testService{l: l, name: launch.Service, done: make(chan struct{})}, nil
}

func (s *testService) View() pipeline.ServiceView {
	return pipeline.ServiceView{Name: s.name, Engine: "openai", URL: "http://127.0.0.1:1", Models: []string{"m"}, Dead: func() string { return "" }, Done: s.done}
}

func (s *testService) Stop(context.Context) pipeline.ServiceEnd {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.l.active--
	return pipeline.ServiceEnd{Status: "stopped"}
}

func TestRunPublishesAndASecondRunReuses(t *testing.T) {
	l := newLab(t)
	l.stage("a", "command", "echo one", nil)
	l.stage("b", "command", "cat ${stage.a.out}; echo two", nil)
	first := l.mustRun()
	if first.Status != schemas.RunPassed || first.Executed != 2 {
		t.Fatalf("first run: %+v", first)
	}
	second := l.mustRun()
	if len(l.ran) != 0 || second.Reused != 2 {
		t.Errorf("second run executed %v, reused %d", l.ran, second.Reused)
	}
	l.verify()
	if s := l.record(second, "b@t001"); s.ReusedFrom != first.RunID {
		t.Errorf("reused from %q, want %q", s.ReusedFrom, first.RunID)
	}
	if first.Digest == second.Digest {
		t.Error("two runs have one digest")
	}
}

// Nodes that turn out to have one key at the same moment do the work once.
func TestEqualKeysAtOnceRunOnce(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		l.stage(name, "command", "echo the same", nil)
	}
	opts := l.options()
	opts.Parallel = 4
	out, err := pipeline.Run(context.Background(), opts)
	if err != nil || out.Status != schemas.RunPassed {
		t.Fatalf("%+v, %v", out, err)
	}
	if len(l.ran) != 1 {
		t.Errorf("ran %v, want one of four equal nodes", l.ran)
	}
	l.verify()
}

// One that fails is no result: each of its equals has its own try, and a run that
// is interrupted does not wait for them.
func TestEqualKeysThatFail(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{"a", "b"} {
		l.stage(name, "command", "exit 3", nil)
	}
	if out := l.mustRun(); out.Status != schemas.RunFailed || len(l.ran) != 2 {
		t.Errorf("%s, ran %v", out.Status, l.ran)
	}
	l.verify()
}

func TestEqualUpstreamOutputDoesNotCascade(t *testing.T) {
	l := newLab(t)
	l.stage("a", "command", "echo one # old comment", nil)
	l.stage("b", "command", "cat ${stage.a.out}", nil)
	l.mustRun()
	l.stage("a", "command", "echo one # new comment", nil)
	l.mustRun()
	if got := fmt.Sprint(l.ran); got != "[a@t001]" {
		t.Errorf("ran %s, want only a", got)
	}
}

func TestMovingTheProjectChangesNoKey(t *testing.T) {
	keys := func() schemas.Key {
		l := newLab(t) // each in a folder of its own
		l.file("data.txt", "data")
		l.exp.Params["d"] = map[string]any{"path": "data.txt"}
		l.stage("a", "command", `cat "${param.d}" "$IN_inputs_x"`, func(d *schemas.StageDef) { d.Config["inputs"] = map[string]any{"x": "data.txt"} })
		return l.record(l.mustRun(), "a@t001").Key
	}
	if a, b := keys(), keys(); a != b {
		t.Errorf("keys differ: %s %s", a, b)
	}
}

func TestSwappedInputsChangeTheKey(t *testing.T) {
	l := newLab(t)
	l.file("x.txt", "1")
	l.file("y.txt", "2")
	l.stage("a", "command", `cat "$IN_inputs_x" "$IN_inputs_y"`, func(d *schemas.StageDef) {
		d.Config["inputs"] = map[string]any{"x": "x.txt", "y": "y.txt"}
	})
	one := l.record(l.mustRun(), "a@t001").Key
	l.file("x.txt", "2")
	l.file("y.txt", "1")
	two := l.mustRun()
	if l.record(two, "a@t001").Key == one || two.Reused != 0 {
		t.Error("inputs with swapped contents gave the same key")
	}
}

func TestUnreadableInputIsAnErrorNotAKey(t *testing.T) {
	l := newLab(t)
	if err := os.Symlink("gone", filepath.Join(l.dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	l.stage("a", "command", "true", func(d *schemas.StageDef) { d.Config["inputs"] = map[string]any{"x": "dangling"} })
	s := l.record(l.mustRun(), "a@t001")
	if s.Status != schemas.StageFailed || s.Key != "" || !strings.Contains(s.Error, "inputs/x") {
		t.Errorf("stage %+v: want failed, no key, the input's name", s)
	}
}

func TestInputEditedWhileItRunsTaints(t *testing.T) {
	for name, script := range map[string]string{
		"edited":               `echo more >> "$IN_inputs_x"; echo done`,
		"edited and put back":  `cp -p "$IN_inputs_x" keep; echo more >> "$IN_inputs_x"; cat keep > "$IN_inputs_x"; echo done`,
		"replaced by an equal": `cp "$IN_inputs_x" keep; mv keep "$IN_inputs_x"; echo done`,
		"removed":              `rm "$IN_inputs_x"; echo done`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.stage("a", "command", script, func(d *schemas.StageDef) { d.Config["inputs"] = map[string]any{"x": "x.txt"} })
			l.stage("b", "command", "cat ${stage.a.out}", nil)
			l.file("x.txt", "data")
			out := l.mustRun()
			if out.Status != schemas.RunTainted || l.record(out, "a@t001").Status != schemas.StageTainted {
				t.Fatalf("run %s, stage %+v", out.Status, l.record(out, "a@t001"))
			}
			if b := l.record(out, "b@t001"); b.Status != schemas.StageSkipped || b.RootCause != "a@t001" {
				t.Errorf("dependant %+v: want skipped because of a", b)
			}
			l.file("x.txt", "data")
			if again := l.mustRun(); again.Reused != 0 {
				t.Error("a tainted result was reused")
			}
		})
	}
}

func TestFailureMarksDependantsAndLetsOthersGoOn(t *testing.T) {
	l := newLab(t)
	l.stage("bad", "command", "exit 3", nil)
	l.stage("after", "command", "cat ${stage.bad.out}", nil)
	l.stage("last", "command", "cat ${stage.after.out}", nil)
	l.stage("other", "command", "echo fine", nil)
	out := l.mustRun()
	if out.Status != schemas.RunFailed {
		t.Errorf("run %s", out.Status)
	}
	for node, want := range map[string]schemas.StageStatus{"bad@t001": schemas.StageFailed, "after@t001": schemas.StageSkipped, "last@t001": schemas.StageSkipped, "other@t001": schemas.StagePassed} {
		if s := l.record(out, node); s.Status != want {
			t.Errorf("%s is %s, want %s", node, s.Status, want)
		}
	}
	if s := l.record(out, "last@t001"); s.RootCause != "bad@t001" {
		t.Errorf("root cause of last is %q", s.RootCause)
	}
	if again := l.mustRun(); again.Reused != 1 {
		t.Errorf("reused %d, want only the one that passed", again.Reused)
	}
}

func TestTimeLimit(t *testing.T) {
	l := newLab(t)
	l.stage("slow", "command", "exec sleep 60", func(d *schemas.StageDef) { d.Timeout = schemas.Duration(50 * time.Millisecond) })
	s := l.record(l.mustRun(), "slow@t001")
	if s.Status != schemas.StageFailed || !strings.Contains(s.Error, "timeout of 50ms") {
		t.Errorf("%+v", s)
	}
}

func TestMissingOutputFails(t *testing.T) {
	l := newLab(t)
	l.stage("a", "command", "true", nil)
	opts := l.options()
	opts.Kinds[0].Outputs = func(map[string]any) []string { return []string{"out", "more"} }
	out, err := pipeline.Run(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if s := l.record(out, "a@t001"); s.Status != schemas.StageFailed || !strings.Contains(s.Error, "more") {
		t.Errorf("%+v", s)
	}
}

func TestServicesOfTrialsNeverOverlap(t *testing.T) {
	l := newLab(t)
	l.exp.Trials.Repeat = 4
	l.exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: "trial", Config: map[string]any{"command": []any{"serve"}}}
	l.stage("use", "command", "echo ${service.engine.url}", func(d *schemas.StageDef) { d.Config["reuse"] = false; d.Service = "engine" })
	l.stage("use2", "command", "echo again", func(d *schemas.StageDef) { d.Config["reuse"] = false; d.Service = "engine" })
	out := l.mustRun()
	if out.Status != schemas.RunPassed || l.overlap {
		t.Errorf("run %s, overlap %v", out.Status, l.overlap)
	}
	if got := fmt.Sprint(l.started); got != "[engine-1 engine-2 engine-3 engine-4]" {
		t.Errorf("started %s", got)
	}
}

func TestServiceThatDoesNotStartFailsItsStages(t *testing.T) {
	l := newLab(t)
	l.exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: "trial", Config: map[string]any{"command": []any{"serve"}, "ready_log": "never"}}
	l.stage("use", "command", "true", func(d *schemas.StageDef) { d.Config["reuse"] = false; d.Service = "engine" })
	out := l.mustRun()
	if s := l.record(out, "use@t001"); out.Status != schemas.RunFailed || !strings.Contains(s.Error, "exit code 3") {
		t.Errorf("run %s, stage %+v", out.Status, s)
	}
	found := false
	for _, f := range out.Report.Findings {
		found = found || f.ID == "service.start"
	}
	if !found {
		t.Errorf("no finding service.start in %v", out.Report.Findings)
	}
}

func TestSecretsAreHiddenInLogsAndRefusedInOutputs(t *testing.T) {
	l := newLab(t)
	const canary = "canary-5e1f0b"
	l.stage("log", "command", `echo "$KEY" >&2; echo fine`, func(d *schemas.StageDef) { d.Config["env"] = map[string]any{"KEY": "${secret.token}"} })
	l.stage("out", "command", `echo "$KEY"`, func(d *schemas.StageDef) { d.Config["env"] = map[string]any{"KEY": "${secret.token}"} })
	opts := l.options()
	opts.Machine.Secret = func(string) (string, error) { return canary, nil }
	out, err := pipeline.Run(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if s := l.record(out, "log@t001"); s.Status != schemas.StagePassed {
		t.Errorf("log: %+v", s)
	}
	if s := l.record(out, "out@t001"); s.Status != schemas.StageFailed || !strings.Contains(s.Error, "[secret:token]") {
		t.Errorf("out: %+v", s)
	}
	dest := filepath.Join(t.TempDir(), "x")
	l.extract(out, dest)
	err = filepath.Walk(dest, func(p string, fi os.FileInfo, err error) error {
		if err != nil || !fi.Mode().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		if bytes.Contains(b, []byte(canary)) {
			t.Errorf("%s holds the secret", p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestInterruptedRunIsSealedAsAborted(t *testing.T) {
	l := newLab(t)
	l.stage("long", "command", "exec sleep 60", nil)
	l.stage("next", "command", "cat ${stage.long.out}", nil)
	ctx, cancel := context.WithCancel(context.Background())
	opts := l.options()
	opts.Events = func(ev pipeline.Event) {
		if ev.Type == "start" {
			cancel()
		}
	}
	out, err := pipeline.Run(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	if out.Status != schemas.RunAborted || !out.Aborted || out.Digest == "" {
		t.Errorf("%+v", out)
	}
	if s := l.record(out, "long@t001"); s.Status != schemas.StageAborted {
		t.Errorf("long: %+v", s)
	}
}

func TestExplainNamesTheParameterAndOnlyThat(t *testing.T) {
	l := newLab(t)
	l.exp.Params["rate"], l.exp.Params["other"] = 0.5, "x"
	l.stage("gen", "command", "echo ${param.rate}", nil)
	l.stage("use", "command", "cat ${stage.gen.out}", nil)
	l.stage("apart", "command", "echo ${param.other}", nil)
	l.mustRun()
	l.exp.Params["rate"] = 0.75
	list, err := pipeline.Explain(context.Background(), l.options())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, x := range list {
		got[x.Stage] = x.Decision
		for _, d := range x.Differences {
			got[x.Stage] += fmt.Sprintf(" %s:%v->%v", d.Field, d.Before, d.After)
		}
	}
	want := map[string]string{"gen": "run params.rate:0.5->0.75", "use": "run", "apart": "reuse"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if len(l.ran) != 3 {
		t.Errorf("explain ran something: %v", l.ran)
	}
}

func TestFindingsOfAGateEnterNoKey(t *testing.T) {
	l := newLab(t)
	l.exp.Stage["check"] = schemas.StageDef{Kind: "preflight", Scope: schemas.ScopeRun, Config: map[string]any{}}
	l.stage("a", "command", "echo one", func(d *schemas.StageDef) { d.Needs = []string{"check"} })
	n := 0
	gate := pipeline.Kind{Name: "preflight", Version: 1, Early: true, Run: func(_ context.Context, task *pipeline.Task) error {
		n++
		p, err := task.OutputFile("findings", "findings.json")
		if err != nil {
			return err
		}
		return os.WriteFile(p, fmt.Appendf(nil, "%d", n), 0o644)
	}}
	l.extra = []pipeline.Kind{gate}
	l.mustRun()
	if second := l.mustRun(); len(l.ran) != 0 || second.Reused != 1 || n != 2 {
		t.Errorf("ran %v, reused %d, checked %d times", l.ran, second.Reused, n)
	}
	list, err := pipeline.Explain(context.Background(), l.options())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		if x.Stage == "a" && x.Decision != "reuse" {
			t.Errorf("explain: %+v", x)
		}
	}
}

func TestFullDiskIsNotAFailedStage(t *testing.T) {
	l := newLab(t)
	l.stage("a", "command", "echo one", nil)
	opts := l.options()
	opts.Kinds[0].Run = func(context.Context, *pipeline.Task) error {
		return fmt.Errorf("write x: %w", syscall.ENOSPC)
	}
	_, err := pipeline.Run(context.Background(), opts)
	var infra *pipeline.InfraError
	if !errors.As(err, &infra) || !strings.Contains(err.Error(), "a@t001") {
		t.Errorf("%v", err)
	}
}
