package loadgen

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"assay/schemas"
)

// rateOver is how far the rate that a Meter shows looks back.
const rateOver = 10 * time.Second

// Meter follows a load for people who look on: how far it is, and the latencies of
// the requests that have ended. Its methods may be called from several goroutines.
// What it shows is good enough to watch; results come from the records.
type Meter struct {
	// Until is when the last request is due, or when a closed loop ends; 0 when only
	// the number of requests says when it is over.
	Until time.Duration
	// Timed says that the load ends at Until, however many requests that is.
	Timed bool

	mu     sync.Mutex
	begun  time.Time // of the first Set
	last   Progress
	seen   []progressAt // oldest first, at most rateOver back
	latest histogram    // time to first token, ns
}

type progressAt struct {
	at   time.Time
	done int
}

// Set takes the newest counts. begun is the zero of the load's time.
func (m *Meter) Set(begun, now time.Time, p Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.last = begun, p
	if n := len(m.seen); n == 0 || now.Sub(m.seen[n-1].at) >= rateOver/50 {
		m.seen = append(m.seen, progressAt{now, p.Done})
	}
	for len(m.seen) > 1 && now.Sub(m.seen[1].at) > rateOver {
		m.seen = m.seen[1:]
	}
}

// Add takes the record of a request that has ended.
func (m *Meter) Add(r *schemas.RequestRecord) {
	if r.FirstTokenNs != nil && r.DispatchedNs != nil {
		m.latest.add(*r.FirstTokenNs - *r.DispatchedNs)
	}
}

// Counts are the newest counts.
func (m *Meter) Counts() Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Text is one line that fits a narrow terminal: done, in flight, rate, TTFT so far,
// failures, time left.
func (m *Meter) Text(now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	parts := []string{fmt.Sprintf("%d/%d", m.last.Done, m.last.Total)}
	if m.Timed {
		parts[0] = fmt.Sprintf("%d done", m.last.Done)
	}
	if flying := m.last.Sent - m.last.Done; flying < 0 { // what was never sent has a record too
		parts = append(parts, "ended early")
	} else {
		parts = append(parts, fmt.Sprintf("%d in flight", flying))
	}
	if rate, ok := m.rate(now); ok {
		parts = append(parts, fmt.Sprintf("%.1f/s", rate))
	}
	ttft := "TTFT not yet"
	if s := m.latest.spread(); s != nil {
		ttft = "TTFT p50 " + threeDigits(s.P50) + " p99 " + threeDigits(s.P99) + " ms"
	}
	parts = append(parts, ttft, fmt.Sprintf("%d failed", m.last.Failed))
	if left := m.left(now); left != "" {
		parts = append(parts, left)
	}
	return strings.Join(parts, ", ")
}

// rate is of the requests that ended of late.
func (m *Meter) rate(now time.Time) (float64, bool) {
	if len(m.seen) == 0 {
		return 0, false
	}
	from := m.seen[0]
	if s := now.Sub(from.at).Seconds(); s > 0 {
		return float64(m.last.Done-from.done) / s, true
	}
	return 0, false
}

// left is until the last request is begun, as far as that can be told; what is in
// flight then comes on top.
func (m *Meter) left(now time.Time) string {
	if m.begun.IsZero() {
		return ""
	}
	went := now.Sub(m.begun)
	switch {
	case m.Until > 0 && went < m.Until:
		return roundUp(m.Until-went) + " left"
	case m.Until > 0:
		return "last answers"
	case m.last.Done == 0 || went <= 0:
		return ""
	}
	each := float64(went) / float64(m.last.Done)
	return "~" + roundUp(time.Duration(each*float64(max(0, m.last.Total-m.last.Done)))) + " left"
}

func threeDigits(x float64) string {
	digits := 2
	if x >= 100 {
		digits = 0
	} else if x >= 10 {
		digits = 1
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// roundUp gives whole seconds, so that the last one is never shown as none.
func roundUp(d time.Duration) string {
	return (d + time.Second - 1).Truncate(time.Second).String()
}
