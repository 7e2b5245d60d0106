//go:build linux

package supervise

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary plays every process of a test, chosen by its arguments:
// "role NAME ARGS...". Unlike os.Exit, syscall.Exit leaves out the second that the
// race detector waits at the end of every process.
func TestMain(m *testing.M) {
	if IsWorker(os.Args[1:]) {
		syscall.Exit(Main())
	}
	if len(os.Args) > 2 && os.Args[1] == "role" {
		syscall.Exit(play(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

func play(role string, args []string) int {
	switch role {
	case "exit":
		code, _ := strconv.Atoi(args[0])
		return code
	case "big":
		n, _ := strconv.Atoi(args[0])
		line := strings.Repeat("x", 1023) + "\n"
		for range n {
			if _, err := os.Stdout.WriteString(line); err != nil {
				return 1
			}
		}
		return 0
	case "stubborn": // ignores signals for ever
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		present(args[0])
		time.Sleep(time.Hour)
	case "polite": // exits 7 at SIGTERM
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		present(args[0])
		<-c
		return 7
	case "family": // ignores signals; a child, one in its own session, and a daemon
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		spawn(false, "stubborn", args[0])
		spawn(true, "stubborn", args[0])
		spawn(true, "daemonize", args[0]).Wait()
		present(args[0])
		time.Sleep(time.Hour)
	case "daemonize":
		spawn(true, "stubborn", args[0])
		return 0
	case "abandon": // exits 3 and leaves a daemon
		spawn(true, args[1], args[0])
		await(args[0], 1)
		return 3
	case "chain": // each process starts the next and ends: no id stays
		// The chain is bounded: on a loaded machine it may outrun the killer, and
		// process ids come round again.
		left, _ := strconv.Atoi(args[1])
		if present(args[0]); left == 0 || spawn(true, "chain", args[0], strconv.Itoa(left-1)) != nil {
			return 0
		}
	case "parent": // starts a family and waits for ever
		p, err := Start(context.Background(), Spec{Argv: self("family", args[0]), Token: args[1]})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.WriteFile(filepath.Join(args[0], "supervisor"), []byte(strconv.Itoa(p.cmd.Process.Pid)), 0o600)
		time.Sleep(time.Hour)
	}
	return 99
}

func self(role string, args ...string) []string {
	exe, _ := os.Executable()
	return append([]string{exe, "role", role}, args...)
}

func spawn(session bool, role string, args ...string) *exec.Cmd {
	argv := self(role, args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if cmd.Start() != nil {
		return nil
	}
	return cmd
}

// present leaves a file named by this process's id.
func present(dir string) {
	os.WriteFile(filepath.Join(dir, "pid-"+strconv.Itoa(os.Getpid())), nil, 0o600)
}

// await returns the ids of the processes present in dir once there are n.
func await(dir string, n int) []int {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		names, _ := filepath.Glob(filepath.Join(dir, "pid-*"))
		if len(names) < n {
			continue
		}
		var out []int
		for _, name := range names {
			pid, _ := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "pid-"))
			out = append(out, pid)
		}
		return out
	}
	return nil
}

// gone waits until no process of pids lives, and fails the test if one does not end.
func gone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		deadline := time.Now().Add(20 * time.Second)
		for {
			st, err := readStat(pid)
			if err != nil || !st.living() {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("process %d is still there, state %c", pid, st.state)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// absent fails unless each process is gone now, reaped and all.
func absent(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if st, err := readStat(pid); err == nil {
			t.Errorf("process %d is still there, state %c", pid, st.state)
		}
	}
}
