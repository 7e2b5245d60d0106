package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"assay/internal/supervise"
	"assay/pipeline"

	"github.com/google/go-cmp/cmp"
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

type execution struct {
	task *pipeline.Task
	log  bytes.Buffer
	code int
}

func newExecution(t *testing.T, config map[string]any) *execution {
	t.Helper()
	base := t.TempDir()
	e := &execution{code: -99}
	e.task = &pipeline.Task{Config: config, Work: filepath.Join(base, "work"), Dir: filepath.Join(base, "archive"), Log: &e.log,
		Env: []string{"PATH=" + os.Getenv("PATH"), "GREETING=hello"}, Supervise: supervisor{}, Exited: func(code int) { e.code = code }}
	for _, d := range []string{e.task.Work, filepath.Join(e.task.Dir, "logs"), filepath.Join(e.task.Dir, "outputs")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func (e *execution) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(e.task.Dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func sh(script string) map[string]any {
	return map[string]any{"argv": []any{script}, "shell": true}
}

func with(config map[string]any, key string, v any) map[string]any {
	config[key] = v
	return config
}

func TestRunsWithInputsEnvironmentAndLogs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret-name.txt")
	if err := os.WriteFile(file, []byte("content\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOT_FOR_CHILDREN", "1")
	config := with(sh(`cat data.txt; ls folder; echo "$GREETING" >&2; env | grep -c NOT_FOR_CHILDREN; mkdir -p out/deep; cp data.txt out/deep/copy; printf x > single.bin; chmod +x single.bin; true`),
		"outputs", map[string]any{"tree": "out", "one": "single.bin"})
	config["inputs"] = map[string]any{"data.txt": file, "folder": dir}
	e := newExecution(t, config)
	if err := run(context.Background(), e.task); err != nil {
		t.Fatal(err)
	}
	if e.code != 0 {
		t.Errorf("exit code noted as %d", e.code)
	}
	if got, want := e.read(t, "logs/stdout.log"), "content\nsecret-name.txt\n0\n"; got != want {
		t.Errorf("stdout: %q, want %q", got, want)
	}
	if got := e.read(t, "logs/stderr.log"); got != "hello\n" {
		t.Errorf("stderr: %q", got)
	}
	for _, part := range []string{"content\n", "hello\n"} {
		if !strings.Contains(e.log.String(), part) {
			t.Errorf("stage log lacks %q: %q", part, e.log.String())
		}
	}
	if got := e.read(t, "outputs/tree/deep/copy"); got != "content\n" {
		t.Errorf("output tree: %q", got)
	}
	fi, err := os.Stat(filepath.Join(e.task.Dir, "outputs/one/single.bin"))
	if err != nil || fi.Mode()&0o111 == 0 {
		t.Errorf("output file: %v, %v", fi, err)
	}
}

func TestNoShellUnlessAsked(t *testing.T) {
	e := newExecution(t, map[string]any{"argv": []any{"echo", "$HOME;", "a b"}})
	if err := run(context.Background(), e.task); err != nil {
		t.Fatal(err)
	}
	if got := e.read(t, "logs/stdout.log"); got != "$HOME; a b\n" {
		t.Errorf("stdout: %q", got)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		script string
		ok     []any
		fails  bool
		code   int
	}{
		{"zero", "exit 0", nil, false, 0},
		{"other", "exit 3", nil, true, 3},
		{"listed", "exit 3", []any{3.0, 4.0}, false, 3},
		{"zero is not listed", "exit 0", []any{3.0}, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := sh(c.script)
			if c.ok != nil {
				config["ok_exit"] = c.ok
			}
			e := newExecution(t, config)
			if err := run(context.Background(), e.task); (err != nil) != c.fails {
				t.Errorf("error %v, want one: %v", err, c.fails)
			}
			if e.code != c.code {
				t.Errorf("code %d, want %d", e.code, c.code)
			}
		})
	}
}

func TestPublishesAllOrNothing(t *testing.T) {
	for _, c := range []struct{ name, script, path, want string }{
		{"missing", "echo x > good", "bad", "output b: bad was not written"},
		{"failed program", "echo x > good; echo y > bad; exit 1", "bad", "exited with code 1"},
		{"link out", "echo x > good; ln -s /etc/hostname bad", "bad", "bad is a symbolic link"},
		{"through a link", "echo x > good; ln -s / away", "away/etc/hostname", "away is a symbolic link"},
		{"link out within", "echo x > good; mkdir bad; ln -s ../good bad/l", "bad", "outside the output"},
		{"absolute link within", "echo x > good; mkdir bad; ln -s /etc/passwd bad/l", "bad", "outside the output"},
		{"dangling within", "echo x > good; mkdir bad; ln -s nothing bad/l", "bad", "leads nowhere"},
		{"pipe", "echo x > good; mkfifo bad", "bad", "neither a file, a folder nor a link"},
		{"parent", "echo x > good", "../bad", "leads out of the private folder"},
		{"hidden parent", "echo x > good", "a/../../bad", "leads out of the private folder"},
		{"absolute", "echo x > good", "/etc/hostname", "leads out of the private folder"},
		{"itself", "echo x > good", ".", "name a file or folder"},
		{"overlap", "echo x > good", "./good", "overlap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newExecution(t, with(sh(c.script), "outputs", map[string]any{"a": "good", "b": c.path}))
			err := run(context.Background(), e.task)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			left, rerr := os.ReadDir(filepath.Join(e.task.Dir, "outputs"))
			if rerr != nil || len(left) != 0 {
				t.Errorf("published %v (%v)", left, rerr)
			}
		})
	}
}

func TestKeepsLinksWithinAnOutput(t *testing.T) {
	e := newExecution(t, with(sh("mkdir out; echo x > out/a; ln -s a out/b"), "outputs", map[string]any{"o": "out"}))
	if err := run(context.Background(), e.task); err != nil {
		t.Fatal(err)
	}
	target, err := os.Readlink(filepath.Join(e.task.Dir, "outputs/o/b"))
	if err != nil || target != "a" {
		t.Errorf("link: %q, %v", target, err)
	}
}

func TestStopsWithItsContext(t *testing.T) {
	e := newExecution(t, sh("echo started; exec sleep 600"))
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("time limit")
	e.task.Log = writerFunc(func(p []byte) (int, error) { // the program runs: stop it now
		cancel(reason)
		return len(p), nil
	})
	if err := run(ctx, e.task); !errors.Is(err, reason) {
		t.Errorf("error %v, want the cause", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestBadSettings(t *testing.T) {
	for _, c := range []struct {
		config map[string]any
		want   string
	}{
		{map[string]any{"argv": []any{}}, "argv is empty"},
		{map[string]any{"argv": []any{"a", "b"}, "shell": true}, "one string"},
		{map[string]any{"argv": []any{"no-such-program-anywhere"}}, "no-such-program-anywhere"},
		{map[string]any{"argv": []any{"true"}, "inputs": map[string]any{"../x": "/etc/hostname"}}, "a name is made of"},
	} {
		e := newExecution(t, c.config)
		if err := run(context.Background(), e.task); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.config, err, c.want)
		}
	}
}

func TestRequirements(t *testing.T) {
	for _, c := range []struct {
		config map[string]any
		want   []string
	}{
		{map[string]any{"argv": []any{"python3", "x.py"}}, []string{"python3"}},
		{map[string]any{"argv": []any{"/opt/tool"}, "tools": []any{"gcc", "/opt/tool"}}, []string{"/opt/tool", "gcc"}},
		{map[string]any{"argv": []any{"./made-here"}}, nil},
		{map[string]any{"argv": []any{"make all"}, "shell": true, "tools": []any{"make"}}, []string{"/bin/sh", "make"}},
	} {
		if diff := cmp.Diff(c.want, requires(c.config).Tools); diff != "" {
			t.Errorf("%v: %s", c.config, diff)
		}
	}
	k := Kind()
	on := map[string]any{"argv": []any{"x"}, "reuse": true, "seeded": true, "outputs": map[string]any{"b": "1", "a": "2"}, "pass_env": []any{"TOKEN"}}
	if !k.Pure(on) || k.Pure(map[string]any{}) {
		t.Error("reuse decides whether a command is pure")
	}
	if k.Seed(on) != pipeline.SeedRepetition || k.Seed(map[string]any{}) != pipeline.SeedNone {
		t.Error("seeded decides whether a command has a seed")
	}
	if diff := cmp.Diff([]string{"a", "b"}, k.Outputs(on)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"TOKEN"}, requires(on).PassEnv); diff != "" {
		t.Error(diff)
	}
}
