package preflight

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"assay/internal/fingerprint"
	"assay/pipeline"
	"assay/schemas"
)

type stage struct {
	task     *pipeline.Task
	dir      string
	log      bytes.Buffer
	reported []schemas.Finding
}

// newStage makes a task whose references resolve as in a run: parameters from the
// experiment and the trial, machine values from a map.
func newStage(t *testing.T, exp schemas.Experiment, config map[string]any) *stage {
	t.Helper()
	fields, _ := schemas.FieldsOf("preflight")
	s := &stage{dir: t.TempDir()}
	abs := func(p string) string {
		if filepath.IsAbs(p) {
			return p
		}
		return filepath.Join(s.dir, p)
	}
	s.task = &pipeline.Task{Node: schemas.Node{ID: "check", Stage: "check"}, Config: schemas.ApplyDefaults(fields, config), Dir: t.TempDir(), StoreDir: s.dir, Log: &s.log,
		Experiment: exp, Trials: []schemas.Trial{{ID: "t001"}}, Abs: abs, Report: func(f schemas.Finding) { s.reported = append(s.reported, f) },
		Resolve: func(text string, trial schemas.Trial) (string, error) {
			out, err := schemas.Substitute([]any{text}, func(ref schemas.Reference) (any, error) {
				switch ref.Namespace {
				case schemas.RefParam:
					v := exp.Params[ref.Names[0]]
					if p, ok := trial.Point[ref.Names[0]]; ok {
						return p, nil
					}
					if m, ok := v.(map[string]any); ok {
						return abs(m["path"].(string)), nil
					}
					return v, nil
				case schemas.RefStage:
					return nil, pipeline.ErrNotYet
				}
				return nil, fmt.Errorf("the machine file has no value %q", ref.Names[0])
			})
			if err != nil {
				return "", err
			}
			return out.([]any)[0].(string), nil
		}}
	return s
}

func (s *stage) file(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(s.dir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// weights makes a checkpoint that is whole.
func (s *stage) weights(t *testing.T) {
	t.Helper()
	header := `{"model.embed_tokens.weight":{"dtype":"BF16","shape":[4,2],"data_offsets":[0,16]}}`
	s.file(t, "weights/model.safetensors", string(binary.LittleEndian.AppendUint64(nil, uint64(len(header))))+header+strings.Repeat("w", 16))
	s.file(t, "weights/config.json", `{"architectures": ["A"], "model_type": "a", "max_position_embeddings": 64, "vocab_size": 4, "eos_token_id": 3}`)
	s.file(t, "weights/tokenizer.json", "{}")
	s.file(t, "weights/tokenizer_config.json", `{"chat_template": "x"}`)
	s.file(t, "weights/generation_config.json", "{}")
}

func (s *stage) output(t *testing.T) []schemas.Finding {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.task.Dir, "outputs", Output, FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := schemas.Validate("findings", b); err != nil {
		t.Fatal(err)
	}
	var doc schemas.Findings
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	inCatalog(t, doc.Findings)
	return doc.Findings
}

// verdicts are the findings as "subject: id", by severity.
func verdicts(list []schemas.Finding, severity schemas.Severity) []string {
	var out []string
	for _, f := range list {
		if f.Severity == severity {
			out = append(out, f.Subject+": "+f.ID)
		}
	}
	return out
}

func has(list []string, want string) bool {
	for _, s := range list {
		if s == want {
			return true
		}
	}
	return false
}

const good = "Request Time,Model Name,Input Length,Output Length\n00:00:00.000,a,1,1\n00:00:01.000,b,1,1\n"

func experiment() schemas.Experiment {
	return schemas.Experiment{
		Params: map[string]any{"workload": map[string]any{"path": "w.csv"}, "rate": 1.0},
		Model:  map[string]schemas.Model{"q": {Name: "q", Checkpoint: "weights"}},
		Service: map[string]schemas.Service{
			"engine": {Engine: "emulated", Config: map[string]any{"models": []any{map[string]any{"name": "m", "count": 2.0}}}},
			"real":   {Engine: "openai", Config: map[string]any{"command": []any{"sh", "-c", "true"}, "cwd": "weights"}},
		},
		Stage: map[string]schemas.StageDef{
			"check":  {Kind: "preflight"},
			"build":  {Kind: "command", Config: map[string]any{"argv": []any{"true"}, "tools": []any{"sh"}, "inputs": map[string]any{"w": "weights", "made": "${stage.gen.workload}"}}},
			"gen":    {Kind: "workload", Config: map[string]any{}},
			"replay": {Kind: "measure", Service: "engine", Config: map[string]any{"workload": "${param.workload}"}},
			"later":  {Kind: "measure", Service: "engine", Config: map[string]any{"workload": "${stage.gen.workload}"}},
		},
	}
}

func TestEverythingInPlacePasses(t *testing.T) {
	s := newStage(t, experiment(), map[string]any{"paths": map[string]any{"weights": "set below"}, "disk": "1B"})
	s.file(t, "w.csv", good)
	s.weights(t)
	s.task.Config["paths"] = map[string]any{"weights": filepath.Join(s.dir, "weights")}
	s.task.Config["workload"] = filepath.Join(s.dir, "w.csv")
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	list := s.output(t)
	if len(list) != len(s.reported) {
		t.Errorf("%d findings published, %d reported", len(list), len(s.reported))
	}
	passes := verdicts(list, schemas.SeverityPass)
	for _, want := range []string{
		"path weights: path.readable", "workload: path.readable", "workload: workload.form", "store: disk.room", "param workload: path.readable",
		"model q: checkpoint: path.readable", "model q: checkpoint: checkpoint.whole", "service real: program: program.found", "service real: cwd: path.readable", "stage build: program: program.found",
		"stage build: tool sh: program.found", "stage build: inputs w: path.readable", "stage replay: workload: workload.form",
	} {
		if !has(passes, want) {
			t.Errorf("no pass %q in %q", want, passes)
		}
	}
	deferred := verdicts(list, schemas.SeverityDeferred)
	if len(deferred) != 2 || !has(deferred, "stage later: workload: reference.deferred") || !has(deferred, "stage build: inputs made: reference.deferred") {
		t.Errorf("deferred: %q", deferred)
	}
}

func TestEveryFaultIsFoundBeforeItRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	exp := experiment()
	exp.Service["real"] = schemas.Service{Engine: "openai", Config: map[string]any{"command": []any{"no-such-server"}, "port": float64(port), "cwd": "${machine.place}"}}
	exp.Stage["build"] = schemas.StageDef{Kind: "command", Config: map[string]any{"argv": []any{"no-such-program"}}}
	s := newStage(t, exp, map[string]any{"ports": []any{float64(port), "99999"}, "disk": "4000000TB"})
	s.file(t, "w.csv", good+"nonsense\n")
	err = run(context.Background(), s.task)
	var refused *pipeline.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v, want a refusal", err)
	}
	if len(refused.Findings) != len(s.reported) {
		t.Errorf("the refusal has %d findings, %d were reported", len(refused.Findings), len(s.reported))
	}
	errs := verdicts(s.output(t), schemas.SeverityError)
	for _, want := range []string{
		fmt.Sprintf("port %d: port.taken", port), "port 99999: port.invalid", "store: disk.room", "model q: checkpoint: path.missing",
		"service real: program: program.missing", "service real: port: port.taken", "service real: cwd: reference.unresolved",
		"stage build: program: program.missing", "stage replay: workload: workload.form",
	} {
		if !has(errs, want) {
			t.Errorf("no error %q in %q", want, errs)
		}
	}
	s.task.Config["workload"] = filepath.Join(s.dir, "w.csv")
	if err := run(context.Background(), s.task); err == nil {
		t.Fatal("passed")
	}
	bad := 0
	for _, f := range s.output(t) {
		if f.ID == "workload.form" && f.Severity == schemas.SeverityError {
			bad++
		}
	}
	if bad != 1 {
		t.Errorf("one bad line is named %d times", bad)
	}
}

func TestTooManyModelsForTheService(t *testing.T) {
	exp := experiment()
	exp.Service["engine"] = schemas.Service{Engine: "emulated", Config: map[string]any{"models": []any{map[string]any{"name": "m"}}}}
	s := newStage(t, exp, map[string]any{"disk": "1B"})
	s.file(t, "w.csv", good)
	s.weights(t)
	if err := run(context.Background(), s.task); err == nil {
		t.Fatal("two models fit into one")
	}
	if errs := verdicts(s.output(t), schemas.SeverityError); len(errs) != 1 || errs[0] != "stage replay: workload: workload.models" {
		t.Errorf("errors: %q", errs)
	}
}

func TestEveryPointOfTheMatrixIsLookedAtOnce(t *testing.T) {
	s := newStage(t, experiment(), map[string]any{"disk": "1B"})
	s.file(t, "w.csv", good)
	s.weights(t)
	for i, p := range []string{"w.csv", "other.csv", "w.csv", "other.csv"} {
		s.task.Trials = append(s.task.Trials, schemas.Trial{ID: fmt.Sprintf("t%03d", i+2), Point: map[string]any{"workload": p}})
	}
	if err := run(context.Background(), s.task); err == nil {
		t.Fatal("a workload of the matrix is missing")
	}
	var missing []string
	for _, f := range s.output(t) {
		if f.ID == "path.missing" {
			missing = append(missing, f.Subject+" "+strings.TrimPrefix(f.File, s.dir+"/"))
		}
	}
	if fmt.Sprint(missing) != "[param workload other.csv stage replay: workload other.csv]" {
		t.Errorf("missing: %q", missing)
	}
}

func TestAServiceIsLookedForInItsOwnPath(t *testing.T) {
	exp := experiment()
	exp.Service["real"] = schemas.Service{Engine: "openai", Config: map[string]any{"command": []any{"own-server"}}}
	s := newStage(t, exp, map[string]any{"disk": "1B"})
	s.file(t, "w.csv", good)
	s.weights(t)
	s.file(t, "bin/own-server", "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(s.dir, "bin/own-server"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), s.task); err == nil {
		t.Fatal("own-server is in no PATH")
	}
	s.task.ServiceEnv = map[string]map[string]string{"real": {"PATH": filepath.Join(s.dir, "bin")}}
	if err := run(context.Background(), s.task); err != nil {
		t.Errorf("with the machine file's PATH: %v", err)
	}
}

func TestHeadersOfGGUFCheckpointsAreRead(t *testing.T) {
	for _, checkpoint := range []string{"weights", "weights/m.gguf"} {
		exp := experiment()
		exp.Model = map[string]schemas.Model{"q": {Name: "q", Checkpoint: checkpoint}}
		s := newStage(t, exp, map[string]any{"disk": "1B"})
		s.file(t, "w.csv", good)
		s.file(t, "weights/m.gguf", "version https://git-lfs.github.com/spec/v1\n")
		var refused *pipeline.RefusedError
		if err := run(context.Background(), s.task); !errors.As(err, &refused) {
			t.Fatalf("%s: error %v", checkpoint, err)
		}
		if got := verdicts(s.output(t), schemas.SeverityError); len(got) != 1 || got[0] != "model q: checkpoint m.gguf: gguf.magic" {
			t.Errorf("%s: refused for %v", checkpoint, got)
		}
	}
}

func TestCheckpointFoldersAreRead(t *testing.T) {
	for file, want := range map[string]string{
		"weights/config.json": "checkpoint.empty-file", "weights/tokenizer.json": "checkpoint.empty-file", "weights/model-00002-of-00002.safetensors.incomplete": "checkpoint.incomplete",
	} {
		s := newStage(t, experiment(), map[string]any{"disk": "1B"})
		s.file(t, "w.csv", good)
		s.weights(t)
		s.file(t, file, "")
		if err := run(context.Background(), s.task); err == nil {
			t.Errorf("%s: nothing is refused", file)
		}
		if got := verdicts(s.output(t), schemas.SeverityError); len(got) != 1 || got[0] != "model q: checkpoint: "+want {
			t.Errorf("%s: refused for %v, want %s", file, got, want)
		}
	}
	s := newStage(t, experiment(), map[string]any{"disk": "1B"})
	s.weights(t)
	if got, _ := weights(context.Background(), "m", filepath.Join(s.dir, "weights/model.safetensors")); len(got) != 1 || got[0].ID != "checkpoint.whole" {
		t.Errorf("a file alone: %+v", got)
	}
	if got, _ := weights(context.Background(), "m", filepath.Join(s.dir, "weights/config.json")); len(got) != 0 {
		t.Errorf("a file of another form: %+v", got)
	}
}

func TestAPinnedFingerprintIsCompared(t *testing.T) {
	for _, level := range []string{"", schemas.FingerprintHeader, schemas.FingerprintFull} {
		s := newStage(t, experiment(), map[string]any{"disk": "1B"})
		s.file(t, "w.csv", good)
		s.weights(t)
		m := schemas.Model{Name: "q", Checkpoint: "weights", FingerprintLevel: level}
		right, err := fingerprint.Of(context.Background(), filepath.Join(s.dir, "weights"), m.Level(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.task.Fingerprint = func(ctx context.Context, path, level string) (schemas.Digest, error) {
			return fingerprint.Of(ctx, path, level, nil)
		}
		for pin, refused := range map[schemas.Digest]bool{right: false, schemas.DigestOf(nil): true} {
			m.Fingerprint = pin
			s.task.Experiment.Model = map[string]schemas.Model{"q": m}
			if err := run(context.Background(), s.task); (err != nil) != refused {
				t.Errorf("level %q, pin %s: %v", level, pin, err)
			}
			severity := schemas.SeverityPass
			if refused {
				severity = schemas.SeverityError
			}
			list := s.output(t)
			i := slices.IndexFunc(list, func(f schemas.Finding) bool { return f.ID == "checkpoint.fingerprint" })
			if i < 0 || list[i].Severity != severity || !strings.Contains(list[i].Message, "level "+m.Level()) {
				t.Errorf("level %q, pin %s: %v", level, pin, list)
			}
		}
	}
}

func TestModelsOfAegaeonsConfiguration(t *testing.T) {
	const yaml = "server: {cpu_num_slabs: 1, cpu_slab_size_bytes: 1, model_cache_size_gb: 0.001, worker_num_cpus: 1}\nmodels:\n- {name: q, path: /nowhere, params: %s}\n- {name: other, path: %s}\n"
	for _, c := range []struct {
		engine, params, other string
		want                  []string // errors
	}{
		{"aegaeon", "7.450580596923828e-09", "weights", nil}, // 8 parameters / 2^30
		{"aegaeon", "8", "weights", []string{"service real: model q: checkpoint.params"}},
		{"aegaeon", "null", "none", []string{"service real: model other: path.missing"}},
		{"emulated", "8", "none", []string{"service real: model q: checkpoint.params"}}, // it reads no weights
	} {
		exp := experiment()
		config := map[string]any{"aegaeon_config": "a.yaml"}
		if c.engine == "aegaeon" {
			config["command"] = []any{"sh"}
		}
		exp.Service["real"] = schemas.Service{Engine: c.engine, Config: config}
		s := newStage(t, exp, map[string]any{"disk": "1B"})
		s.file(t, "w.csv", good)
		s.weights(t)
		s.file(t, "a.yaml", fmt.Sprintf(yaml, c.params, filepath.Join(s.dir, c.other)))
		_ = run(context.Background(), s.task) // what it refuses stands in the output
		list := s.output(t)
		if got := verdicts(list, schemas.SeverityError); !slices.Equal(got, c.want) {
			t.Errorf("%+v: errors %v", c, got)
		}
		if passes := verdicts(list, schemas.SeverityPass); c.want == nil && (!has(passes, "service real: model q: checkpoint.params") || !has(passes, "service real: model other: checkpoint.whole")) {
			t.Errorf("%+v: passes %v", c, passes)
		}
	}
}

// TestCheckpointsOfTheMachineFile stand in place of those that a configuration names,
// and are looked at.
func TestCheckpointsOfTheMachineFile(t *testing.T) {
	const yaml = "server: {cpu_num_slabs: 1, cpu_slab_size_bytes: 1, model_cache_size_gb: 0.001, worker_num_cpus: 1}\nmodels:\n- {name: org/q, path: /nowhere}\n"
	for place, want := range map[string]string{"weights": "", "none": "service real: model org/q: path.missing"} {
		exp := experiment()
		exp.Service["real"] = schemas.Service{Engine: "aegaeon", Config: map[string]any{"aegaeon_config": "a.yaml", "command": []any{"sh"}}}
		s := newStage(t, exp, map[string]any{"disk": "1B"})
		s.file(t, "w.csv", good)
		s.weights(t)
		s.file(t, "a.yaml", yaml)
		s.task.Checkpoints = map[string]string{"org/q": filepath.Join(s.dir, place)}
		_ = run(context.Background(), s.task) // what it refuses stands in the output
		list := s.output(t)
		if got := verdicts(list, schemas.SeverityError); want == "" && has(got, "service real: model org/q: path.missing") || want != "" && !has(got, want) {
			t.Errorf("%s: errors %v", place, got)
		}
		if passes := verdicts(list, schemas.SeverityPass); want == "" && !has(passes, "service real: model org/q: checkpoint.whole") {
			t.Errorf("%s: passes %v", place, passes)
		}
	}
}
