package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a running process tree.
type Process struct {
	program string
	token   string // of this process alone
	grace   time.Duration
	pid     int
	cmd     *exec.Cmd

	mu   sync.Mutex // guards life
	life *os.File

	done  chan struct{}
	state State // valid once done is closed
	err   error // likewise
}

// pipes are the three connections to a supervisor, both ends.
type pipes struct {
	specR, specW, lifeR, lifeW, statusR, statusW *os.File
}

func openPipes() (p pipes, err error) {
	for _, end := range []struct{ r, w **os.File }{{&p.specR, &p.specW}, {&p.lifeR, &p.lifeW}, {&p.statusR, &p.statusW}} {
		if *end.r, *end.w, err = os.Pipe(); err != nil {
			p.close()
			return p, err
		}
	}
	return p, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

func (p pipes) close() {
	closeAll(p.specR, p.specW, p.lifeR, p.lifeW, p.statusR, p.statusW)
}

// Start starts spec and returns once the program is executing. ctx bounds the
// start only; use Stop, Kill or Run to end the process.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if err := spec.normalize(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("supervise %s: %w", spec.Argv[0], context.Cause(ctx))
	}
	ends, err := openPipes()
	if err != nil {
		return nil, fmt.Errorf("supervise %s: %w", spec.Argv[0], err)
	}
	p := &Process{program: spec.Argv[0], token: NewToken(), grace: spec.Grace, life: ends.lifeW, done: make(chan struct{})}
	p.cmd = supervisor(spec, p.token, ends)
	if err := p.cmd.Start(); err != nil {
		ends.close()
		return nil, fmt.Errorf("supervise %s: start supervisor: %w", spec.Argv[0], err)
	}
	closeAll(ends.specR, ends.lifeR, ends.statusW)
	sendErr := sendSpec(ends.specW, spec, p.token)
	status := json.NewDecoder(io.LimitReader(ends.statusR, 1<<20))
	first, firstErr := p.awaitStart(ctx, status)
	if err := startError(spec, first, errors.Join(sendErr, firstErr)); err != nil {
		p.closeLife()
		p.cmd.Wait()
		ends.statusR.Close()
		return nil, err
	}
	p.pid = first.Started
	go p.finish(status, ends.statusR)
	return p, nil
}

// supervisor is this program's executable in its role as supervisor.
func supervisor(spec Spec, own string, ends pipes) *exec.Cmd {
	exe := spec.SelfExe
	if exe == "" {
		exe = "/proc/self/exe" // even if the file was replaced meanwhile
	}
	return &exec.Cmd{
		Path:        exe,
		Args:        []string{"assay", WorkerCommand, WorkerName},
		Env:         marked(nil, spec.Token, own),
		Stdout:      spec.Stdout,
		Stderr:      spec.Stderr,
		ExtraFiles:  []*os.File{ends.specR, ends.lifeR, ends.statusW},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   drainLimit,
	}
}

func sendSpec(w *os.File, spec Spec, own string) error {
	defer w.Close()
	return json.NewEncoder(w).Encode(wireSpec{
		Path: spec.Path, Argv: spec.Argv, Dir: spec.Dir,
		Env:             marked(spec.Env, spec.Token, own),
		LeftoverGraceNs: int64(spec.LeftoverGrace),
		KillLimitNs:     int64(killLimit),
	})
}

// awaitStart reads the supervisor's first line. The end of ctx closes the life
// pipe, upon which the supervisor ends and so does the read.
func (p *Process) awaitStart(ctx context.Context, status *json.Decoder) (wireStatus, error) {
	stop := context.AfterFunc(ctx, p.closeLife)
	var first wireStatus
	err := status.Decode(&first)
	if !stop() {
		return first, context.Cause(ctx)
	}
	return first, err
}

func startError(spec Spec, first wireStatus, err error) error {
	switch {
	case first.Errno != 0:
		return fmt.Errorf("start %s (in %q): %w", spec.Path, spec.Dir, syscall.Errno(first.Errno))
	case first.Error != "":
		return fmt.Errorf("start %s: supervisor: %s", spec.Path, first.Error)
	case err != nil:
		return fmt.Errorf("start %s: supervisor: %w", spec.Path, err)
	case first.Started == 0:
		return fmt.Errorf("start %s: supervisor: no process id", spec.Path)
	}
	return nil
}

// finish waits for the supervisor's verdict, its end and the end of the output.
func (p *Process) finish(status *json.Decoder, statusR *os.File) {
	defer close(p.done)
	var last wireStatus
	decodeErr := status.Decode(&last)
	var sweepErr error
	if lost := decodeErr != nil || !last.Ended; lost {
		// The supervisor was killed. Its child died with it; what else holds the
		// output open must end before the output can.
		_, sweepErr = Sweep(p.token)
	}
	waitErr := p.cmd.Wait()
	statusR.Close()
	p.closeLife()
	p.state = State{Code: last.Code, Signal: syscall.Signal(last.Signal), Killed: last.Killed, Leftover: last.Leftover}
	switch {
	case decodeErr != nil || !last.Ended:
		p.state = State{Code: -1, Killed: true}
		_, again := Sweep(p.token) // what was forked meanwhile
		sweepErr = errors.Join(sweepErr, again)
		p.err = errors.Join(fmt.Errorf("%s: its supervisor ended before it did (%v): the process tree was killed", p.program, waitErr), sweepErr)
	case len(last.Survivors) > 0:
		p.err = fmt.Errorf("%s: processes %v could not be ended: end them by hand", p.program, last.Survivors)
	case waitErr != nil:
		p.err = fmt.Errorf("%s: output: %w", p.program, waitErr)
	case last.Signal != 0:
		p.err = &SignalError{Program: p.program, Signal: p.state.Signal}
	}
	if last.Signal != 0 {
		p.state.Code = -1
	}
}

// Wait returns when the whole tree has ended and its output was read. The code is
// the root's exit code, and err is nil whatever the code; a signal that ended the
// root is a *SignalError with code -1. Any other error says that output was lost
// or that the tree could not be ended. Wait may be called more than once.
func (p *Process) Wait() (int, error) {
	<-p.done
	return p.state.Code, p.err
}

// Done is closed when the whole tree has ended and its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// State is how the tree ended; it waits for that.
func (p *Process) State() State {
	<-p.done
	return p.state
}

// Pid is the process id of the root.
func (p *Process) Pid() int { return p.pid }

// Stop sends sig to the root and returns. If the tree has not ended after grace,
// it is killed.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) {
	p.send(wireCommand{Signal: int(sig), GraceNs: int64(max(grace, 0))})
}

// Kill kills the whole tree and returns; Wait tells when it is gone.
func (p *Process) Kill() { p.send(wireCommand{Signal: int(syscall.SIGKILL)}) }

func (p *Process) send(c wireCommand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return
	}
	// An error means that the supervisor is gone, which Wait reports.
	_ = json.NewEncoder(p.life).Encode(c)
}

func (p *Process) closeLife() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life != nil {
		p.life.Close()
		p.life = nil
	}
}
