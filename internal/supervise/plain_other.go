//go:build !linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a running process with its process group.
type Process struct {
	program string
	grace   time.Duration
	cmd     *exec.Cmd
	mu      sync.Mutex
	kill    *time.Timer
	done    chan struct{}
	state   State
	err     error
}

// Start starts spec in a process group of its own. ctx bounds the start only.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if err := spec.normalize(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("supervise %s: %w", spec.Argv[0], context.Cause(ctx))
	}
	p := &Process{program: spec.Argv[0], grace: spec.Grace, done: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: spec.Path, Args: spec.Argv, Dir: spec.Dir,
		Env:    marked(spec.Env, spec.Token, NewToken()),
		Stdout: spec.Stdout, Stderr: spec.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		WaitDelay:   spec.LeftoverGrace,
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s (in %q): %w", spec.Path, spec.Dir, err)
	}
	go p.finish()
	return p, nil
}

func (p *Process) finish() {
	defer close(p.done)
	err := p.cmd.Wait()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kill != nil {
		p.kill.Stop()
	}
	p.state.Code = p.cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.state.Code, p.state.Signal = -1, ws.Signal()
		p.err = &SignalError{Program: p.program, Signal: ws.Signal()}
	} else if err != nil && !errors.As(err, &exit) {
		p.err = fmt.Errorf("%s: output: %w", p.program, err)
	}
}

// Wait returns when the process has ended; see the package documentation.
func (p *Process) Wait() (int, error) {
	<-p.done
	return p.state.Code, p.err
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State is how it ended; it waits for that.
func (p *Process) State() State {
	<-p.done
	return p.state
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Stop sends sig and, after grace, kills the group.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) {
	_ = p.cmd.Process.Signal(sig)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kill == nil {
		p.kill = time.AfterFunc(grace, p.Kill)
	}
}

// Kill kills the process group.
func (p *Process) Kill() {
	select {
	case <-p.done:
		return
	default:
	}
	p.mu.Lock()
	p.state.Killed = true
	p.mu.Unlock()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
}

// Main refuses: there is no supervisor on this system.
func Main() int {
	fmt.Fprintln(os.Stderr, "assay worker supervise: only on Linux")
	return 1
}

// Sweep finds nothing: there is no marker to read on this system.
func Sweep(token string) (int, error) {
	if !validToken(token) {
		return 0, fmt.Errorf("sweep: token %q: want 8 to 128 letters, digits, '.', '_' or '-'", token)
	}
	return 0, nil
}
