package emulated

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"assay/internal/durable"
	"assay/internal/serving"
)

// span is an event of a trace. Times are microseconds on a clock of the host that
// is not that of the day.
type span struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat"`
	Ph   string         `json:"ph"`
	S    string         `json:"s,omitempty"`
	TS   int64          `json:"ts"`
	Dur  *int64         `json:"dur,omitempty"`
	PID  int            `json:"pid"`
	TID  int64          `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

func (s span) end() int64 {
	if s.Dur == nil {
		return s.TS
	}
	return s.TS + *s.Dur
}

// maxSpans bounds what one profile keeps.
const maxSpans = 1_000_000

// profiler records spans between a start and a stop. What the system is about to do
// is recorded when it begins, with the time that it will take.
type profiler struct {
	output string
	levels levels
	origin time.Time
	// at gives the wall's time of the system's; nil without a system.
	at func(ms int64) time.Time
	// model names a model.
	model func(int) string

	mu    sync.Mutex
	on    bool
	spans []span
}

func newProfiler(p Profile, origin time.Time) *profiler {
	l, _ := parseLevels(p.Level) // Config.check has read it
	return &profiler{output: p.Output, levels: l, origin: origin}
}

func (p *profiler) us(t time.Time) int64 { return t.Sub(p.origin).Microseconds() }

// folders are where the fragments and the whole trace go.
func (p *profiler) files() (fragments, trace string) {
	if strings.HasSuffix(p.output, ".json") {
		return p.output + ".fragments", p.output
	}
	return filepath.Join(p.output, "fragments"), filepath.Join(p.output, "trace.json")
}

// start begins a profile; one under way goes on. It deletes the last one's files.
func (p *profiler) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on {
		return nil
	}
	fragments, trace := p.files()
	if err := durable.RemoveAll(fragments); err != nil {
		return fmt.Errorf("start profile: %w", err)
	}
	if err := durable.Remove(trace); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start profile: %w", err)
	}
	if err := durable.MkdirAll(fragments); err != nil {
		return fmt.Errorf("start profile: %w", err)
	}
	p.on, p.spans = true, nil
	return nil
}

// stop ends a profile and writes its files; without one it does nothing. It returns
// the number of events.
func (p *profiler) stop() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on {
		return 0, nil
	}
	p.on = false
	now := p.us(time.Now())
	pid := os.Getpid()
	lines := [][]byte{encode(map[string]any{"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": map[string]any{"name": "pypto-serving-api"}})}
	for _, s := range p.spans {
		if s.end() <= now {
			lines = append(lines, encode(s))
		}
	}
	p.spans = nil
	fragments, trace := p.files()
	whole := append([]byte(`{"traceEvents":[`), bytes.Join(lines, []byte(",\n"))...)
	err := durable.WriteFile(filepath.Join(fragments, fmt.Sprintf("trace.%d.jsonl", pid)), append(bytes.Join(lines, []byte("\n")), '\n'), 0o644)
	if err == nil {
		err = durable.WriteFile(trace, append(whole, "]}\n"...), 0o644)
	}
	if err != nil {
		return 0, fmt.Errorf("stop profile: %w", err)
	}
	return len(lines), nil
}

func (p *profiler) add(name, cat string, from, to time.Time, tid int64, args map[string]any) {
	dur := max(0, to.Sub(from).Microseconds())
	p.put(span{Name: name, Cat: cat, Ph: "X", TS: p.us(from), Dur: &dur, TID: tid, Args: args})
}

func (p *profiler) put(s span) {
	s.PID = os.Getpid()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on && len(p.spans) < maxSpans {
		p.spans = append(p.spans, s)
	}
}

// observe records a step of the system.
func (p *profiler) observe(e serving.Event) {
	if e.Kind != serving.EventPrefill && e.Kind != serving.EventDecode {
		return
	}
	p.step(e.Kind == serving.EventPrefill, p.at(e.AtMs), p.at(e.AtMs+e.Ms), int64(e.Worker), p.model(e.Model), e.Tokens)
}

// step records the spans of one step of a worker.
func (p *profiler) step(prefill bool, from, to time.Time, worker int64, model string, tokens int) {
	what := "decode"
	if prefill {
		what = "prefill"
	}
	args := map[string]any{"model": model, "tokens": tokens}
	tid := worker + 1
	if p.levels.e2e {
		p.add("scheduler.schedule", "scheduler", from, from, 0, nil)
		p.add("scheduler.queue_worker_step", "scheduler", from, from, 0, nil)
		p.add("scheduler.wait_worker_output", "scheduler", from, to, 0, nil)
		p.add("scheduler.process_step_output", "scheduler", to, to, 0, nil)
		p.add("WorkerProcess.execute_step", "worker", from, to, tid, args)
		p.add("WorkerProcess.batch_"+what, "worker", from, to, tid, args)
	}
	if p.levels.verbose {
		if prefill {
			p.add("DeepSeekV4ModelRunner.prefill.prepare_inputs", "executor", from, from, tid, nil)
			p.add("DeepSeekV4ModelRunner.prefill.l3_dispatch", "executor", from, to, tid, nil)
		} else {
			p.add("DeepSeekV4ModelRunner.decode.prepare", "executor", from, from, tid, nil)
		}
	}
	if p.levels.kernel {
		us := to.Sub(from).Microseconds()
		p.add("kernel."+what+"_fwd", "kernel", from, to, tid, map[string]any{"device_wall_us": us, "host_wall_us": us})
		p.add("kernel.greedy_sample_fwd", "kernel", to, to, tid, map[string]any{"device_wall_us": 0, "host_wall_us": 0})
	}
}

// request records the spans of a request that has ended.
func (p *profiler) request(g *generation) {
	if !p.levels.e2e {
		return
	}
	name, instant, now := "completions", "http.stream_completion.finished", time.Now()
	if g.req.chat {
		name, instant = "chat_completions", "http.stream_chat.finished"
	}
	tid, args := g.arrived.UnixNano(), map[string]any{"model_id": g.req.model.Name, "prompt_tokens": g.req.promptTokens}
	if !g.req.stream {
		p.add("http."+name, "request", g.arrived, now, tid, args)
	} else {
		p.add("http."+name, "request", g.arrived, g.arrived, tid, args) // until the response object is there
		p.add("http.stream_"+strings.TrimSuffix(name, "s"), "request", g.arrived, now, tid, args)
		p.put(span{Name: instant, Cat: "request", Ph: "i", S: "t", TS: p.us(now), TID: tid})
	}
	if g.ticket != nil {
		return // its steps were the system's
	}
	made := 0
	for _, c := range g.entry.Chunks {
		made += c.Tokens
	}
	from := g.arrived
	for i, due := range g.out.due[:made] {
		to := g.arrived.Add(due)
		p.step(i == 0, from, to, 0, g.req.model.Name, g.req.promptTokens+i)
		from = to
	}
}

func (s *server) startProfile(w http.ResponseWriter, _ *http.Request) {
	if err := s.profiler.start(); err != nil {
		s.face.fail(w, &apiError{status: http.StatusInternalServerError, Type: "internal_server_error", Message: err.Error()})
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *server) stopProfile(w http.ResponseWriter, _ *http.Request) {
	n, err := s.profiler.stop()
	if err != nil {
		s.face.fail(w, &apiError{status: http.StatusInternalServerError, Type: "internal_server_error", Message: err.Error()})
		return
	}
	if n > 0 {
		s.line("SA profiler stopped; merged %d events", n)
	}
	w.WriteHeader(http.StatusOK)
}
