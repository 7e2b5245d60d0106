package experiments

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const machineText = `schema = "assay/machine/v1"
[values]
models = "/models"
gpu = "0"
[secrets]
k = "env:ASSAY_TEST_SECRET"
f = "file:key.txt"
[service.e.env]
TOKEN = "Bearer ${secret.k}"
`

func machineDir(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, MachineFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMachineFile(t *testing.T) {
	dir := machineDir(t, machineText)
	if err := os.WriteFile(filepath.Join(dir, "key.txt"), []byte("from a file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Parse("t.toml", []byte(full), Options{MachineDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	m := l.Machine
	if d := cmp.Diff(map[string]string{"models": "/models", "gpu": "0"}, m.Values); d != "" {
		t.Error(d)
	}
	if m.Env["e"]["TOKEN"] != "Bearer ${secret.k}" {
		t.Errorf("env %v", m.Env)
	}
	if _, err := m.Secret("k"); err == nil || !strings.Contains(err.Error(), "ASSAY_TEST_SECRET is not set") {
		t.Errorf("an unset variable: %v", err)
	}
	t.Setenv("ASSAY_TEST_SECRET", "hunter2")
	s, err := m.Secret("k")
	if err != nil || s.Reveal() != "hunter2" {
		t.Fatalf("secret %q, %v", s.Reveal(), err)
	}
	b, err := json.Marshal(map[string]any{"s": s})
	printed := fmt.Sprintf("%v %+v %#v %s %q %s", s, s, s, s, s, b)
	if err != nil || strings.Contains(printed, "hunter2") {
		t.Errorf("a secret was printed: %s, %v", printed, err)
	}
	if s, err := m.Secret("f"); err != nil || s.Reveal() != "from a file" {
		t.Errorf("from a file: %q, %v", s.Reveal(), err)
	}
	if _, err := m.Secret("z"); err == nil {
		t.Error("an unknown secret was found")
	}
}

func TestMachineFileFaults(t *testing.T) {
	schema := "schema = \"assay/machine/v1\"\n"
	for text, want := range map[string]string{
		"":                                    "1:1: missing key \"schema\": format of this file",
		schema + "[value]\n":                  `2:2: unknown key "value" (did you mean "values"?)`,
		schema + "[secrets]\nk = \"hunter2\"": `3:5: secrets: k: want "env:VARIABLE" or "file:PATH", not the secret itself`,
		schema + "[service.e]\nenv = { A = \"${secret.k}\" }": `3:13: env: there is no secret "k" in [secrets]`,
		schema + "[service.e]\nenv = { A = \"${param.k}\" }":  `3:13: env: ${param.k}: the machine file refers to secrets only`,
		schema + "[values]\na = \"${secret.k}\"":              `3:5: no ${...} is expanded here`,
		schema + "[values]\na = 1":                            `3:5: values: want a string, got a number`,
	} {
		file := filepath.Join(machineDir(t, text), MachineFile)
		_, err := LoadMachine(file)
		if err == nil || err.Error() != file+":"+want {
			t.Errorf("%q:\n got %v\nwant FILE:%s", text, err, want)
		}
	}
}

func TestMachineNamesAreChecked(t *testing.T) {
	dir := machineDir(t, "schema = \"assay/machine/v1\"\n[values]\nmodel = \"/m\"\n")
	_, err := Parse("t.toml", []byte(full), Options{MachineDir: dir})
	file := filepath.Join(dir, MachineFile)
	want := `t.toml:16:14: checkpoint: there is no machine value "models" in [values] of ` + file + ` (did you mean "model"?)
t.toml:19:12: devices: there is no machine value "gpu" in [values] of ` + file + `
t.toml:37:13: env: there is no secret "k" in [secrets] of ` + file
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, err := Parse("t.toml", []byte(full), Options{Machine: "missing.toml", Cwd: dir}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a named machine file that is missing: %v", err)
	}
}

func TestMachineValuesInPathParameters(t *testing.T) {
	text := strings.Replace(full, `"in.csv"`, `"${machine.models}/in.csv"`, 1)
	l, err := Parse("t.toml", []byte(text), Options{MachineDir: machineDir(t, machineText)})
	if err != nil || l.ParamPaths["data"] != "/models/in.csv" {
		t.Errorf("%v %v", l, err)
	}
	l, err = Parse("t.toml", []byte(text), Options{Machine: "none"})
	if err != nil || len(l.ParamPaths) != 0 {
		t.Errorf("without a machine file: %v", err)
	}
}

const served = `schema = "assay/experiment/v1"
name = "n"
[service.s]
engine = "emulated"
aegaeon_config = "c.yaml"
graph_mode = "off"
devices = ["gpu"]
time_scale = 2.0
[stage.a]
kind = "warmup"
service = "s"
`

func TestMachineSaysWhatServes(t *testing.T) {
	dir := machineDir(t, `schema = "assay/machine/v1"
[values]
aegaeon = "/opt/aegaeon/bin/aegaeon"
[[checkpoint]]
model = "Qwen/Qwen3-4B"
path = "/srv/models/Qwen3-4B"
[facts]
driver = "535.247.01"
[service.s]
engine = "aegaeon"
command = ["${machine.aegaeon}", "start", "--config", "{config}", "--port", "{port}"]
ready_log = "Application startup complete"
[service.s.env]
AEGAEON_TTFT_SLO = "10"
[service.elsewhere]
engine = "openai"
url = "http://127.0.0.1:1"
`)
	l, err := Parse("t.toml", []byte(served), Options{MachineDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s := l.Experiment.Service["s"]
	if s.Engine != "aegaeon" || len(s.Devices) != 1 || s.Config["graph_mode"] != "off" || s.Config["time_scale"] != nil || s.Config["ready_log"] == nil || len(s.Config["command"].([]any)) != 6 {
		t.Errorf("%+v", s)
	}
	if l.Machine.Checkpoints["Qwen/Qwen3-4B"] == "" || l.Machine.Facts["driver"] == "" || l.Machine.Env["s"]["AEGAEON_TTFT_SLO"] != "10" {
		t.Errorf("%+v", l.Machine)
	}
	// What is archived says what served, and is read as it is.
	b, err := json.Marshal(l.Experiment)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseJSON("e.json", b, Options{MachineDir: machineDir(t, "schema = \"assay/machine/v1\"\n[values]\naegaeon = \"/a\"\n[service.s]\nengine = \"openai\"\nurl = \"http://127.0.0.1:1\"\n")})
	if err != nil || again.Experiment.Service["s"].Engine != "aegaeon" {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestMachineServicesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"command = [\"x\"]": "say engine too",
		"[[checkpoint]]\nmodel = \"m\"\npath = \"models/m\"":                                         "is not absolute",
		"[[checkpoint]]\nmodel = \"m\"\npath = \"/m\"\n[[checkpoint]]\nmodel = \"m\"\npath = \"/m\"": "is there twice",
		"engine = \"aegeon\"":                       `unknown engine "aegeon"`,
		"engine = \"emulated\"\nurl = \"http://x\"": "engine emulated has no such key",
	} {
		_, err := Parse("t.toml", []byte(served), Options{MachineDir: machineDir(t, "schema = \"assay/machine/v1\"\n[service.s]\n"+text+"\n")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDocumentedMachineFile takes the machine file of docs/aegaeon.md, with the tables
// that it leaves out as alike, for both experiments.
func TestDocumentedMachineFile(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	page, err := os.ReadFile("../docs/aegaeon.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```toml\n")
	text, _, whole := strings.Cut(text, "```")
	at := strings.Index(text, "[service.off]")
	if !whole || at < 0 {
		t.Fatal("the page has no machine file")
	}
	for _, name := range []string{"save", "load", "engine"} {
		text += strings.ReplaceAll(text[at:strings.Index(text, "# [service.save]")], "service.off", "service."+name)
	}
	dir := machineDir(t, text)
	for file, services := range map[string][]string{"aegaeon/foundry-save": {"off", "save", "load"}, "aegaeon/three-model-foundry": {"engine"}} {
		l, err := Load(file, Options{MachineDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range services {
			if s := l.Experiment.Service[name]; s.Engine != "aegaeon" || s.Config["aegaeon_config"] == nil || l.Machine.Env[name]["AEGAEON_TTFT_SLO"] == "" {
				t.Errorf("%s: %s: %+v", file, name, s)
			}
		}
		if len(l.Machine.Facts) != 10 || len(l.Machine.Checkpoints) != 3 {
			t.Errorf("%+v", l.Machine)
		}
	}
}
