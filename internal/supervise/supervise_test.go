//go:build linux

package supervise

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, spec Spec) *Process {
	t.Helper()
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); p.Wait() })
	return p
}

func present4(t *testing.T, dir string) []int {
	t.Helper()
	pids := await(dir, 4)
	if pids == nil {
		t.Fatal("the family did not come up")
	}
	return pids
}

func TestRunExitCodes(t *testing.T) {
	for _, want := range []int{0, 1, 3, 127, 255} {
		code, err := Run(context.Background(), Spec{Argv: self("exit", strconv.Itoa(want))})
		if err != nil || code != want {
			t.Errorf("exit %d: got %d, %v", want, code, err)
		}
	}
}

func TestSignalEndsRoot(t *testing.T) {
	code, err := Run(context.Background(), Spec{Argv: []string{"sh", "-c", "kill -USR1 $$"}})
	var sig *SignalError
	if code != -1 || !errors.As(err, &sig) || sig.Signal != syscall.SIGUSR1 {
		t.Fatalf("got %d, %v", code, err)
	}
}

func TestStartErrors(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec Spec
		is   error
		text string
	}{
		"none":       {Spec{}, nil, "no program"},
		"unknown":    {Spec{Argv: []string{"no-such-program-here"}, Env: []string{"PATH=/nowhere"}}, fs.ErrNotExist, "/nowhere"},
		"missing":    {Spec{Argv: []string{"/no/such/file"}}, fs.ErrNotExist, "/no/such/file"},
		"plain file": {Spec{Argv: []string{plain}}, fs.ErrPermission, plain},
		"folder":     {Spec{Argv: []string{"true"}, Dir: "/no/such/dir"}, fs.ErrNotExist, "/no/such/dir"},
		"token":      {Spec{Argv: []string{"true"}, Token: "a:b"}, nil, "token"},
		"NUL":        {Spec{Argv: []string{"true", "a\x00b"}}, nil, "NUL"},
	} {
		_, err := Start(context.Background(), c.spec)
		if err == nil || !strings.Contains(err.Error(), c.text) || (c.is != nil && !errors.Is(err, c.is)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Start(ctx, Spec{Argv: []string{"true"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}

func TestEnvironmentIsWhole(t *testing.T) {
	t.Setenv("SUPERVISE_LEAK", "x")
	var out bytes.Buffer
	dir := t.TempDir()
	code, err := Run(context.Background(), Spec{
		Argv: []string{"sh", "-c", "env; pwd"}, Dir: dir, Stdout: &out,
		Env: []string{"PATH=" + os.Getenv("PATH"), "SECRET=hidden", MarkerEnv + "=forged"}, Token: "token-of-the-run",
	})
	if code != 0 || err != nil {
		t.Fatal(code, err)
	}
	got := out.String()
	if strings.Contains(got, "SUPERVISE_LEAK") || strings.Contains(got, "forged") {
		t.Errorf("leaked:\n%s", got)
	}
	for _, want := range []string{"SECRET=hidden\n", MarkerEnv + "=token-of-the-run:", dir + "\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

func TestBigOutput(t *testing.T) {
	var a, b bytes.Buffer
	code, err := Run(context.Background(), Spec{Argv: self("big", "20000"), Stdout: &a, Stderr: &b})
	if err != nil || code != 0 || a.Len() != 20000*1024 || b.Len() != 0 {
		t.Fatalf("code %d, err %v, %d and %d bytes", code, err, a.Len(), b.Len())
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if code, err := Run(context.Background(), Spec{Argv: self("big", "2000"), Stdout: f, Stderr: f}); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	if info, _ := f.Stat(); info.Size() != 2000*1024 {
		t.Fatalf("%d bytes in the file", info.Size())
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestLostOutputIsAnError(t *testing.T) {
	_, err := Run(context.Background(), Spec{Argv: []string{"sh", "-c", "trap '' PIPE; echo a; exit 0"}, Stdout: failingWriter{}})
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Fatalf("got %v", err)
	}
}

func TestStopWithinGrace(t *testing.T) {
	dir := t.TempDir()
	p := start(t, Spec{Argv: self("polite", dir)})
	if await(dir, 1) == nil {
		t.Fatal("not up")
	}
	p.Stop(syscall.SIGTERM, time.Minute)
	if code, err := p.Wait(); code != 7 || err != nil || p.State().Killed {
		t.Fatalf("got %d, %v, %+v", code, err, p.State())
	}
}

func TestGraceEndsInKill(t *testing.T) {
	dir := t.TempDir()
	p := start(t, Spec{Argv: self("family", dir)})
	pids := present4(t, dir)
	begun := time.Now()
	p.Stop(syscall.SIGTERM, 300*time.Millisecond)
	code, err := p.Wait()
	var sig *SignalError
	if code != -1 || !errors.As(err, &sig) || sig.Signal != syscall.SIGKILL || !p.State().Killed {
		t.Fatalf("got %d, %v, %+v", code, err, p.State())
	}
	if d := time.Since(begun); d < 300*time.Millisecond {
		t.Errorf("killed after %v, before the grace was over", d)
	}
	absent(t, pids...)
	p.Stop(syscall.SIGTERM, 0) // harmless afterwards
	p.Kill()
}

func TestKill(t *testing.T) {
	dir := t.TempDir()
	p := start(t, Spec{Argv: self("family", dir)})
	pids := present4(t, dir)
	p.Kill()
	p.Wait()
	absent(t, pids...)
}

func TestContextStopsRun(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("enough")
	go func() { await(dir, 4); cancel(reason) }()
	_, err := Run(ctx, Spec{Argv: self("family", dir), Grace: 50 * time.Millisecond})
	if !errors.Is(err, reason) {
		t.Fatalf("got %v", err)
	}
	absent(t, await(dir, 4)...)
}

func TestLeftoversEnd(t *testing.T) {
	for _, role := range []string{"polite", "stubborn"} {
		dir := t.TempDir()
		var out bytes.Buffer // its pipe stays open as long as the daemon lives
		p := start(t, Spec{Argv: self("abandon", dir, role), LeftoverGrace: 300 * time.Millisecond, Stdout: &out})
		code, err := p.Wait()
		if code != 3 || err != nil {
			t.Errorf("%s: got %d, %v", role, code, err)
		}
		st := p.State()
		if st.Leftover != 1 || st.Killed != (role == "stubborn") {
			t.Errorf("%s: %+v", role, st)
		}
		absent(t, await(dir, 1)...)
	}
}

func TestForkingChainEnds(t *testing.T) {
	dir := t.TempDir()
	p := start(t, Spec{Argv: self("chain", dir, "200"), LeftoverGrace: 20 * time.Millisecond})
	p.Wait()
	absent(t, await(dir, 1)...)
}

// startParent runs a process that supervises a family.
func startParent(t *testing.T, dir, token string) (*exec.Cmd, []int, int) {
	t.Helper()
	argv := self("parent", dir, token)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	pids := present4(t, dir)
	file := filepath.Join(dir, "supervisor")
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
			pid, _ := strconv.Atoi(string(b))
			return cmd, pids, pid
		}
	}
	t.Fatal("no supervisor")
	return nil, nil, 0
}

func TestParentKilled(t *testing.T) {
	cmd, pids, supervisor := startParent(t, t.TempDir(), NewToken())
	cmd.Process.Kill()
	cmd.Wait()
	gone(t, append(pids, supervisor)...)
}

func TestSupervisorKilled(t *testing.T) {
	dir := t.TempDir()
	p := start(t, Spec{Argv: self("family", dir)})
	pids := present4(t, dir)
	syscall.Kill(p.cmd.Process.Pid, syscall.SIGKILL)
	code, err := p.Wait()
	if code != -1 || err == nil || !strings.Contains(err.Error(), "supervisor ended") {
		t.Fatalf("got %d, %v", code, err)
	}
	gone(t, pids...)
}

func TestSweepFindsWhatBothKilledLeave(t *testing.T) {
	token := NewToken()
	cmd, pids, supervisor := startParent(t, t.TempDir(), token)
	other := start(t, Spec{Argv: []string{"sleep", "1000"}, Token: NewToken()})
	// Stopped, the supervisor cannot act on the death of its parent; then both die.
	syscall.Kill(supervisor, syscall.SIGSTOP)
	cmd.Process.Kill()
	cmd.Wait()
	syscall.Kill(supervisor, syscall.SIGKILL)
	gone(t, supervisor)
	n, err := Sweep(token)
	if err != nil || n < 3 {
		t.Fatalf("swept %d, %v", n, err)
	}
	gone(t, pids...)
	select {
	case <-other.Done():
		t.Error("the sweep took a process of another token")
	default:
	}
	if n, err := Sweep(token); n != 0 || err != nil {
		t.Errorf("second sweep: %d, %v", n, err)
	}
	if _, err := Sweep(""); err == nil {
		t.Error("an empty token is accepted")
	}
}

func TestTerminalSignalsDoNotEndSupervisor(t *testing.T) {
	dir := t.TempDir()
	p := start(t, Spec{Argv: self("polite", dir)})
	if await(dir, 1) == nil {
		t.Fatal("not up")
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		syscall.Kill(p.cmd.Process.Pid, sig)
	}
	p.Stop(syscall.SIGTERM, time.Minute)
	if code, err := p.Wait(); code != 7 || err != nil {
		t.Fatalf("got %d, %v", code, err)
	}
}
