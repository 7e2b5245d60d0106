package loadgen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// fixedGrace is how long streams may go on once the server is to end.
const fixedGrace = 2 * time.Second

// FixedPlan is the schedule of every stream of a FixedServer: the first token
// TTFT after the request arrived, the others a Gap apart, the end a Gap after the
// last.
type FixedPlan struct {
	TTFT, Gap time.Duration
	Tokens    int
}

// FixedStream is the true account of one stream: when each token was written, in
// ns after the server's anchor.
type FixedStream struct {
	ID            string
	Arrived       int64
	Before, After []int64 // the call of write, and its return
	Held          []bool  // at its return the kernel had not sent all of it
	raw           syscall.RawConn
	Disconnected  bool
	LateByNs      int64 // the most that a write was after its time
	AnchorUnixNs  int64 // wall clock at the anchor
}

// FixedServer answers every completion request with the same stream at fixed
// times, and notes when it wrote. It is what a client is calibrated against.
type FixedServer struct {
	plan   FixedPlan
	anchor time.Time
	wall   int64 // the anchor on the wall clock, ns
	server *http.Server
	ln     net.Listener
	served chan error
	close  func() error
	events [][]byte
	tail   []byte

	mu      sync.Mutex
	streams []*FixedStream
}

// NewFixedServer listens on a free port of 127.0.0.1. anchor is the zero of its
// times; the zero time means now.
func NewFixedServer(plan FixedPlan, anchor time.Time) (*FixedServer, error) {
	if plan.Tokens < 1 || plan.TTFT < 0 || plan.Gap < 0 {
		return nil, fmt.Errorf("fixed server: want at least one token and no negative time, have %+v", plan)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fixed server: %w", err)
	}
	if anchor.IsZero() {
		anchor = time.Now()
	}
	s := &FixedServer{plan: plan, anchor: anchor, wall: WallAnchor(anchor), ln: ln, served: make(chan error, 1)}
	for range plan.Tokens {
		s.events = append(s.events, []byte("data: {\"id\":\"c\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"token \",\"finish_reason\":null}]}\n\n"))
	}
	s.tail = fmt.Appendf(nil, "data: {\"id\":\"c\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"+
		"data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", plan.Tokens)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", s.stream)
	mux.HandleFunc("POST /v1/chat/completions", s.stream)
	// Other clients ask before they measure.
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","data":[{"id":"fixed","object":"model"}]}`) //nolint:errcheck // the client sees it
	})
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, ConnContext: withRawConn}
	s.close = sync.OnceValue(s.end)
	go func() { s.served <- s.server.Serve(ln) }()
	return s, nil
}

// URL is where it answers.
func (s *FixedServer) URL() string { return "http://" + s.ln.Addr().String() }

// Streams returns the accounts of the streams that ended, and forgets them.
func (s *FixedServer) Streams() []*FixedStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.streams
	s.streams = nil
	return out
}

// Close ends the server, after the streams that are still going for a moment. A
// second call returns what the first did.
func (s *FixedServer) Close() error { return s.close() }

func (s *FixedServer) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), fixedGrace)
	defer cancel()
	err := s.server.Shutdown(ctx) // the accounts are whole when the handlers have returned
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	if serr := <-s.served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

// rawConnKey is the key of a connection's socket in its context.
type rawConnKey struct{}

func withRawConn(ctx context.Context, conn net.Conn) context.Context {
	if tcp, ok := conn.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			return context.WithValue(ctx, rawConnKey{}, raw)
		}
	}
	return ctx
}

func (s *FixedServer) now() int64 { return int64(time.Since(s.anchor)) }

func (s *FixedServer) stream(w http.ResponseWriter, r *http.Request) {
	raw, _ := r.Context().Value(rawConnKey{}).(syscall.RawConn)
	t := &FixedStream{raw: raw, Arrived: s.now(), ID: r.Header.Get("X-Request-Id"), AnchorUnixNs: s.wall,
		Before: make([]int64, 0, s.plan.Tokens), After: make([]int64, 0, s.plan.Tokens)}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams = append(s.streams, t)
	}()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Disconnected = true
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	if flush.Flush() != nil {
		t.Disconnected = true
		return
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for i := range s.plan.Tokens + 1 {
		due := t.Arrived + int64(s.plan.TTFT) + int64(i)*int64(s.plan.Gap)
		if !s.wait(r.Context(), timer, due) || !s.write(w, flush, t, i, due) {
			t.Disconnected = true
			return
		}
	}
}

func (s *FixedServer) wait(ctx context.Context, timer *time.Timer, due int64) bool {
	left := due - s.now()
	if left <= 0 {
		return ctx.Err() == nil
	}
	timer.Reset(time.Duration(left))
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// write sends token i, or the end of the stream after the last.
func (s *FixedServer) write(w io.Writer, flush *http.ResponseController, t *FixedStream, i int, due int64) bool {
	b := s.tail
	if i < s.plan.Tokens {
		b = s.events[i]
	}
	before := s.now()
	if _, err := w.Write(b); err != nil {
		return false
	}
	if flush.Flush() != nil {
		return false
	}
	if i < s.plan.Tokens {
		t.Before, t.After = append(t.Before, before), append(t.After, s.now())
		t.Held = append(t.Held, unsent(t.raw))
		t.LateByNs = max(t.LateByNs, before-due)
	}
	return true
}
