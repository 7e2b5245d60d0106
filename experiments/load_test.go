package experiments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/schemas"
)

// head is a valid beginning of nine lines; tests put their own lines after it.
const head = `schema = "assay/experiment/v1"
name = "t"
[params]
rate = 2.0
who = "a"
data = { path = "in.csv" }
[service.e]
engine = "openai"
url = "http://127.0.0.1:1"
`

func load(t *testing.T, text string, sets ...string) (*Loaded, error) {
	t.Helper()
	return Parse("t.toml", []byte(text), Options{Machine: "none", Cwd: "/cwd", Dir: "/dir", Sets: sets})
}

func TestFaultsNameTheirPlace(t *testing.T) {
	run := "[stage.s]\nkind = \"command\"\nargv = [\"true\"]\n"
	measure := "[stage.m]\nkind = \"measure\"\nservice = \"e\"\nworkload = \"w.csv\"\n"
	tests := []struct{ name, text, want string }{
		{"unknown key", head + run + "outptus = {}", `t.toml:13:1: unknown key "outptus" (did you mean "outputs"?)`},
		{"unknown key of a claim", head + run + "[[claim]]\nname = \"a\"\nmetric = \"s.x\"\nexpect = 1\ntolerance = 0\n[[claim]]\nname = \"b\"\nmetric = \"s.x\"\nexpect = 1\ntolerence = 0\n",
			"t.toml:18:3: missing key \"tolerance\": largest accepted absolute difference\n" +
				`t.toml:22:1: unknown key "tolerence" (did you mean "tolerance"?)`},
		{"unknown top key", head + run + "[machin]\n", `t.toml:13:2: unknown key "machin"`},
		{"unknown key in an inline table", head + measure + `slo = { ttft = "1s", tpto = "1s" }`, `t.toml:14:22: unknown key "tpto" (did you mean "tpot"?)`},
		{"dotted key", head + measure + `slo.tpto = "1s"`, `t.toml:14:5: unknown key "tpto" (did you mean "tpot"?)`},
		{"wrong type", head + run + "reuse = \"yes\"", `t.toml:13:9: reuse: want true or false, got a string`},
		{"characters, not bytes", head + run + `env = { "É" = "é", X = 1 }`,
			"t.toml:13:9: invalid name \"É\": want an environment variable: letters, digits and '_'\n" +
				`t.toml:13:24: env: want a string, got a number`},
		{"bare duration", head + run + "timeout = 10", `t.toml:13:11: timeout: 10 has no unit: write a duration like "10s" or "100ms"`},
		{"duration text without unit", head + run + `timeout = "10"`, `t.toml:13:11: timeout: duration "10" has no unit: write it like "10s", "100ms" or "1m30s"`},
		{"bare size", head + "[stage.c]\nkind = \"preflight\"\ndisk = 3", `t.toml:12:8: disk: 3 has no unit: write a size like "64MiB" or "4GB"`},
		{"missing keys", "name = \"x\"\n[stage.a]\nkind = \"command\"\n",
			"t.toml:1:1: missing key \"schema\": format of this file\n" +
				`t.toml:2:8: missing key "argv": program and arguments; no shell`},
		{"missing kind", head + "[stage.a]\nneeds = []\n", `t.toml:10:8: missing key "kind": sort of work`},
		{"unknown schema", strings.Replace(head, "v1", "v2", 1) + run, `t.toml:1:10: schema: "assay/experiment/v2" is not one of assay/experiment/v1 (did you mean "assay/experiment/v1"?)`},
		{"unknown kind", head + "[stage.a]\nkind = \"mesure\"\n", `t.toml:11:8: unknown kind "mesure": there are preflight, workload, command, warmup, load, graphs, validate, adopt, measure, simulate, sweep, compare, report (did you mean "measure"?)`},
		{"unknown engine", head + run + "[service.f]\nengine = \"opena\"\n", `t.toml:14:10: unknown engine "opena": there are emulated, openai, aegaeon, pypto (did you mean "openai"?)`},
		{"enum", head + run + "[trials]\norder = \"randm\"", `t.toml:14:9: order: "randm" is not one of sequential, interleaved, abba, random (did you mean "random"?)`},
		{"limits", head + run + "[trials]\nrepeat = 0", `t.toml:14:10: repeat: 0 is less than 1`},
		{"whole number", head + run + "[trials]\nrepeat = 1.5", `t.toml:14:10: repeat: want a whole number, got 1.5`},
		{"dangling need", head + run + "needs = [\"x\", \"t\"]\n[stage.tt]\nkind = \"report\"", "t.toml:13:10: there is no stage \"x\"\n" + `t.toml:13:15: there is no stage "t"`},
		{"dangling service", head + "[stage.m]\nkind = \"measure\"\nservice = \"engin\"\nworkload = \"w\"\n", `t.toml:12:11: there is no service "engin"`},
		{"service needed", head + "[stage.m]\nkind = \"measure\"\nworkload = \"w\"\n", `t.toml:10:8: stage m: a measure stage needs a service: add service = "NAME"`},
		{"service not taken", head + "[stage.m]\nkind = \"report\"\nservice = \"e\"\n", `t.toml:12:1: a report stage uses no service`},
		{"command or url", head + run + "[service.f]\nengine = \"openai\"\n[service.g]\nengine = \"openai\"\nurl = \"http://h\"\ncommand = [\"x\"]\n",
			"t.toml:13:10: service f: engine openai needs command or url\n" + `t.toml:17:1: service g: command and url exclude each other`},
		{"cycle", head + "[stage.a]\nkind = \"report\"\nneeds = [\"b\"]\n[stage.b]\nkind = \"report\"\nneeds = [\"a\"]\n", `t.toml:12:1: a waits for itself: a -> b -> a`},
		{"cycle through a reference", head + run + "outputs = { o = \"o\" }\nneeds = [\"u\"]\n[stage.u]\nkind = \"command\"\nargv = [\"cat\", \"${stage.s.o}\"]",
			`t.toml:14:1: s waits for itself: s -> u -> s`},
		{"cycle through a service", head + "[service.f]\nengine = \"openai\"\ncommand = [\"${stage.s.o}\"]\n[stage.s]\nkind = \"command\"\nargv = [\"x\"]\noutputs = { o = \"o\" }\nservice = \"f\"\n",
			`t.toml:13:8: s waits for itself: s -> service f -> s`},
		{"cycle of services", head + run + "[service.f]\nengine = \"openai\"\nurl = \"${service.g.url}\"\n[service.g]\nengine = \"openai\"\nurl = \"http://h\"\nneeds = [\"f\"]\n",
			`t.toml:13:10: service f waits for itself: service f -> service g -> service f`},
		{"bad names", "schema = \"assay/experiment/v1\"\nname = \"T\"\n[stage.\"a b\"]\nkind = \"report\"\n[params]\nX = 1",
			"t.toml:2:8: name: invalid name \"T\": want lower-case letters, digits, '-', '_' and '/'\n" +
				"t.toml:3:8: stage: invalid name \"a b\": want up to 63 lower-case letters, digits, '-' and '_', beginning with a letter or digit\n" +
				"t.toml:6:1: invalid name \"X\": want up to 63 lower-case letters, digits, '-' and '_', beginning with a letter or digit"},
		{"duplicate key", head + run + "argv = [\"x\"]", `t.toml:13:1: key 'stage.s.argv' has already been defined, at 12:1`},
		{"duplicate table", head + run + "[stage.s]\n", `t.toml:13:2: key 'stage.s' has already been defined`},
		{"syntax", head + "[stage.s\n", `t.toml:11:1: expected '.' or ']' to end table name, but got '\n' instead`},
		{"not UTF-8", head + "\ufffd = \"é\xff\"", `t.toml:10:7: the file is not UTF-8`},
		{"date", head + run + "env = { D = 2020-01-01 }", `t.toml:13:13: dates and times are not used here: write a string`},
		{"nan", head + run + "[trials]\nseed = nan", `t.toml:14:8: NaN is not a number that can be used`},
		{"huge integer", head + run + "[trials]\nseed = 9007199254740993", `t.toml:14:8: 9007199254740993 is beyond the largest whole number a document can carry exactly, 9007199254740991`},
		{"matrix of nothing declared", head + run + "[matrix]\nrat = [1]", `t.toml:14:1: matrix: "rat" is not a declared parameter (did you mean "rate"?)`},
		{"matrix value type", head + run + "[matrix]\nrate = [1, \"x\", 1]", "t.toml:14:12: matrix: rate is a number parameter, got a string\n" + `t.toml:14:17: matrix: rate has this value twice`},
		{"empty matrix", head + run + "[matrix]\nrate = []", `t.toml:14:8: matrix: rate has no value, so there would be no trial`},
		{"matrix value in a field", head + measure + "speed = \"${param.rate}\"\n[matrix]\nrate = [1, 0]", `t.toml:14:9: speed: 0 is less than 0.000001 (${param.rate} has its matrix value 0)`},
		{"parameter of the wrong type", head + measure + "speed = \"${param.who}\"", `t.toml:14:9: speed: want a number, got a string (${param.who} has its value "a")`},
		{"parameter in a duration", head + measure + "slo = { ttft = \"${param.rate}x\" }", `t.toml:14:16: ttft: duration "2x": want a number with a unit, like "10s", "100ms" or "1m30s" (${param.rate} has its value 2)`},
		{"parameter in an enum", head + measure + "api = \"${param.who}\"", `t.toml:14:7: api: "a" is not one of completions, chat (${param.who} has its value "a")`},
		{"unknown parameter", head + measure + "speed = \"${param.rat}\"", `t.toml:14:9: speed: there is no parameter "rat" (did you mean "rate"?)`},
		{"path parameter elsewhere", head + measure + "models = [\"${param.data}\"]", `t.toml:14:11: models: ${param.data} is a path: it may stand only in a path, argument or environment variable`},
		{"unknown namespace", head + run + "env = { A = \"${parm.rate}\" }", `t.toml:13:13: ${parm.rate}: unknown reference; ${...} takes param, stage, source, service, machine, secret; write $${ for a literal ${ (did you mean "param"?)`},
		{"no namespace", head + run + "env = { A = \"${HOME}\" }", `t.toml:13:13: ${HOME}: unknown reference; ${...} takes param, stage, source, service, machine, secret; write $${ for a literal ${`},
		{"open brace", head + run + "env = { A = \"x${param.rate\" }", `t.toml:13:13: ${param.rate: has no closing brace; write $${ for a literal ${`},
		{"form", head + run + "env = { A = \"${stage.s}\" }", `t.toml:13:13: ${stage.s}: want ${stage.NAME.OUTPUT}`},
		{"service form", head + run + "env = { A = \"${service.e.port}\" }", `t.toml:13:13: ${service.e.port}: want ${service.NAME.url}`},
		{"machine elsewhere", head + run + "env = { A = \"${machine.x}\" }", `t.toml:13:13: env: ${machine.x} may stand only in a path, URL, port or device`},
		{"secret elsewhere", head + run + "inputs = { a = \"${secret.x}\" }", `t.toml:13:16: inputs: ${secret.x} may stand only in an environment variable`},
		{"stage elsewhere", head + measure + "models = [\"${stage.m.requests}\"]", `t.toml:14:11: models: ${stage.m.requests} may stand only in a path, argument or environment variable of a stage or service`},
		{"source elsewhere", head + measure + "models = [\"${source.x}\"]", `t.toml:14:11: models: ${source.x} may stand only in a path, argument or environment variable`},
		{"service elsewhere", head + measure + "models = [\"${service.e.url}\"]", `t.toml:14:11: models: ${service.e.url} may stand only in a URL, argument or environment variable`},
		{"unknown output", head + measure + "[stage.s]\nkind = \"command\"\nargv = [\"${stage.m.request}\"]", `t.toml:16:9: argv: stage m publishes no output "request"; its outputs: schedule, requests, result, observed (did you mean "requests"?)`},
		{"unknown stage", head + run + "env = { A = \"${stage.z.o}\" }", `t.toml:13:13: env: there is no stage "z"`},
		{"service not used", head + run + "env = { U = \"${service.e.url}\" }", `t.toml:13:13: env: stage s does not use service e: add service = "e"`},
		{"expanded nowhere", head + run + "[[claim]]\nname = \"${param.who}\"\nmetric = \"s.x\"\nexpect = 1\ntolerance = 0", `t.toml:14:8: no ${...} is expanded here`},
		{"claim of no stage", head + measure + "[[claim]]\nname = \"a\"\nmetric = \"n.qos.mean\"\nexpect = 1\ntolerance = 0", `t.toml:16:10: there is no stage "n"`},
		{"misspelt kind", head + "[stage.m]\nknid = \"measure\"\n", "t.toml:10:8: missing key \"kind\": sort of work\nt.toml:11:1: unknown key \"knid\" (did you mean \"kind\"?)"},
		{"too many trials", head + run + "[trials]\nrepeat = 5000\n[matrix]\nrate = [1, 2, 3]\n", `t.toml:16:8: the matrix and the repetitions make 15000 trials, more than 10000: cross fewer values, or split the experiment`},
		{"claim of an unknown metric", head + measure + "[[claim]]\nname = \"a\"\nmetric = \"m.ttft_ms.p59\"\nexpect = 1\ntolerance = 0", `t.toml:16:10: metric: unknown metric "ttft_ms.p59": did you mean "ttft_ms.p50"?`},
		{"claim of no metric", head + measure + "[[claim]]\nname = \"a\"\nmetric = \"m\"\nexpect = 1\ntolerance = 0", `t.toml:16:10: metric: want STAGE.METRIC.STATISTIC, like replay.qos.mean, got "m"`},
		{"varies for a run stage", head + run + "scope = \"run\"\nenv = { A = \"${param.rate}\" }\n[matrix]\nrate = [1, 2]", `t.toml:14:13: env: ${param.rate} varies over the matrix, but stage s runs once for all trials`},
		{"output outside", head + run + "outputs = { o = \"../o\" }", `t.toml:13:17: outputs: "../o" is not a path below the stage's private folder`},
		{"need twice", head + run + "[stage.u]\nkind = \"report\"\nneeds = [\"s\", \"s\"]", `t.toml:15:15: needs: "s" is named twice`},
		{"no stage", head + "[stage]\n", `t.toml:10:2: stage: the experiment has no stage`},
		{"path parameter with an extra key", head + run + "[params.p]\npath = \"x\"\nkind = 1", `t.toml:15:1: unknown key "kind"`},
		{"url", head + run + "[service.f]\nengine = \"openai\"\nurl = \"ftp://h\"", `t.toml:15:7: url: "ftp://h" is not an http or https URL`},
		{"port", head + run + "[service.f]\nengine = \"openai\"\nurl = \"http://h\"\nport = 70000", `t.toml:16:8: port: 70000 is not a port: want 1 to 65535`},
		{"model list", head + run + "[service.f]\nengine = \"emulated\"\n[[service.f.models]]\nname = \"a\"\n[[service.f.models]]\nnane = \"b\"\ncount = 0",
			"t.toml:17:13: missing key \"name\": name requests use; with count, the part before the number\n" +
				"t.toml:18:1: unknown key \"nane\" (did you mean \"name\"?)\n" + `t.toml:19:9: count: 0 is less than 1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text)
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v, want an InvalidError", err)
			}
			if d := cmp.Diff(tt.want, err.Error()); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

func TestAtMostTwentyFaults(t *testing.T) {
	var b strings.Builder
	b.WriteString(head + "[stage.s]\nkind = \"report\"\n")
	for i := range 50 {
		fmt.Fprintf(&b, "x%d = 1\n", i)
	}
	_, err := load(t, b.String())
	if n := strings.Count(err.Error(), "\n") + 1; n != maxProblems {
		t.Errorf("%d faults reported, want %d", n, maxProblems)
	}
}

const full = head + `[matrix]
rate = [1, 3]
[trials]
repeat = 3
[model.m]
name = "${param.who}"
checkpoint = "${machine.models}/m"
[service.f]
engine = "emulated"
devices = ["${machine.gpu}"]
[[service.f.models]]
name = "a"
[stage.gen]
kind = "command"
argv = ["sh", "-c", "echo $${HOME} ${param.rate}"]
outputs = { csv = "out.csv" }
timeout = "90s"
[stage.m]
kind = "measure"
service = "f"
workload = "${stage.gen.csv}"
speed = "${param.rate}"
slo = {}
[stage.use]
kind = "command"
service = "e"
argv = ["x", "${service.e.url}", "${source.a/b.json}", "${param.data}"]
env = { K = "${secret.k}" }
[stage.table]
kind = "report"
needs = ["m"]
[[claim]]
name = "c"
metric = "m.error_rate"
expect = 0
tolerance = 0
`

func TestEffectiveExperiment(t *testing.T) {
	l, err := load(t, full)
	if err != nil {
		t.Fatal(err)
	}
	e := l.Experiment
	if want := (schemas.Trials{Repeat: 3, Order: "interleaved"}); e.Trials != want {
		t.Errorf("trials %+v, want %+v", e.Trials, want)
	}
	m := e.Stage["m"]
	want := schemas.StageDef{Kind: "measure", Needs: []string{"gen"}, Service: "f", Scope: "trial", Config: m.Config}
	if d := cmp.Diff(want, m); d != "" {
		t.Errorf("implied need and default scope: -want +got\n%s", d)
	}
	for k, want := range map[string]any{"speed": "${param.rate}", "api": "completions", "request_timeout": "10m0s",
		"slo": map[string]any{"ttft": "10s", "tpot": "100ms"}, "max_connections": 4096.0} {
		if d := cmp.Diff(want, m.Config[k]); d != "" {
			t.Errorf("%s: -want +got\n%s", k, d)
		}
	}
	if got := e.Stage["gen"].Timeout.String(); got != "1m30s" {
		t.Errorf("timeout %s", got)
	}
	if e.Stage["table"].Scope != "run" || !e.Claim[0].Gate || e.Service["e"].Restart != "trial" {
		t.Errorf("defaults: %+v %+v %+v", e.Stage["table"], e.Claim, e.Service["e"])
	}
	if got := l.ParamPaths; len(got) != 1 || got["data"] != "/dir/in.csv" {
		t.Errorf("path parameters %v", got)
	}
	if got := l.Positions.At("/stage/m/speed"); got != (Position{31, 9}) {
		t.Errorf("position %+v", got)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, sets := range [][]string{nil, {"rate=5", "who=Hello, world", "data=../x.csv"}} {
		l, err := load(t, full, sets...)
		if err != nil {
			t.Fatal(err)
		}
		again := reload(t, l)
		if d := cmp.Diff(l.Experiment, again.Experiment); d != "" {
			t.Errorf("-first +again\n%s", d)
		}
	}
}

// reload encodes an effective experiment, validates it and loads it again.
func reload(t *testing.T, l *Loaded) *Loaded {
	t.Helper()
	doc, err := schemas.Encode(l.Experiment)
	if err != nil {
		t.Fatal(err)
	}
	if err := schemas.Validate("experiment", doc); err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	again, err := ParseJSON("experiment.json", doc, Options{Machine: "none", Dir: "/dir"})
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	return again
}

func TestSet(t *testing.T) {
	text := strings.Replace(full, "[params]\n", "[params]\nflag = false\n", 1)
	l, err := load(t, text, "rate=7", "who=Hello, world", "data=../x.csv", "flag=true", "who=a=b")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"rate": 7.0, "who": "a=b", "flag": true, "data": map[string]any{"path": "../x.csv"}}
	if d := cmp.Diff(want, l.Experiment.Params); d != "" {
		t.Errorf("params: -want +got\n%s", d)
	}
	if d := cmp.Diff(map[string][]any{"rate": {7.0}}, l.Experiment.Matrix); d != "" {
		t.Errorf("matrix: -want +got\n%s", d)
	}
	if got := l.ParamPaths["data"]; got != "/x.csv" {
		t.Errorf("path %s, want /x.csv: relative to the current folder", got)
	}
	for set, want := range map[string]string{
		"rat=1":           "--set rat: the experiment declares no parameter \"rat\" (did you mean \"rate\"?)",
		"rate":            "--set rate: want NAME=VALUE",
		"rate=fast":       `--set rate: want a number, got "fast"`,
		"rate=NaN":        `--set rate: want a number, got "NaN"`,
		"flag=1":          `--set flag: want true or false, got "1"`,
		"data=":           "--set data: the path is empty",
		"who=${secret.k}": "--set who: no ${...} is expanded here",
		"rate=0":          `t.toml:32:9: speed: 0 is less than 0.000001 (${param.rate} has its value 0)`,
	} {
		if _, err := load(t, text, set); err == nil || err.Error() != want {
			t.Errorf("--set %s:\n got %v\nwant %s", set, err, want)
		}
	}
}

func TestMatrixOfPaths(t *testing.T) {
	text := head + "[stage.m]\nkind = \"measure\"\nservice = \"e\"\nworkload = \"${param.data}\"\n[matrix]\n" +
		`data = [{ path = "a.csv" }, { path = "/abs/b.csv" }]`
	l, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := l.ParamPath("data", "a.csv"), l.ParamPath("data", "/abs/b.csv"); a != "/dir/a.csv" || b != "/abs/b.csv" {
		t.Errorf("paths %s %s", a, b)
	}
	if _, err := load(t, strings.Replace(text, `{ path = "a.csv" }`, `"a.csv"`, 1)); err == nil ||
		err.Error() != "t.toml:15:9: matrix: data is a path parameter, got a string" {
		t.Errorf("a bare string for a path: %v", err)
	}
}

func TestLimits(t *testing.T) {
	for name, text := range map[string]string{
		"size":         strings.Repeat("#", maxFileBytes+1),
		"lists":        "a = " + strings.Repeat("[", 300),
		"tables":       strings.Repeat("a = {", 300),
		"dotted key":   strings.Repeat("a.", 100000) + "b = 1",
		"dotted table": "[" + strings.Repeat("a.", 100000) + "b]",
		"brackets":     "a = [" + strings.Repeat("[],", 30000) + "]",
		"UTF-8":        "a = \"\xff\"",
	} {
		_, err := load(t, text)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || len(invalid.Problems) != 1 || invalid.Problems[0].Line == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "e.toml")
	if err := os.WriteFile(file, []byte(full), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := Load(file, Options{MachineDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if l.Dir != dir || l.ParamPaths["data"] != filepath.Join(dir, "in.csv") || string(l.Source) != full || l.Machine.File != "" {
		t.Errorf("%s %v %q", l.Dir, l.ParamPaths, l.Machine.File)
	}
	if _, err := Load(filepath.Join(dir, "none.toml"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load("quickstrat", Options{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), `"quickstart"`) {
		t.Errorf("a misspelt name: %v", err)
	}
	if _, err := Load(dir, Options{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
}
