package observe

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// SummaryFile holds what a Recorder gives, beside the files it sums up.
const SummaryFile = "observed.json"

// What bounds the looks after the last answer, together.
const (
	afterLimit       = 15 * time.Second
	interruptedLimit = 3 * time.Second
)

// never is the interval of sources that are only looked at before and after.
const never = 10000 * time.Hour

// Options say what is observed and where it is written.
type Options struct {
	Config
	URL    string
	Engine string
	// Key goes with everything that is asked of the service.
	Key schemas.APIKey
	// PID is the service's first process; 0 for one that was attached to.
	PID int
	// Dir is an existing folder for the files.
	Dir string
	// Hide cuts secrets out of text; nil for none.
	Hide func(string) string
	// Run starts programs; nil: none can be. Env is their environment.
	Run RunProgram
	Env []string
	// Subject names the stage in findings.
	Subject string
}

// Recorder observes a service from before the first request until after the last
// answer.
type Recorder struct {
	opts      Options
	zero      time.Time
	started   time.Time
	sources   []*schemas.ObservedSource
	watchers  []*watcher
	profiling *schemas.ObservedSource
	findings  []schemas.Finding
	failed    error // a file could not be written
}

// Start resets caches, makes the looks before the first request, and begins a
// profile. It returns an error if one of these fails that the stage cannot do
// without; then nothing goes on. A source that answers nothing is unknown.
func Start(ctx context.Context, opts Options) (*Recorder, error) {
	if opts.Hide == nil {
		opts.Hide = func(s string) string { return s }
	}
	r := &Recorder{opts: opts, started: time.Now()}
	if err := r.reset(ctx); err != nil {
		return nil, err
	}
	if err := r.watchAll(ctx); err != nil {
		r.abandon()
		return nil, err
	}
	if err := r.startProfile(ctx); err != nil {
		r.abandon()
		return nil, err
	}
	return r, nil
}

// source adds a row for a source.
func (r *Recorder) source(name string, on bool) *schemas.ObservedSource {
	st := &schemas.ObservedSource{Name: name, Status: schemas.ObservedOff, Files: []string{}}
	if on {
		st.Status = schemas.ObservedSeen
	}
	r.sources = append(r.sources, st)
	return st
}

// watchAll starts every source that is wanted and waits until each has looked.
func (r *Recorder) watchAll(ctx context.Context) error {
	c, aegaeon := r.opts.Config, r.opts.Engine == "aegaeon"
	wanted := func(choice string, auto bool) bool {
		return choice == schemas.ObserveOn || choice == schemas.ObserveAuto && auto
	}
	if st := r.source("snapshot", wanted(c.Snapshot, aegaeon) || c.requires("snapshot")); st.Status == schemas.ObservedSeen {
		if err := r.add(ctx, st, c.SnapshotPath, never, func(ep *endpoint) looker {
			return &snapshots{ep: ep, path: c.SnapshotPath, dir: r.opts.Dir, hide: r.opts.Hide, st: st}
		}); err != nil {
			return err
		}
	}
	if st := r.source("events", wanted(c.Events, aegaeon) || c.requires("events")); st.Status == schemas.ObservedSeen {
		if err := r.add(ctx, st, c.EventsPath, never, func(ep *endpoint) looker {
			return &events{ep: ep, path: c.EventsPath, dir: r.opts.Dir, hide: r.opts.Hide, st: st}
		}); err != nil {
			return err
		}
	}
	if st := r.source("metrics", wanted(c.Metrics, true) || c.requires("metrics")); st.Status == schemas.ObservedSeen {
		st.IntervalS = c.MetricsInterval.Seconds()
		if err := r.add(ctx, st, c.MetricsPath, c.MetricsInterval, func(ep *endpoint) looker {
			return newScraper(ep, c.MetricsPath, r.opts.Dir, r.opts.Hide, st)
		}); err != nil {
			return err
		}
	}
	if err := r.watchGPU(ctx); err != nil {
		return err
	}
	// With "auto" a service of somebody else leaves the host alone: it may run elsewhere.
	st := r.source("host", wanted(c.Host, r.opts.PID != 0) || c.requires("host"))
	if st.Status == schemas.ObservedOff {
		return nil
	}
	st.IntervalS = c.HostInterval.Seconds()
	h := &hostLooker{dir: r.opts.Dir, pid: r.opts.PID, st: st}
	if h.pid == 0 {
		h.why = "the service was attached to: its processes are not known here"
	}
	return r.admit(ctx, st, watch(ctx, h, st, c.HostInterval))
}

func (r *Recorder) watchGPU(ctx context.Context) error {
	c := r.opts.Config
	if c.GPU == schemas.ObserveOff && c.requires("gpu") {
		c.GPU = smiProgram
	}
	st := r.source("gpu", c.GPU != schemas.ObserveOff && c.GPU != "")
	if st.Status == schemas.ObservedOff {
		return nil
	}
	st.IntervalS = c.GPUInterval.Seconds()
	g := &gpus{dir: r.opts.Dir, hide: r.opts.Hide, st: st, run: r.opts.Run, env: r.opts.Env, interval: c.GPUInterval}
	if c.GPU != "service" {
		st.From = smiProgram
		return r.admit(ctx, st, watch(ctx, g, st, c.GPUInterval))
	}
	return r.add(ctx, st, c.GPUPath, c.GPUInterval, func(ep *endpoint) looker { g.ep = ep; return g })
}

// add starts a source that asks the service at a path.
func (r *Recorder) add(ctx context.Context, st *schemas.ObservedSource, path string, interval time.Duration, make func(*endpoint) looker) error {
	st.From = path
	ep, err := r.opts.endpoint(r.opts.Config.Timeout)
	if err != nil {
		return fmt.Errorf("observe %s: %w", st.Name, err)
	}
	return r.admit(ctx, st, watch(ctx, make(ep), st, interval))
}

// admit waits for a source's first look. One at a time: looks before the first
// request disturb nothing.
func (r *Recorder) admit(ctx context.Context, st *schemas.ObservedSource, w *watcher) error {
	r.watchers = append(r.watchers, w)
	err := <-w.ready
	var write *writeError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &write):
		return &WriteError{write.err}
	}
	text := r.opts.Hide(err.Error())
	st.Status, st.Unknown, st.LastError = schemas.ObservedUnknown, text, text
	if r.opts.requires(st.Name) {
		return fmt.Errorf("observe: the stage requires %s: %s %s", st.Name, st.From, text)
	}
	if r.asked(st.Name) {
		r.find("observe."+st.Name, schemas.SeverityUnknown, "say "+st.Name+` = "off" if the service has none`, "%s %s: %s", st.Name, st.From, text)
	}
	return nil
}

// asked says whether a source was named, rather than looked for.
func (r *Recorder) asked(name string) bool {
	c := r.opts.Config
	return map[string]bool{"metrics": c.Metrics == schemas.ObserveOn, "snapshot": c.Snapshot == schemas.ObserveOn || r.opts.Engine == "aegaeon",
		"events": c.Events == schemas.ObserveOn || r.opts.Engine == "aegaeon", "host": c.Host == schemas.ObserveOn, "gpu": true}[name]
}

func (r *Recorder) find(id string, severity schemas.Severity, remedy, format string, args ...any) {
	r.findings = append(r.findings, schemas.Finding{ID: id, Severity: severity, Subject: r.opts.Subject, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Begin sets the zero of the run's clock. From then on sources are looked at by
// their intervals.
func (r *Recorder) Begin(zero time.Time) {
	r.zero = zero
	for _, w := range r.watchers {
		if s := sinkOf(w.looker); s != nil {
			s.begin(zero)
		}
		w.zero <- zero
	}
}

func sinkOf(l looker) *sink {
	switch x := l.(type) {
	case *scraper:
		return x.out
	case *events:
		return x.out
	case *gpus:
		return x.out
	case *hostLooker:
		return x.out
	}
	return nil
}

// abandon ends everything before the clock had a zero.
func (r *Recorder) abandon() {
	for _, w := range r.watchers {
		w.end <- nil
		<-w.done
		_ = w.finish() // what led here is told
	}
}

// End makes the looks after the last answer and gives what was seen, with findings
// for Check to add to. The error is that of writing, or of a source the stage
// requires.
func (r *Recorder) End(ctx context.Context) (schemas.Observed, []schemas.Finding, error) {
	out := schemas.Observed{ToNs: int64(time.Since(r.zero)), Sources: []schemas.ObservedSource{}, Series: []schemas.ObservedSeries{},
		Values: map[string]schemas.Value{}, Checks: []schemas.ObservedCheck{}}
	limit := afterLimit
	if ctx.Err() != nil {
		limit = interruptedLimit
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for _, w := range r.watchers {
		w.end <- last
	}
	var cpu time.Duration
	var failed []error
	for _, w := range r.watchers {
		<-w.done
		cpu += w.cpu
	}
	r.stopProfile(ctx)
	for _, w := range r.watchers {
		if err := w.finish(); err != nil {
			r.failed = errors.Join(r.failed, err)
		}
		if w.st.Status == schemas.ObservedSeen {
			w.summarize(&out)
			failed = append(failed, r.lastLook(w))
		}
		if e, ok := w.looker.(*events); ok {
			cpu += e.cpu
		}
	}
	for _, st := range r.sources {
		st.LastError = r.opts.Hide(st.LastError)
		out.Sources = append(out.Sources, *st)
	}
	if took := time.Since(r.started); cpu > 0 {
		s, cores := cpu.Seconds(), cpu.Seconds()/took.Seconds()
		out.CPUS, out.CPUCores = &s, &cores
	}
	if r.failed != nil {
		return out, r.findings, &WriteError{r.failed}
	}
	return out, r.findings, errors.Join(failed...)
}

// WriteError says that files of observations could not be written.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// lastLook judges a source by its look after the last answer.
func (r *Recorder) lastLook(w *watcher) error {
	var write *writeError
	if errors.As(w.ended, &write) {
		return nil // told by finish
	}
	st := w.st
	if w.ended != nil {
		st.Unknown = unseenAfter + ": " + r.opts.Hide(w.ended.Error())
		if r.opts.requires(st.Name) {
			return fmt.Errorf("observe: the stage requires %s: %s", st.Name, st.Unknown)
		}
	}
	if all := st.Looks + st.Errors; st.Errors*10 > all {
		r.find("observe."+st.Name, schemas.SeverityWarning, "its series has holes; the file has each error", "%s: %d of %d looks failed, lastly: %s", st.Name, st.Errors, all, r.opts.Hide(st.LastError))
	}
	return nil
}

// Write leaves the summary beside the files.
func (r *Recorder) Write(out schemas.Observed) error {
	b, err := schemas.Encode(out)
	if err != nil {
		return fmt.Errorf("observed: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(r.opts.Dir, SummaryFile), append(b, '\n'), 0o644); err != nil {
		return &WriteError{fmt.Errorf("observed: %w", err)}
	}
	return nil
}
