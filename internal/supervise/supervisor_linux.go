package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Main is the supervisor: it starts the program described on its first pipe, and
// returns the exit code for the process once the program's tree has ended. It
// takes over the process and expects the files that Start gives it.
func Main() int {
	// PDEATHSIG follows the thread that forks, so this one must last.
	runtime.LockOSThread()
	for _, fd := range []int{fdSpec, fdLife, fdStatus} {
		unix.CloseOnExec(fd)
	}
	status := json.NewEncoder(os.NewFile(fdStatus, "status"))
	spec, err := prepare()
	if err != nil {
		fmt.Fprintf(os.Stderr, "assay worker supervise: %v (it is started by assay itself)\n", err)
		_ = status.Encode(wireStatus{Error: err.Error()})
		return 1
	}
	root, err := startRoot(spec)
	if err != nil {
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			errno = 0
		}
		_ = status.Encode(wireStatus{Errno: int(errno), Error: err.Error()})
		return 1
	}
	_ = status.Encode(wireStatus{Started: root})
	t := newTree(root, spec)
	final := t.run(commands(os.NewFile(fdLife, "life")))
	_ = status.Encode(final)
	return 0
}

// prepare makes this process a subreaper that signals do not end, and reads the
// spec. Signals are caught and dropped rather than ignored: a program inherits
// ignored signals.
func prepare() (wireSpec, error) {
	var spec wireSpec
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return spec, fmt.Errorf("become subreaper: %w", err)
	}
	in := os.NewFile(fdSpec, "spec")
	defer in.Close()
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return spec, fmt.Errorf("read spec: %w", err)
	}
	return spec, nil
}

// startRoot runs the program in a session of its own, so that a signal it sends
// to its process group does not reach the supervisor.
func startRoot(spec wireSpec) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	return syscall.ForkExec(spec.Path, spec.Argv, &syscall.ProcAttr{
		Dir:   spec.Dir,
		Env:   spec.Env,
		Files: []uintptr{null.Fd(), 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// commands delivers the parent's commands and is closed when the parent is gone.
func commands(life io.Reader) <-chan wireCommand {
	out := make(chan wireCommand)
	go func() {
		defer close(out)
		for dec := json.NewDecoder(life); ; {
			var c wireCommand
			if dec.Decode(&c) != nil {
				return
			}
			out <- c
		}
	}()
	return out
}

// exit is one reaped process.
type exit struct {
	pid    int
	status syscall.WaitStatus
}

// reap delivers every process that ends and is closed when there is none left:
// orphans become our children before their parent can be reaped, so "no child"
// means that the whole tree is gone.
func reap() <-chan exit {
	out := make(chan exit)
	go func() {
		defer close(out)
		for {
			var ws syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &ws, unix.WALL, nil)
			switch {
			case err == syscall.EINTR:
			case err != nil:
				return
			default:
				out <- exit{pid: pid, status: ws}
			}
		}
	}()
	return out
}

// tree is the state of the supervisor's loop.
type tree struct {
	root        procStat
	rootEnded   bool
	leftGrace   time.Duration
	killLimit   time.Duration
	final       wireStatus
	killing     bool
	orphaned    bool        // the parent is gone
	deadline    *time.Timer // when killing starts
	deadlineAt  time.Time   // zero when no killing is planned
	retry       *time.Ticker
	killStarted time.Time
}

func newTree(root int, spec wireSpec) *tree {
	st, err := readStat(root)
	if err != nil {
		st = procStat{pid: root} // ended already, and not yet reaped by anyone
	}
	t := &tree{root: st, leftGrace: time.Duration(spec.LeftoverGraceNs), killLimit: time.Duration(spec.KillLimitNs)}
	t.final.Ended = true
	t.deadline = time.NewTimer(time.Hour)
	t.deadline.Stop()
	t.retry = time.NewTicker(time.Hour)
	t.retry.Stop()
	return t
}

// run loops until the tree is gone, or cannot be ended while somebody waits.
func (t *tree) run(cmds <-chan wireCommand) wireStatus {
	ended := reap()
	for {
		select {
		case e, ok := <-ended:
			if !ok {
				return t.final
			}
			t.reaped(e)
		case c, ok := <-cmds:
			if !ok {
				cmds = nil
				t.orphaned = true
				t.kill()
				continue
			}
			t.command(c)
		case <-t.deadline.C:
			t.kill()
		case <-t.retry.C:
			t.kill()
			if !t.orphaned && time.Since(t.killStarted) > t.killLimit {
				for _, p := range descendants(os.Getpid()) {
					t.final.Survivors = append(t.final.Survivors, p.pid)
				}
				return t.final
			}
		}
	}
}

func (t *tree) reaped(e exit) {
	if e.pid != t.root.pid {
		return
	}
	t.rootEnded = true
	if e.status.Signaled() {
		t.final.Signal = int(e.status.Signal())
	} else {
		t.final.Code = e.status.ExitStatus()
	}
	left := descendants(os.Getpid())
	t.final.Leftover = len(left)
	if t.killing || len(left) == 0 {
		return
	}
	signalAll(left, syscall.SIGTERM)
	t.killWithin(t.leftGrace)
}

func (t *tree) command(c wireCommand) {
	sig := syscall.Signal(c.Signal)
	if sig == syscall.SIGKILL {
		t.kill()
		return
	}
	if t.rootEnded {
		signalAll(descendants(os.Getpid()), sig)
	} else {
		signalOne(t.root, sig)
	}
	t.killWithin(time.Duration(c.GraceNs))
}

// killWithin plans to kill after d; an earlier plan stands.
func (t *tree) killWithin(d time.Duration) {
	at := time.Now().Add(d)
	if t.killing || (!t.deadlineAt.IsZero() && t.deadlineAt.Before(at)) {
		return
	}
	t.deadlineAt = at
	t.deadline.Reset(d)
}

// kill sends SIGKILL to everything below this process. What was forked meanwhile
// is met by the next pass.
func (t *tree) kill() {
	if !t.killing {
		t.killing = true
		t.killStarted = time.Now()
		t.deadline.Stop()
		t.retry.Reset(5 * time.Millisecond)
	} else if time.Since(t.killStarted) > time.Second {
		t.retry.Reset(100 * time.Millisecond)
	}
	if signalAll(descendants(os.Getpid()), syscall.SIGKILL) > 0 {
		t.final.Killed = true
	}
}
