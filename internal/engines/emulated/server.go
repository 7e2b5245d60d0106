package emulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// shutdownLimit is how long requests may go on once the server is to stop.
const shutdownLimit = 2 * time.Second

// Options say where a server listens and what it writes.
type Options struct {
	// Listen is a loopback address, "127.0.0.1:0" for any free port. It is not
	// used when Listener is set.
	Listen   string
	Listener net.Listener
	// EmissionLog is a file to append emissions to, "" for none.
	EmissionLog string
	// Log takes one line when the server listens, and what goes wrong.
	Log io.Writer
	// Ready is called with the address once connections are accepted.
	Ready func(addr string)
	// Die ends the process for the fault "die". By default it is killed.
	Die func()
}

// server is one running engine.
type server struct {
	config   Config
	opts     Options
	models   map[string]Model
	mu       sync.Mutex          // of tallies
	tallies  map[string]*tallies // of each model
	log      *emissionLog
	started  time.Time
	seen     atomic.Int64 // generation requests that arrived
	http     *http.Server
	refuse   sync.Once
	listener net.Listener
	live     *live // nil: requests do not contend
	face     personality
	aegaeon  *aegaeonState // nil: another personality
	profiler *profiler     // nil: none is configured
	tokens   tokenizer
}

// Serve serves c until ctx ends, lets running requests go on for two seconds,
// completes the emission log and returns nil. A caller that wants SIGTERM to stop
// it ties ctx to that signal.
func Serve(ctx context.Context, c Config, opts Options) error {
	if err := c.check(); err != nil {
		return err
	}
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	opts.Log = &sharedWriter{w: opts.Log}
	if opts.Die == nil {
		opts.Die = killSelf
	}
	if c.Fault != nil && c.Fault.Kind == faultSlowStart && !waitUntil(ctx, time.Now().Add(c.Fault.Delay.Std())) {
		return nil
	}
	if c.LoadTime > 0 && !waitUntil(ctx, time.Now().Add(time.Duration(float64(c.LoadTime)/c.TimeScale))) {
		return nil
	}
	ln, err := listen(opts)
	if err != nil {
		return err
	}
	emissions, err := openEmissions(opts.EmissionLog, c)
	if err != nil {
		ln.Close()
		return err
	}
	s, err := newServer(c, opts)
	if err != nil {
		ln.Close()
		return errors.Join(err, emissions.close())
	}
	s.log, s.listener = emissions, ln
	err = s.run(ctx)
	if s.live != nil && s.live.graphs != nil {
		err = errors.Join(err, s.live.graphs.close())
	}
	return errors.Join(err, emissions.close())
}

// newServer is a server that is not listening yet, with what its configuration
// asks for behind it.
func newServer(c Config, opts Options) (*server, error) {
	s := &server{config: c, opts: opts, models: map[string]Model{}, tallies: map[string]*tallies{}, started: time.Now(), face: personalityOf(c.Personality)}
	for _, m := range c.Models {
		s.models[m.Name] = m
	}
	if c.Profile != nil {
		s.profiler = newProfiler(*c.Profile, s.started)
	}
	if c.Serving == nil {
		return s, nil
	}
	var err error
	if s.live, err = newLive(s); err != nil {
		return nil, err
	}
	if c.Personality == PersonalityAegaeon {
		s.aegaeon = newAegaeon(s)
	}
	if s.profiler != nil {
		s.profiler.at, s.profiler.model = s.live.system.Wall().At, s.live.name
	}
	return s, nil
}

func listen(opts Options) (net.Listener, error) {
	if opts.Listener != nil {
		return opts.Listener, nil
	}
	host, _, err := net.SplitHostPort(opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: want HOST:PORT like 127.0.0.1:0: %w", opts.Listen, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("listen on %q: an emulated engine serves this machine only; use 127.0.0.1", opts.Listen)
	}
	ln, err := net.Listen("tcp", opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return ln, nil
}

// run accepts requests until ctx ends. A closed listener alone does not end it:
// that is the fault "refuse".
func (s *server) run(ctx context.Context) error {
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	s.http = &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          log.New(s.opts.Log, "", log.LstdFlags|log.LUTC),
	}
	if s.live != nil {
		defer s.live.start(ctx)()
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	fmt.Fprintf(s.opts.Log, "%s listening on http://%s models %s\n", Name, s.listener.Addr(), strings.Join(s.names(), ","))
	if c := s.config.Personality; c != "" && c != PersonalityOpenAI {
		s.line("INFO:     Application startup complete.")
	}
	if s.opts.Ready != nil {
		s.opts.Ready(s.listener.Addr().String())
	}
	var serveErr error
	select {
	case <-ctx.Done():
	case serveErr = <-served:
		if errors.Is(serveErr, net.ErrClosed) { // refuse: connections that are open go on
			serveErr = nil
			<-ctx.Done()
		}
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	if s.http.Shutdown(limit) != nil {
		stop(errShutdown) // streams end themselves and log it
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
		defer cancel()
		if s.http.Shutdown(last) != nil {
			s.http.Close() // a client that does not read holds up the rest
		}
	}
	if s.profiler != nil {
		if _, err := s.profiler.stop(); err != nil {
			return errors.Join(serveErr, err)
		}
	}
	if serveErr != nil {
		return fmt.Errorf("serve: %w", serveErr)
	}
	return nil
}

// line writes a line to the engine's log.
func (s *server) line(format string, args ...any) { fmt.Fprintf(s.opts.Log, format+"\n", args...) }

// sharedWriter takes one write at a time.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *sharedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(b)
}

// tally is the account of a model.
func (s *server) tally(model string) *tallies {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tallies[model]
	if t == nil {
		t = &tallies{}
		s.tallies[model] = t
	}
	return t
}

func (s *server) names() []string {
	out := make([]string, len(s.config.Models))
	for i, m := range s.config.Models {
		out[i] = m.Name
	}
	return out
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	s.face.routes(s, mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", Name)
		mux.ServeHTTP(w, r)
	})
}

// openaiRoutes are the endpoints of any OpenAI-compatible server.
func openaiRoutes(s *server, mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "engine": Name, "pid": os.Getpid()})
	})
	mux.HandleFunc("GET /metrics", s.writeMetrics)
	mux.HandleFunc("GET /v1/models", s.listModels)
	mux.HandleFunc("GET /v1/models/{name...}", s.showModel)
	s.generating(mux)
}

func (s *server) listModels(w http.ResponseWriter, _ *http.Request) {
	data := make([]any, len(s.config.Models))
	for i, m := range s.config.Models {
		data[i] = s.describe(m)
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

func (s *server) showModel(w http.ResponseWriter, r *http.Request) {
	m, ok := s.models[r.PathValue("name")]
	if !ok {
		writeError(w, badRequest("model", "the model does not exist").withCode(http.StatusNotFound, "model_not_found"))
		return
	}
	writeJSON(w, http.StatusOK, s.describe(m))
}

// generating are the endpoints that generate, in the form of the personality.
func (s *server) generating(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, false) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.generate(w, r, true) })
}

func (s *server) describe(m Model) any {
	return map[string]any{"id": m.Name, "object": "model", "created": s.started.Unix(), "owned_by": Name, "max_model_len": m.MaxModelLen}
}

// waitUntil returns at t, or false when ctx ends first.
func waitUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
