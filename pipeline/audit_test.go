package pipeline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"assay/internal/durable"
	"assay/pipeline"
	"assay/schemas"

	"github.com/klauspost/compress/zstd"
)

// output reads one output file of a run's stage.
func (l *lab) output(out pipeline.Outcome, path string) string {
	l.t.Helper()
	dest := filepath.Join(l.t.TempDir(), "x")
	l.extract(out, dest)
	b, err := os.ReadFile(filepath.Join(dest, filepath.FromSlash(path)))
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// launches records what each lifetime is started with, and gives it a URL of its own.
func (l *lab) launches(opts *pipeline.Options) map[string]string {
	with := map[string]string{}
	start := opts.StartService
	opts.StartService = func(ctx context.Context, launch pipeline.ServiceLaunch) (pipeline.Service, error) {
		s, err := start(ctx, launch)
		if err != nil {
			return nil, err
		}
		text := fmt.Sprint(launch.Config["command"])
		for _, a := range launch.Config["command"].([]any) {
			if b, err := os.ReadFile(fmt.Sprint(a)); err == nil {
				text = strings.TrimSpace(string(b))
			}
		}
		l.mu.Lock()
		with[launch.Unit] = text
		l.mu.Unlock()
		return &urlService{s, "http://" + launch.Unit}, nil
	}
	return with
}

type urlService struct {
	pipeline.Service
	url string
}

func (u *urlService) View() pipeline.ServiceView {
	v := u.Service.View()
	v.URL = u.url
	return v
}

func TestEachNodeSeesItsOwnLifetime(t *testing.T) {
	l := newLab(t)
	l.exp.Params["d"] = "1"
	l.exp.Matrix = map[string][]any{"d": {"1", "2"}}
	l.exp.Trials.Repeat = 2
	l.exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: "change", Config: map[string]any{"command": []any{"serve", "${param.d}"}}}
	impure := func(d *schemas.StageDef) { d.Config["reuse"] = false; d.Service = "engine" }
	l.stage("use", "command", "echo ${service.engine.url}", impure)
	l.stage("last", "command", "echo ${service.engine.url}", func(d *schemas.StageDef) { impure(d); d.Scope = schemas.ScopeRun; d.Needs = []string{"use"} })
	opts := l.options()
	with := l.launches(&opts)
	out, err := pipeline.Run(context.Background(), opts)
	if err != nil || out.Status != schemas.RunPassed {
		t.Fatalf("%v %+v", err, out)
	}
	if l.overlap {
		t.Error("two lifetimes of one service were up at once")
	}
	for _, tr := range opts.Plan.Trials {
		unit := strings.TrimPrefix(l.output(out, "trials/"+tr.ID+"/use/outputs/out/out.txt"), "http://")
		if want := fmt.Sprintf("[serve %v]", tr.Point["d"]); with[unit] != want {
			t.Errorf("%s was served by %s, started with %s, want %s", tr.ID, unit, with[unit], want)
		}
	}
}

func TestServiceFollowsTheOutputItIsStartedWith(t *testing.T) {
	l := newLab(t)
	l.exp.Params["x"] = "1"
	l.exp.Matrix = map[string][]any{"x": {"1", "2"}}
	l.exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: "change", Config: map[string]any{"command": []any{"serve", "${stage.compile.out}"}}}
	l.stage("compile", "command", "echo compiled for ${param.x}", nil)
	l.stage("use", "command", "echo ${param.x} ${service.engine.url}", func(d *schemas.StageDef) { d.Config["reuse"] = false; d.Service = "engine" })
	opts := l.options()
	with := l.launches(&opts)
	out, err := pipeline.Run(context.Background(), opts)
	if err != nil || out.Status != schemas.RunPassed {
		t.Fatalf("%v %+v", err, out)
	}
	for _, id := range []string{"t001", "t002"} {
		x, url, _ := strings.Cut(l.output(out, "trials/"+id+"/use/outputs/out/out.txt"), " ")
		if got := with[strings.TrimPrefix(url, "http://")]; got != "compiled for "+x {
			t.Errorf("%s with x = %s ran against %q", id, x, got)
		}
	}
}

func TestAServiceMayNotOutliveOneItNeeds(t *testing.T) {
	l := newLab(t)
	l.exp.Service["a"] = schemas.Service{Engine: "openai", Restart: "run", Needs: []string{"b"}, Config: map[string]any{"command": []any{"a"}}}
	l.exp.Service["b"] = schemas.Service{Engine: "openai", Restart: "trial", Config: map[string]any{"command": []any{"b"}}}
	l.stage("use", "command", "true", func(d *schemas.StageDef) { d.Service = "a" })
	if _, err := pipeline.NewPlan(l.exp, l.kinds()); err == nil || !strings.Contains(err.Error(), "service a") {
		t.Errorf("%v", err)
	}
}

func TestAStageCannotReachWhatAnotherReads(t *testing.T) {
	l := newLab(t)
	l.stage("a", "command", "echo original", nil)
	l.stage("b", "command", "echo EDITED > ${stage.a.out}; echo done", nil)
	l.stage("c", "command", "cat ${stage.a.out}", func(d *schemas.StageDef) { d.Needs = []string{"b"} })
	out := l.mustRun()
	if got := l.output(out, "trials/t001/c/outputs/out/out.txt"); got != "original" {
		t.Errorf("c read %q", got)
	}
}

func TestModelsAreIdentifiedPerTrial(t *testing.T) {
	for _, level := range []string{schemas.FingerprintHeader, schemas.FingerprintFull} {
		t.Run(level, func(t *testing.T) { identifyModels(t, level) })
	}
}

func identifyModels(t *testing.T, level string) {
	l := newLab(t)
	for _, ck := range []string{"ck1", "ck2"} {
		if err := os.Mkdir(filepath.Join(l.dir, ck), 0o755); err != nil {
			t.Fatal(err)
		}
		l.file(ck+"/config.json", ck)
	}
	if err := os.Symlink("ck1", filepath.Join(l.dir, "link")); err != nil {
		t.Fatal(err)
	}
	l.exp.Params["ck"] = map[string]any{"path": "ck1"}
	l.exp.Matrix = map[string][]any{"ck": {"ck1", "ck2", "link"}}
	l.exp.Model = map[string]schemas.Model{"m": {Name: "name", Checkpoint: "${param.ck}", FingerprintLevel: level}}
	l.stage("a", "command", "true", func(d *schemas.StageDef) { d.Config["reuse"] = false })
	opts := l.options()
	prints := map[string]string{}
	opts.Kinds[0].Run = func(_ context.Context, task *pipeline.Task) error {
		m := task.Models[0]
		prints[fmt.Sprint(task.Trial.Point["ck"])] = string(m.Fingerprint)
		path := filepath.Join(l.dir, fmt.Sprint(task.Trial.Point["ck"]))
		if same, err := task.Fingerprint(context.Background(), path, m.Level); err != nil || same != m.Fingerprint || m.Level != level {
			t.Errorf("%s: %s at level %s, and by the task %s, %v", path, m.Fingerprint, m.Level, same, err)
		}
		p, err := task.OutputFile("out", "x")
		if err != nil {
			return err
		}
		return os.WriteFile(p, nil, 0o644)
	}
	opts.Parallel = 1
	if _, err := pipeline.Run(context.Background(), opts); err != nil {
		t.Fatal(err)
	}
	if prints["ck1"] == "" || prints["ck1"] == prints["ck2"] || prints["link"] != prints["ck1"] {
		t.Errorf("%v", prints)
	}
}

func TestAStageWithAServiceIsNeverReused(t *testing.T) {
	l := newLab(t)
	l.exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: "trial", Config: map[string]any{"command": []any{"serve"}}}
	l.stage("use", "command", "echo x", func(d *schemas.StageDef) { d.Service = "engine" })
	l.mustRun()
	l.active = 0
	if out := l.mustRun(); out.Reused != 0 {
		t.Error("it was reused")
	}
}

func TestNondeterminismIsReportedAndTheRunVerifies(t *testing.T) {
	l := newLab(t)
	l.stage("a", "command", "cat /proc/sys/kernel/random/uuid", nil)
	// Two runs at once, so that neither sees the other's record.
	var wait atomic.Int32
	run := l.kinds()[0].Run
	errs := make(chan error, 2)
	for range 2 {
		opts := l.options()
		opts.Kinds[0].Run = func(ctx context.Context, task *pipeline.Task) error {
			wait.Add(1)
			for wait.Load() < 2 && ctx.Err() == nil {
			}
			return run(ctx, task)
		}
		go func() { _, err := pipeline.Run(context.Background(), opts); errs <- err }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	out := l.mustRun()
	found := false
	for _, f := range out.Report.Findings {
		found = found || f.ID == "reuse.nondeterminism"
	}
	if out.Reused != 1 || !found {
		t.Errorf("reused %d, findings %v", out.Reused, out.Report.Findings)
	}
	l.verify()
}

func TestSecretsInNamesLinksAndCompressedOutputsAreRefused(t *testing.T) {
	for name, write := range map[string]func(dir, secret string) error{
		"name":  func(dir, s string) error { return os.WriteFile(filepath.Join(dir, "x-"+s), nil, 0o644) },
		"link":  func(dir, s string) error { return os.Symlink(s, filepath.Join(dir, "x")) },
		"plain": func(dir, s string) error { return os.WriteFile(filepath.Join(dir, "x"), []byte(s), 0o644) },
		"zstd": func(dir, s string) error {
			enc, err := zstd.NewWriter(nil)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "x"), enc.EncodeAll([]byte(strings.Repeat("pad", 999)+s), nil), 0o644)
		},
	} {
		l := newLab(t)
		l.stage("a", "command", "true", func(d *schemas.StageDef) { d.Config["env"] = map[string]any{"K": "${secret.k}"} })
		opts := l.options()
		opts.Machine.Secret = func(string) (string, error) { return "canary-77aa", nil }
		opts.Kinds[0].Run = func(_ context.Context, task *pipeline.Task) error {
			dir, err := task.OutputDir("out")
			if err != nil {
				return err
			}
			return write(dir, "canary-77aa")
		}
		out, err := pipeline.Run(context.Background(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if s := l.record(out, "a@t001"); s.Status != schemas.StageFailed || !strings.Contains(s.Error, "[secret:k]") || strings.Contains(s.Error, "canary") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestToolsAreKeyedByContentEachForItself(t *testing.T) {
	l := newLab(t)
	for _, dir := range []string{"pa", "pb"} {
		if err := os.Mkdir(filepath.Join(l.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tool := func(name, text string) string {
		p := l.file(name, "#!/bin/sh\necho "+text+"\n")
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b := tool("pa/tool", "a1"), tool("pb/tool", "b1")
	l.stage("two", "command", "true", nil)
	l.stage("path", "command", "true", func(d *schemas.StageDef) { d.Config["env"] = map[string]any{"PATH": filepath.Join(l.dir, "pb")} })
	keys := func() (two, path schemas.Key) {
		opts := l.options()
		opts.Kinds[0].Requires = func(c map[string]any) pipeline.Requirements {
			if _, ok := c["env"]; ok {
				return pipeline.Requirements{Tools: []string{"tool"}}
			}
			return pipeline.Requirements{Tools: []string{a, b}}
		}
		opts.Kinds[0].Run = func(_ context.Context, task *pipeline.Task) error {
			p, err := task.OutputFile("out", "x")
			if err != nil {
				return err
			}
			return os.WriteFile(p, nil, 0o644)
		}
		out, err := pipeline.Run(context.Background(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return l.record(out, "two@t001").Key, l.record(out, "path@t001").Key
	}
	two1, path1 := keys()
	tool("pa/tool", "a2")
	two2, path2 := keys()
	tool("pb/tool", "b2")
	_, path3 := keys()
	if two1 == "" || two1 == two2 {
		t.Error("the first of two tools with one name is not in the key")
	}
	if path1 == "" || path1 != path2 || path2 == path3 {
		t.Error("a tool is not looked up in the stage's own PATH")
	}
}

func TestExecutableBitOfAScriptIsInTheKey(t *testing.T) {
	l := newLab(t)
	p := l.file("s.sh", "#!/bin/sh\n")
	l.stage("a", "command", "true", func(d *schemas.StageDef) { d.Config["inputs"] = map[string]any{"s": "s.sh"} })
	one := l.record(l.mustRun(), "a@t001").Key
	if err := os.Chmod(p, 0o755); err != nil {
		t.Fatal(err)
	}
	if l.record(l.mustRun(), "a@t001").Key == one {
		t.Error("it is not")
	}
}

func TestEveryKindOfChangeOfAnInputTaints(t *testing.T) {
	for name, script := range map[string]string{
		"written, put back, times restored": `cp -p in.txt keep; echo x >> in.txt; cat keep > in.txt; touch -r keep in.txt`,
		"moved away and back":               `mv in.txt away; echo evil > in.txt; mv away in.txt`,
		"permissions":                       `chmod +x in.txt`,
		"file added to a folder":            `touch dir/new; rm dir/new`,
		"file renamed in a folder":          `mv dir/f dir/g; mv dir/g dir/f`,
		"link pointed elsewhere and back":   `ln -sfn other link; ln -sfn in.txt link`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.file("in.txt", "data")
			l.file("other", "other")
			if err := errors.Join(os.Mkdir(filepath.Join(l.dir, "dir"), 0o755), os.Symlink("in.txt", filepath.Join(l.dir, "link"))); err != nil {
				t.Fatal(err)
			}
			l.file("dir/f", "data")
			l.stage("a", "command", "cd "+l.dir+" && "+script, func(d *schemas.StageDef) {
				d.Config["inputs"] = map[string]any{"i": "in.txt", "d": "dir", "l": "link"}
			})
			if out := l.mustRun(); out.Status != schemas.RunTainted {
				t.Errorf("run %s: %+v", out.Status, l.record(out, "a@t001"))
			}
		})
	}
}

func TestAnInputThatChangesBetweenTrialsTaints(t *testing.T) {
	l := newLab(t)
	l.file("in.txt", "one")
	l.exp.Trials.Repeat = 2
	l.stage("a", "command", "true", func(d *schemas.StageDef) {
		d.Config["inputs"] = map[string]any{"i": "in.txt"}
		d.Config["reuse"] = false
	})
	opts := l.options()
	opts.Parallel = 1
	opts.Events = func(ev pipeline.Event) {
		if ev.Type == "end" {
			l.file("in.txt", "two")
		}
	}
	out, err := pipeline.Run(context.Background(), opts)
	if err != nil || out.Status != schemas.RunTainted {
		t.Errorf("%v %s", err, out.Status)
	}
}

func TestResumeRefusesInputsThatChanged(t *testing.T) {
	l := newLab(t)
	l.file("in.txt", "one")
	l.exp.Trials.Repeat = 2
	l.stage("a", "command", "true", func(d *schemas.StageDef) {
		d.Config["inputs"] = map[string]any{"i": "in.txt"}
		d.Config["reuse"] = false
	})
	opts := l.options()
	opts.Parallel = 1
	opts.Events = func(ev pipeline.Event) {
		if ev.Type == "end" {
			durable.SetHook(func(durable.Op, string) error { return syscall.EIO })
		}
	}
	t.Cleanup(func() { durable.SetHook(nil) })
	_, err := pipeline.Run(context.Background(), opts)
	durable.SetHook(nil)
	if err == nil {
		t.Fatal("a run whose disk broke gave no error")
	}
	l.file("in.txt", "two")
	u, err := pipeline.PickUnsealed(l.store.Dir(), "", opts.Plan.Digest, l.sealed)
	if err != nil {
		t.Fatal(err)
	}
	again := l.options()
	again.Resume = &u
	_, err = pipeline.Run(context.Background(), again)
	var re *pipeline.ResumeError
	if !errors.As(err, &re) {
		t.Errorf("resumed with another input: %v", err)
	}
}

func TestFindingsThatAreDataEnterTheKey(t *testing.T) {
	l := newLab(t)
	l.exp.Stage["check"] = schemas.StageDef{Kind: "preflight", Scope: schemas.ScopeRun, Config: map[string]any{}}
	l.stage("a", "command", "cat ${stage.check.findings}", nil)
	n := 0
	l.extra = []pipeline.Kind{{Name: "preflight", Version: 1, Early: true, Run: func(_ context.Context, task *pipeline.Task) error {
		n++
		p, err := task.OutputFile("findings", "findings.json")
		if err != nil {
			return err
		}
		return os.WriteFile(p, fmt.Appendf(nil, "%d", n), 0o644)
	}}}
	l.mustRun()
	if out := l.mustRun(); l.output(out, "trials/t001/a/outputs/out/out.txt") != "2" {
		t.Error("a stage was reused though the findings it reads are others")
	}
}

func TestAClaimNeedsEveryTrial(t *testing.T) {
	v := 1.0
	result := func(node string) schemas.StageResult {
		return schemas.StageResult{Node: node, Stage: "m", Result: schemas.Result{Values: map[string]schemas.Value{"error_rate": {Value: &v}}}}
	}
	plan := schemas.Plan{Nodes: []schemas.Node{{ID: "m@t001", Stage: "m"}, {ID: "m@t002", Stage: "m"}}}
	claims := []schemas.Claim{{Name: "c", Metric: "m.error_rate", Expect: 1, Gate: true}}
	if got := pipeline.Claims(claims, []schemas.StageResult{result("m@t001")}, plan)[0]; got.Holds || !strings.Contains(got.Reason, "m@t002") {
		t.Errorf("%+v", got)
	}
	if got := pipeline.Claims(claims, []schemas.StageResult{result("m@t001"), result("m@t002")}, plan)[0]; !got.Holds {
		t.Errorf("%+v", got)
	}
}

func TestFanInKeysHoldNoPath(t *testing.T) {
	keys := func(dir string) schemas.Key {
		l := newLab(t)
		if err := os.Mkdir(filepath.Join(l.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		l.file(dir+"/in.txt", "data")
		l.exp.Params["p"] = map[string]any{"path": dir + "/in.txt"}
		l.exp.Matrix = map[string][]any{"p": {filepath.Join(l.dir, dir, "in.txt")}}
		l.stage("a", "command", "cat ${param.p}", nil)
		l.stage("sum", "command", "echo sum", func(d *schemas.StageDef) { d.Scope = schemas.ScopeRun; d.Needs = []string{"a"} })
		out := l.mustRun()
		rec := l.record(out, "sum")
		b, err := l.store.Preimage(context.Background(), rec.Key)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(l.dir)) {
			t.Errorf("the key of sum holds a path: %s", b)
		}
		var pre schemas.Preimage
		if err := json.Unmarshal(b, &pre); err != nil || len(pre.Upstream) != 1 {
			t.Errorf("%v %v", err, pre.Upstream)
		}
		return rec.Key
	}
	if a, b := keys("one"), keys("two"); a != b {
		t.Error("the same content in another place gives another key")
	}
}

func TestExplainKnowsProgramsThatAreOutputs(t *testing.T) {
	l := newLab(t)
	l.stage("build", "command", "echo bin", nil)
	l.stage("use", "command", "true", func(d *schemas.StageDef) { d.Config["argv"] = []any{"${stage.build.out}"} })
	opts := l.options()
	opts.Kinds[0].Requires = func(c map[string]any) pipeline.Requirements {
		return pipeline.Requirements{Tools: []string{c["argv"].([]any)[0].(string)}}
	}
	list, err := pipeline.Explain(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		if x.Decision != "run" {
			t.Errorf("%+v", x)
		}
	}
}

func TestALaterRunRemovesWhatADeadOneLeft(t *testing.T) {
	l := newLab(t)
	l.stage("a", "command", "echo x", nil)
	dead := filepath.Join(l.store.Dir(), "assay", "work", "20000101T000000Z-00000000")
	if err := os.MkdirAll(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(l.store.Dir(), "assay", "journals", "20000101T000000Z-00000000.jsonl")
	if err := os.WriteFile(journal, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l.mustRun()
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestARunScopedStageReadsAllTrials(t *testing.T) {
	l := newLab(t)
	l.exp.Params["x"] = "1"
	l.exp.Matrix = map[string][]any{"x": {"1", "2"}}
	l.stage("a", "command", "echo x is ${param.x}", nil)
	l.stage("shared", "command", "echo shared", nil)
	l.stage("sum", "command", "cd ${stage.a.out}; for t in t001 t002; do cat $t; done; cat trials.json; cat ${stage.shared.out}/t00*", func(d *schemas.StageDef) { d.Scope = schemas.ScopeRun })
	out := l.mustRun()
	if out.Status != schemas.RunPassed {
		t.Fatalf("%+v", out.Report.Stages)
	}
	got := l.output(out, "run/sum/outputs/out/out.txt")
	for _, want := range []string{"x is 1\nx is 2\n", `"x": "2"`, "shared\nshared"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	l.exp.Trials.Repeat = 2
	if again := l.mustRun(); l.record(again, "sum").ReusedFrom != "" {
		t.Error("a fan-in over more trials was reused")
	}
}

func TestPipesAreNoInputs(t *testing.T) {
	l := newLab(t)
	if err := errors.Join(syscall.Mkfifo(filepath.Join(l.dir, "pipe"), 0o644), os.Mkdir(filepath.Join(l.dir, "dir"), 0o755), syscall.Mkfifo(filepath.Join(l.dir, "dir", "pipe"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"pipe", "dir"} {
		l.stage("a", "command", "true", func(d *schemas.StageDef) { d.Config["inputs"] = map[string]any{"i": in} })
		if s := l.record(l.mustRun(), "a@t001"); s.Status != schemas.StageFailed || !strings.Contains(s.Error, "regular file") {
			t.Errorf("%s: %+v", in, s)
		}
	}
}

func TestOutputsThatCannotBeArchivedFailTheStage(t *testing.T) {
	l := newLab(t)
	l.stage("a", "command", "true", nil)
	l.stage("b", "command", "cat ${stage.a.out}", nil)
	opts := l.options()
	opts.Kinds[0].Run = func(_ context.Context, task *pipeline.Task) error {
		dir, err := task.OutputDir("out")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "a\xffb"), nil, 0o644)
	}
	out, err := pipeline.Run(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if s := l.record(out, "a@t001"); s.Status != schemas.StageFailed || !strings.Contains(s.Error, "cannot be archived") || len(s.Outputs) != 0 {
		t.Errorf("%+v", s)
	}
	l.verify()
}

func TestAServiceThatDiesFailsTheStageThatUsesIt(t *testing.T) {
	l := newLab(t)
	l.exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: "trial", Config: map[string]any{"command": []any{"serve"}}}
	l.stage("use", "command", "true", func(d *schemas.StageDef) { d.Service = "engine" })
	opts := l.options()
	var gone atomic.Bool
	start := opts.StartService
	opts.StartService = func(ctx context.Context, launch pipeline.ServiceLaunch) (pipeline.Service, error) {
		s, err := start(ctx, launch)
		return &mortal{s, &gone}, err
	}
	run := opts.Kinds[0].Run
	opts.Kinds[0].Run = func(ctx context.Context, task *pipeline.Task) error { gone.Store(true); return run(ctx, task) }
	out, err := pipeline.Run(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if s := l.record(out, "use@t001"); s.Status != schemas.StageFailed || !strings.Contains(s.Error, "died while the stage used it") {
		t.Errorf("%+v", s)
	}
}

type mortal struct {
	pipeline.Service
	gone *atomic.Bool
}

func (m *mortal) View() pipeline.ServiceView {
	v := m.Service.View()
	v.Dead = func() string {
		if m.gone.Load() {
			return "signal 9"
		}
		return ""
	}
	return v
}

// TestManyTrialsPlan: planning grows with the number of trials, not with
// its square; 10,000 are allowed.
func TestManyTrialsPlan(t *testing.T) {
	l := newLab(t)
	l.exp.Trials.Repeat = 10000
	l.exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: "trial", Config: map[string]any{"command": []any{"serve"}}}
	l.stage("use", "command", "true", func(d *schemas.StageDef) { d.Service = "engine" })
	l.stage("sum", "command", "true", func(d *schemas.StageDef) { d.Scope = schemas.ScopeRun; d.Needs = []string{"use"} })
	plan, err := pipeline.NewPlan(l.exp, l.kinds())
	if err != nil || len(plan.Services) != 10000 || len(plan.Nodes) != 10001 {
		t.Errorf("%v, %d services, %d nodes", err, len(plan.Services), len(plan.Nodes))
	}
}

// A result whose key's preimage is lost or rotten is not reused: a run that names
// it would not verify.
func TestALostPreimageIsWrittenAnew(t *testing.T) {
	for name, damage := range map[string]func(string) error{
		"lost":      os.Remove,
		"truncated": func(p string) error { return os.Truncate(p, 10) },
	} {
		l := newLab(t)
		l.stage("a", "command", "echo one", nil)
		key := l.record(l.mustRun(), "a@t001").Key
		blob := filepath.Join(l.store.Dir(), "blobs", "sha256", key.Hex())
		if err := errors.Join(os.Chmod(blob, 0o600), damage(blob)); err != nil {
			t.Fatal(err)
		}
		if out := l.mustRun(); out.Reused != 0 {
			t.Errorf("%s: it was reused", name)
		}
		l.verify()
		if out := l.mustRun(); out.Reused != 1 {
			t.Errorf("%s: the result is not reused once it is whole again", name)
		}
	}
}
