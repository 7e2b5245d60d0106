package crashtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// experiment has everything a crash may hit: a gate, a pure stage, a service with a
// child in a session of its own, a measured stage and a fold. Its verbs are the
// program and the mark that its processes carry.
const experiment = `schema = "assay/experiment/v1"
name = "crash"
[service.engine]
engine = "openai"
command = ["sh", "-c", "setsid sleep 1000 & exec \"$0\" emulate --config \"$1\" --listen 127.0.0.1:$ASSAY_PORT", %q, "engine.json"]
cwd = "."
env = { ASSAY_CRASHTEST_MARK = %q }
stop_grace = "5s"
[stage.check]
kind = "preflight"
disk = "1MiB"
[stage.arrivals]
kind = "workload"
needs = ["check"]
models = 2
rate = 20.0
duration = "200ms"
input_mean = 8
output_mean = 16
max_tokens = 64
[stage.warm]
kind = "warmup"
needs = ["check"]
service = "engine"
count = 1
[stage.replay]
kind = "measure"
needs = ["warm"]
service = "engine"
workload = "${stage.arrivals.workload}"
[stage.report]
kind = "report"
needs = ["replay"]
`

// lab is a project folder with a store that already holds one run.
type lab struct {
	t    *testing.T
	dir  string
	self string
	mark string
}

func newLab(t *testing.T, template string) *lab {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: t.TempDir(), self: self, mark: fmt.Sprintf("crashtest-%d-%d", os.Getpid(), rand.Uint64())}
	if template != "" {
		if err := os.CopyFS(l.dir, os.DirFS(template)); err != nil {
			t.Fatal(err)
		}
	}
	engine := []byte(`{"models": [{"name": "a"}, {"name": "b"}], "time_scale": 100}`)
	if err := os.WriteFile(filepath.Join(l.dir, "engine.json"), engine, 0o600); err != nil {
		t.Fatal(err)
	}
	file := fmt.Sprintf(experiment, self, l.mark)
	if err := os.WriteFile(filepath.Join(l.dir, "crash.toml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// assay runs a command and returns its exit code (-1 when killed) and output.
func (l *lab) assay(env []string, args ...string) (int, string) {
	l.t.Helper()
	cmd := l.command(env, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		l.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func (l *lab) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(l.self, args...)
	cmd.Dir = l.dir
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// survivors lists the processes that carry the mark of this lab's service.
func (l *lab) survivors() []string {
	l.t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		l.t.Fatal(err)
	}
	var found []string
	for _, p := range list {
		b, err := os.ReadFile(p)
		if err == nil && bytes.Contains(b, []byte("ASSAY_CRASHTEST_MARK="+l.mark)) {
			cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline")) // for the message only
			found = append(found, filepath.Base(filepath.Dir(p))+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return found
}

// noneSurvives waits until the supervisors have done their work.
func (l *lab) noneSurvives() {
	l.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		left := l.survivors()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("processes of the service are still alive: %v", left)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

type listing struct {
	Runs []struct {
		Digest string `json:"digest"`
		ID     string `json:"id"`
	} `json:"runs"`
}

func (l *lab) runs() listing {
	l.t.Helper()
	cmd := l.command(nil, "ls", "--format", "json")
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("ls after the crash: %v %s", err, out)
	}
	var list listing
	if err := json.Unmarshal(out, &list); err != nil {
		l.t.Fatalf("ls: %v in %s", err, out)
	}
	return list
}

// check looks at what the crash left, then goes on with it.
func (l *lab) check(what string, before listing) {
	l.t.Helper()
	l.noneSurvives()
	after := l.runs()
	if len(after.Runs) < len(before.Runs) {
		l.t.Fatalf("%s: %d runs were committed, %d are left", what, len(before.Runs), len(after.Runs))
	}
	for _, r := range after.Runs {
		if code, out := l.assay(nil, "verify", r.Digest); code != 0 {
			l.t.Fatalf("%s: verify %s: exit %d\n%s", what, r.Digest, code, out)
		}
	}
	if len(after.Runs) > len(before.Runs) {
		return // it was committed before the end came
	}
	code, out := l.assay(nil, "run", "crash.toml", "--resume")
	if strings.Contains(out, "no interrupted run") {
		// Not even the start was written down: there is nothing to go on with.
		code, out = l.assay(nil, "run", "crash.toml")
	}
	if code != 0 {
		l.t.Fatalf("%s: resume: exit %d\n%s", what, code, out)
	}
	if code, out := l.assay(nil, "verify", "latest"); code != 0 {
		l.t.Fatalf("%s: verify after resume: exit %d\n%s", what, code, out)
	}
	if n := len(l.runs().Runs); n != len(before.Runs)+1 {
		l.t.Fatalf("%s: %d runs after resume, want %d", what, n, len(before.Runs)+1)
	}
	l.noneSurvives()
}

// base makes a store with one run, and counts the operations of a second one.
func base(t *testing.T) (dir string, operations int64, took time.Duration) {
	t.Helper()
	l := newLab(t, "")
	if code, out := l.assay(nil, "run", "crash.toml"); code != 0 {
		t.Fatalf("clean run: exit %d\n%s", code, out)
	}
	counted := newLab(t, l.dir)
	file := filepath.Join(t.TempDir(), "count")
	start := time.Now()
	if code, out := counted.assay([]string{countFile + "=" + file}, "run", "crash.toml"); code != 0 {
		t.Fatalf("counted run: exit %d\n%s", code, out)
	}
	took = time.Since(start)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	operations, err = strconv.ParseInt(string(b), 10, 64)
	if err != nil || operations < 50 {
		t.Fatalf("%d operations counted, %v", operations, err)
	}
	return l.dir, operations, took
}

// TestKillAtEveryWrite kills a run at its durable operations in turn: all of them
// with ASSAY_EXHAUSTIVE set, else a sample of about fifteen.
func TestKillAtEveryWrite(t *testing.T) {
	template, operations, took := base(t)
	step, first := int64(1), int64(1)
	if os.Getenv("ASSAY_EXHAUSTIVE") == "" {
		step = max(1, operations/15)
		first = 1 + rand.Int64N(step)
	}
	t.Logf("%d durable operations in a run of %v; killing at every %d from %d", operations, took.Round(time.Millisecond), step, first)
	for n := first; n <= operations; n += step {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, template)
			before := l.runs()
			code, out := l.assay([]string{fmt.Sprintf("%s=%d", killAt, n)}, "run", "crash.toml")
			if code != -1 && code != 0 { // the count varies a little; a run may end before its turn
				t.Fatalf("killed at %d: exit %d\n%s", n, code, out)
			}
			l.check(fmt.Sprintf("killed at operation %d of %d", n, operations), before)
		})
	}
}

// TestKillAtRandom kills a run, with its whole process group, ten times at random
// (ASSAY_SOAK times when that is set).
func TestKillAtRandom(t *testing.T) {
	template, _, took := base(t)
	times := 10
	if s := os.Getenv("ASSAY_SOAK"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("ASSAY_SOAK: %v", err)
		}
		times = n
	}
	for i := range times {
		delay := time.Duration(rand.Int64N(int64(took)))
		t.Run(fmt.Sprintf("%d after %v", i, delay.Round(time.Millisecond)), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, template)
			before := l.runs()
			cmd := l.command(nil, "run", "crash.toml")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(delay, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // gone already is fine
			defer timer.Stop()
			_ = cmd.Wait() // killed or done; what is left is looked at below
			l.check(fmt.Sprintf("killed after %v", delay), before)
		})
	}
}

// TestKilledTogetherWithItsSupervisors kills assay and every supervisor at once:
// nobody is left to end the service, so the next run of any experiment does.
func TestKilledTogetherWithItsSupervisors(t *testing.T) {
	l := newLab(t, "")
	const other = "schema = \"assay/experiment/v1\"\nname = \"other\"\n[stage.x]\nkind = \"command\"\nargv = [\"true\"]\n"
	if err := os.WriteFile(filepath.Join(l.dir, "other.toml"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := l.command(nil, "run", "crash.toml")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for len(l.survivors()) < 2 { // the engine, and its child in a session of its own
		time.Sleep(time.Millisecond) // the run would end with an error, and the test with it, by its time limit
	}
	for _, pid := range append(childrenOf(t, cmd.Process.Pid), cmd.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait() // it was killed
	if code, out := l.assay(nil, "run", "other.toml"); code != 0 {
		t.Fatalf("the next run: exit %d\n%s", code, out)
	}
	if left := l.survivors(); len(left) > 0 {
		t.Errorf("the next run left %v", left)
	}
}

// childrenOf lists the children of every thread of a process.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			text += " " + string(b)
		}
	}
	var pids []int
	seen := map[string]bool{}
	for _, w := range strings.Fields(text) {
		if n, err := strconv.Atoi(w); err == nil && !seen[w] {
			seen[w] = true
			pids = append(pids, n)
		}
	}
	return pids
}
