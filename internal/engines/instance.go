package engines

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"assay/internal/supervise"
	"assay/schemas"
)

// Instance is a service that is up.
type Instance struct {
	// URL is its base, without a slash at the end.
	URL string
	// Models are the names it listed when it was ready, sorted; empty for an engine
	// without a list. Listed has those it listed last.
	Models []string
	// Emulated says that its latencies are made up.
	Emulated bool
	// LogFile is its log while it lives; "" when attached.
	LogFile string
	// GraphArchive is the folder of its archives of CUDA graphs; "" for none.
	GraphArchive string
	// Config says what its configuration file was started with; nil for none.
	Config *schemas.ServiceConfig

	name     string
	settings settings
	prober   *prober

	process *supervise.Process // nil when attached
	log     *serviceLog        // likewise
	done    chan struct{}
	logErr  error // valid once done is closed

	mu       sync.Mutex
	listed   []string // nil: as Models
	stopping bool
	detached bool
}

// StopReport is how a service ended.
type StopReport struct {
	// Attached services are left as they are.
	Attached bool
	// ExitCode is -1 when a signal ended the process.
	ExitCode int
	// Killed says that a process of the service had to be killed.
	Killed bool
	// Leftover counts processes that outlived the service's first one.
	Leftover int
	// Err says that output was lost or that a process could not be ended; an
	// exit code or signal is no error here.
	Err error
}

// Listed are the names that it listed when it was asked last.
func (i *Instance) Listed() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.listed == nil {
		return i.Models
	}
	return i.listed
}

// Relist asks it for its models again: deploying changes them.
func (i *Instance) Relist(ctx context.Context) error {
	names, _, err := i.prober.models(ctx)
	if err != nil {
		return fmt.Errorf("its models cannot be listed: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listed = append([]string{}, names...)
	return nil
}

// Done is closed when the service is gone: its processes have ended and its log
// is complete. For an attached one, when Stop was called.
func (i *Instance) Done() <-chan struct{} { return i.done }

// Pid is the id of the first process, 0 when attached.
func (i *Instance) Pid() int {
	if i.process == nil {
		return 0
	}
	return i.process.Pid()
}

// Dead says why the service is gone, "" while it lives.
func (i *Instance) Dead() string {
	select {
	case <-i.done:
	default:
		return ""
	}
	i.mu.Lock()
	stopped := i.stopping
	i.mu.Unlock()
	switch {
	case i.process == nil:
		return i.name + " was detached from"
	case stopped:
		return i.name + " was stopped"
	}
	reason := i.name + " " + i.ended()
	if last := i.log.last(1); last != "" {
		reason += "; its log ends with: " + last
	}
	return reason
}

// ended words how the process ended.
func (i *Instance) ended() string {
	code, err := i.process.Wait()
	var sig *supervise.SignalError
	switch {
	case errors.As(err, &sig):
		return fmt.Sprintf("was ended by signal %d (%s)", int(sig.Signal), sig.Signal)
	case err != nil:
		return "ended: " + i.log.hide(err.Error())
	}
	return fmt.Sprintf("ended with exit code %d", code)
}

// Stop asks the service to stop with its stop signal, kills it after its grace or
// when ctx ends, and returns when it is gone. An attached service is left alone.
func (i *Instance) Stop(ctx context.Context) StopReport {
	i.mu.Lock()
	i.stopping = true
	first := !i.detached
	i.detached = true
	i.mu.Unlock()
	if i.process == nil {
		if first {
			close(i.done)
		}
		return StopReport{Attached: true}
	}
	i.process.Stop(i.settings.signal, i.settings.StopGrace.Std())
	select {
	case <-i.done:
	case <-ctx.Done():
		i.process.Kill()
		<-i.done
	}
	state := i.process.State()
	report := StopReport{ExitCode: state.Code, Killed: state.Killed, Leftover: state.Leftover}
	var sig *supervise.SignalError
	if _, err := i.process.Wait(); err != nil && !errors.As(err, &sig) {
		report.Err = err
	}
	report.Err = errors.Join(report.Err, i.logErr)
	return report
}
