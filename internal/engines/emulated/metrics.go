package emulated

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// tallies count what a model has served. They are true even where a fault makes
// usage lie.
type tallies struct {
	mu                   sync.Mutex
	running              int
	stop, length         int64
	prompt, generated    int64
	firstTokens          int64
	firstTokensS, e2eSum float64
	begun, aborted       int64
	// left are those that ended without a first token.
	left            int64
	ttft, gaps, e2e histogram
}

// waiting is how many requests under way have no token yet.
func (t *tallies) waiting() int { return int(t.begun - t.firstTokens - t.left) }

func (t *tallies) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
	t.begun++
}

// tokens counts tokens that were written, so long after the request arrived; the
// prompt counts with the first of them, a gap with any other.
func (t *tallies) tokens(n, prompt int, first bool, after, gap time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.generated += int64(n)
	if first {
		t.prompt += int64(prompt)
		t.firstTokens++
		t.firstTokensS += after.Seconds()
		t.ttft.add(after)
		return
	}
	t.gaps.add(gap)
}

// end counts a request that has ended; begun says that it had a token.
func (t *tallies) end(ok, begun bool, finish string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	if !begun {
		t.left++
	}
	switch {
	case !ok:
		t.aborted++
		return
	case finish == "stop":
		t.stop++
	default:
		t.length++
	}
	t.e2eSum += took.Seconds()
	t.e2e.add(took)
}

// queued is how many requests of a model wait; without a system, none do.
func (s *server) queued(t *tallies) int {
	if s.live == nil {
		return 0
	}
	return t.waiting()
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// writeMetrics answers in the Prometheus text format, with the names that serving
// engines use behind a prefix of its own.
func (s *server) writeMetrics(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	family := func(name, kind string, each func(model string, t *tallies)) {
		fmt.Fprintf(&b, "# TYPE emulated:%s %s\n", name, kind)
		for _, m := range s.config.Models {
			t := s.tally(m.Name)
			t.mu.Lock()
			each(`model_name="`+escapeLabel.Replace(m.Name)+`"`, t)
			t.mu.Unlock()
		}
	}
	one := func(name, kind string, value func(t *tallies) int64) {
		family(name, kind, func(model string, t *tallies) { fmt.Fprintf(&b, "emulated:%s{%s} %d\n", name, model, value(t)) })
	}
	one("num_requests_running", "gauge", func(t *tallies) int64 { return int64(t.running - s.queued(t)) })
	one("num_requests_waiting", "gauge", func(t *tallies) int64 { return int64(s.queued(t)) })
	one("prompt_tokens_total", "counter", func(t *tallies) int64 { return t.prompt })
	one("generation_tokens_total", "counter", func(t *tallies) int64 { return t.generated })
	family("request_success_total", "counter", func(model string, t *tallies) {
		fmt.Fprintf(&b, "emulated:request_success_total{%s,finished_reason=\"stop\"} %d\n", model, t.stop)
		fmt.Fprintf(&b, "emulated:request_success_total{%s,finished_reason=\"length\"} %d\n", model, t.length)
	})
	summary := func(name string, value func(t *tallies) (float64, int64)) {
		family(name, "summary", func(model string, t *tallies) {
			sum, n := value(t)
			fmt.Fprintf(&b, "emulated:%s_sum{%s} %.9f\nemulated:%s_count{%s} %d\n", name, model, sum, name, model, n)
		})
	}
	summary("time_to_first_token_seconds", func(t *tallies) (float64, int64) { return t.firstTokensS, t.firstTokens })
	summary("e2e_request_latency_seconds", func(t *tallies) (float64, int64) { return t.e2eSum, t.stop + t.length })
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // who asked has gone
}
