package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"assay/internal/durable"
	"assay/internal/supervise"
	"assay/schemas"
)

const (
	// portAttempts is how often a free port is chosen anew when another process
	// takes it first.
	portAttempts = 4
	pollInterval = 20 * time.Millisecond
)

var (
	errReadyTimeout = errors.New("not ready in time")
	// errPortTaken says that the service could not bind its port.
	errPortTaken = errors.New("its port was taken by another process")
	bindFailure  = regexp.MustCompile(`(?i)address (is )?already in use|EADDRINUSE|only one usage of each socket address|port \d+ is (already )?in use`)
)

// Start starts the service of l, or attaches to it when its configuration has a
// url, and returns once it is ready. ctx bounds the start only. The error names
// the service, and holds the exit code and the end of the log when it died.
func Start(ctx context.Context, l Launch) (*Instance, error) {
	s, err := parseSettings(l)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.name(), err)
	}
	if s.URL != "" {
		return attach(ctx, l, s)
	}
	for attempt := 1; ; attempt++ {
		i, err := startOnce(ctx, l, s)
		if err == nil {
			return i, nil
		}
		if !errors.Is(err, errPortTaken) || s.Port != 0 || attempt == portAttempts {
			return nil, fmt.Errorf("%s: %w", l.name(), err)
		}
	}
}

// attach waits until the service at s.URL is ready.
func attach(ctx context.Context, l Launch, s settings) (*Instance, error) {
	i := &Instance{URL: s.URL, name: l.name(), settings: s, prober: l.prober(s.URL), done: make(chan struct{})}
	err := i.await(ctx, l.Engine)
	i.prober.client.CloseIdleConnections()
	if err != nil {
		// What a server answers may stand in an error, and hold what it was sent.
		return nil, hideError(l.hide, fmt.Errorf("%s: attach to %s: %w", l.name(), s.URL, err))
	}
	return i, nil
}

// startOnce starts the service on one port.
func startOnce(ctx context.Context, l Launch, s settings) (*Instance, error) {
	port, err := choosePort(s.Port)
	if err != nil {
		return nil, err
	}
	rendered, err := render(l, s)
	if err != nil {
		releasePort(port)
		return nil, err
	}
	spec, err := processSpec(l, s, rendered, port)
	if err != nil {
		releasePort(port)
		return nil, err
	}
	log, err := openLog(filepath.Join(l.LogDir, ServiceLog), l.Secrets, s.readyLog)
	if err != nil {
		releasePort(port)
		return nil, err
	}
	spec.Stdout, spec.Stderr = log, log
	process, err := supervise.Start(ctx, spec)
	if err != nil {
		releasePort(port)
		return nil, log.hideError(errors.Join(err, log.close()))
	}
	base := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	i := &Instance{URL: base, name: l.name(), settings: s, prober: l.prober(base), process: process, log: log, done: make(chan struct{}),
		LogFile: filepath.Join(l.LogDir, ServiceLog), GraphArchive: rendered.archive, Config: rendered.record}
	go func() {
		<-process.Done()
		i.logErr = log.close()
		releasePort(port)
		close(i.done)
	}()
	if err := i.await(ctx, l.Engine); err != nil {
		return nil, i.giveUp(err)
	}
	return i, nil
}

// giveUp ends a service that did not become ready and explains why.
func (i *Instance) giveUp(err error) error {
	died := false
	select {
	case <-i.done:
		died = true
	default:
		i.process.Kill()
		<-i.done
	}
	tail := i.log.last(tailLines)
	if died {
		err = errors.New(i.ended() + " before it was ready")
		if bindFailure.MatchString(tail) {
			err = fmt.Errorf("%w: %w", err, errPortTaken)
		}
	}
	if tail == "" {
		return fmt.Errorf("%w; its log is empty", err)
	}
	return fmt.Errorf("%w; its log (%s) ends with:\n%s", err, ServiceLog, tail)
}

// processSpec is the process to start.
func processSpec(l Launch, s settings, r started, port int) (supervise.Spec, error) {
	spec := supervise.Spec{Dir: s.Cwd, Env: environment(s.Env, l.Env, port), Token: l.Token}
	if l.Engine != Emulated {
		for _, a := range s.Command {
			spec.Argv = append(spec.Argv, r.withConfig(strings.ReplaceAll(a, "{port}", strconv.Itoa(port))))
		}
		return spec, nil
	}
	file, err := writeEmulatedConfig(l, r)
	if err != nil {
		return spec, err
	}
	exe := l.SelfExe
	if exe == "" {
		if exe, err = selfExe(); err != nil {
			return spec, err
		}
	}
	logDir, err := filepath.Abs(l.LogDir)
	if err != nil {
		return spec, err
	}
	spec.Path = exe
	spec.Argv = []string{"assay", "emulate", "--config", file,
		"--listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), "--emission-log", filepath.Join(logDir, EmissionLog)}
	return spec, nil
}

// selfExe is the running executable, even if its file was replaced meanwhile.
func selfExe() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil // the supervisor, which is the same, resolves it
	}
	return os.Executable()
}

// writeEmulatedConfig leaves the engine's configuration, defaults filled in,
// where the log goes: it tells what the latencies in there were made from.
func writeEmulatedConfig(l Launch, r started) (string, error) {
	keys := map[string]any{}
	for name, v := range l.Config {
		keys[name] = v
	}
	for _, f := range schemas.ServiceFields() { // not the engine's concern
		delete(keys, f.Name)
	}
	delete(keys, schemas.FieldAPIKey) // nor is it for a file
	if r.file != "" {
		keys["aegaeon_config"] = r.file // the mode and the archive stand in it
		delete(keys, "graph_mode")
		delete(keys, "graph_archive")
	}
	c, err := EmulatedConfig(keys)
	if err != nil {
		return "", err
	}
	b, err := schemas.Canonical(c)
	if err != nil {
		return "", err
	}
	file, err := filepath.Abs(filepath.Join(l.LogDir, ConfigFile))
	if err != nil {
		return "", err
	}
	if err := durable.WriteFile(file, append(b, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("engine configuration: %w", err)
	}
	return file, nil
}

// await returns when the service is ready, or with an error when it died, time is
// up, or ctx ended; then it fills in what the service says about itself.
func (i *Instance) await(ctx context.Context, engine string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, i.settings.readyTimeout(), errReadyTimeout)
	defer cancel()
	go func() { // a probe must not outlast the process it asks
		select {
		case <-i.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var last error // what the last probe missed that was not cut short
	for {
		err := i.probe(ctx, engine)
		if err == nil {
			return i.describe(ctx, engine)
		}
		if denied := (*statusError)(nil); errors.As(err, &denied) && denied.denied() {
			return fmt.Errorf("is up, but %w", err) // it will not answer otherwise however long it is asked
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-i.done:
			return errors.New("ended before it was ready")
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errReadyTimeout) {
				return fmt.Errorf("%w (ready_timeout %s): %w", errReadyTimeout, i.settings.ReadyTimeout, last)
			}
			return context.Cause(ctx)
		case <-poll.C:
		}
	}
}

// probe returns nil when the service is ready, else what is missing.
func (i *Instance) probe(ctx context.Context, engine string) error {
	if i.settings.readyLog != nil && !i.log.ready() {
		return fmt.Errorf("no line of its log matches ready_log %q", i.settings.ReadyLog)
	}
	if i.settings.ReadyPath != "" {
		if err := i.prober.answers(ctx, i.settings.ReadyPath); err != nil {
			return err
		}
	}
	if engine != Emulated {
		return nil
	}
	// Another process may have taken the port and answer in its place.
	pid, err := i.prober.emulatedPID(ctx)
	if err == nil && pid != i.process.Pid() {
		err = fmt.Errorf("process %d answers at its port: %w", pid, errPortTaken)
	}
	return err
}

// describe asks for the models. Only an engine that is known to have no such list
// may go without.
func (i *Instance) describe(ctx context.Context, engine string) error {
	names, isEmulated, err := i.prober.models(ctx)
	var status *statusError
	if engine == PyPTO && errors.As(err, &status) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("is up, but its models cannot be listed: %w", err)
	}
	i.Models, i.Emulated = names, isEmulated || engine == Emulated
	return nil
}
