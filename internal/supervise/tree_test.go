//go:build linux

package supervise

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A program's name stands inside /proc/PID/stat and may look like fields of it.
func TestHostileProgramName(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep here")
	}
	b, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "a) Z 1 (b")
	if err := os.WriteFile(file, b, 0o700); err != nil {
		t.Fatal(err)
	}
	p := start(t, Spec{Argv: []string{"sleep", "1000"}, Path: file, Env: os.Environ()})
	st, err := readStat(p.Pid())
	if err != nil || st.ppid != p.cmd.Process.Pid || !st.living() {
		t.Errorf("%+v, %v; its parent is %d", st, err, p.cmd.Process.Pid)
	}
	p.Kill()
	p.Wait()
	absent(t, p.Pid())
}

func TestReadStatOfItself(t *testing.T) {
	st, err := readStat(os.Getpid())
	if err != nil || st.ppid != os.Getppid() || st.start == 0 || !st.living() {
		t.Errorf("%+v, %v", st, err)
	}
	if !ancestors()[os.Getppid()] {
		t.Error("the parent is no ancestor")
	}
}
