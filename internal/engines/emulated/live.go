package emulated

import (
	"context"
	"errors"
	"net/http"

	"assay/internal/serving"
)

// live is the serving system behind a server.
type live struct {
	s      *server
	system *serving.Live
	index  map[string]int // of a model
}

func newLive(s *server) (*live, error) {
	cfg, err := s.config.system()
	if err != nil {
		return nil, err
	}
	l := &live{s: s, index: map[string]int{}}
	for i, m := range s.config.Models {
		l.index[m.Name] = i
	}
	l.system, err = serving.NewLive(cfg, s.config.TimeScale)
	return l, err
}

// start runs the system until stop is called: requests that are under way when the
// server is to stop have their time.
func (l *live) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
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
	t, err := l.system.Submit(l.index[g.req.model.Name], g.req.promptTokens, len(g.out.ids), g.arrived)
	if err != nil {
		return &apiError{status: http.StatusServiceUnavailable, Type: "service_unavailable", Message: err.Error()}
	}
	var failed *serving.Failed
	if errors.As(t.Err(), &failed) {
		return failure(failed)
	}
	g.ticket = t
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
