package emulated

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"assay/internal/serving"
)

// live is the serving system behind a server.
type live struct {
	s      *server
	system *serving.Live
	config serving.Config
	graphs *graphs // nil: none

	mu    sync.Mutex
	list  []string       // names by number
	index map[string]int // numbers by name
}

func newLive(s *server) (*live, error) {
	cfg, err := s.config.System()
	if err != nil {
		return nil, err
	}
	l := &live{s: s, config: cfg, index: map[string]int{}}
	for i, m := range s.config.Models {
		l.index[m.Name] = i
		l.list = append(l.list, m.Name)
	}
	if l.graphs, err = openGraphs(l); err != nil {
		return nil, err
	}
	l.system, err = serving.NewLive(cfg, s.config.TimeScale)
	return l, err
}

// name is that of a model.
func (l *live) name(model int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list[model]
}

func (l *live) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

func (l *live) number(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index[name]
}

// add makes a model known to the system, unless it is, and returns its number.
func (l *live) add(name string, base serving.BaseModel) (int, error) {
	l.mu.Lock()
	number, known := l.index[name]
	l.mu.Unlock()
	if known {
		return number, nil
	}
	if l.graphs != nil {
		if err := l.graphs.known(name, base.Name); err != nil {
			return 0, err
		}
	}
	fits, _, err := serving.LatenciesOf(l.s.config.Serving, l.config.Device.Name, []serving.BaseModel{base})
	if err != nil {
		return 0, err
	}
	if e := l.system.Do(func(sys *serving.System) {
		if number, err = sys.AddModel(serving.Served{Name: name, Base: base, Fit: fits[base.Name]}); err != nil {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = append(l.list, name)
		l.index[name] = number
	}); e != nil {
		return 0, e
	}
	return number, err
}

// observe sees what happens in the system.
func (l *live) observe(e serving.Event) {
	if l.s.aegaeon != nil {
		l.s.aegaeon.observe(e)
	}
	if l.graphs != nil {
		l.graphs.observe(e)
	}
	if l.s.profiler != nil {
		l.s.profiler.observe(e)
	}
}

// start runs the system until stop is called: requests that are under way when the
// server is to stop have their time.
func (l *live) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	l.system.Observe(l.observe)
	go func() {
		defer close(ended)
		l.system.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// admit hands a request to the system.
func (l *live) admit(g *generation) *apiError {
	t, err := l.system.Submit(l.number(g.req.model.Name), g.req.promptTokens, len(g.out.ids), g.arrived)
	if err != nil {
		return &apiError{status: http.StatusServiceUnavailable, Type: "service_unavailable", Message: err.Error()}
	}
	var failed *serving.Failed
	if errors.As(t.Err(), &failed) {
		return failure(failed)
	}
	g.ticket = t
	g.entry.TakenIn = &TakenIn{Index: t.Index, AtMs: t.AtMs}
	return nil
}

// failure is how a request that the system gave up ends for its client.
func failure(f *serving.Failed) *apiError {
	switch f.Why {
	case serving.FailedCapacity:
		return badRequest("max_tokens", "prompt and output do not fit into the KV memory of a device")
	case serving.FailedReplica:
		return &apiError{status: http.StatusServiceUnavailable, Type: "service_unavailable", Message: "no node has the model ready"}
	case serving.FailedPatience:
		return &apiError{status: http.StatusServiceUnavailable, Type: "timeout", Message: "no token within the patience of the system"}
	}
	return &apiError{status: http.StatusInternalServerError, Type: "internal_server_error", Message: f.Error()}
}

// await returns when token i has been made, and notes when it was due.
func (l *live) await(g *generation, i int) error {
	at, err := g.ticket.Token(g.http.Context(), i)
	if err == nil {
		g.out.due[i] = at.Sub(g.arrived)
		return nil
	}
	if errors.As(err, new(*serving.Failed)) {
		return err
	}
	return errClient
}
