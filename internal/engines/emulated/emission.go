package emulated

import (
	"fmt"
	"os"
	"sync"
	"time"

	"assay/internal/durable"
)

// Formats of the emission log's first line and of the others.
const (
	EmissionsV1 = "assay/emissions/v1"
	EmissionV1  = "assay/emission/v1"
)

// EmissionHeader is the first line of an emission log. All *_ns times in the
// log are nanoseconds on one monotonic clock that was zero at the anchor.
type EmissionHeader struct {
	Schema       string `json:"schema"`
	Engine       string `json:"engine"`
	PID          int    `json:"pid"`
	AnchorUnixNs int64  `json:"anchor_unix_ns"` // wall clock
	Config       Config `json:"config"`
}

// Emission is the true account of one answer, one line of the log.
type Emission struct {
	Schema       string          `json:"schema"`
	ID           string          `json:"id"`                   // as in the answer
	RequestID    string          `json:"request_id,omitempty"` // X-Request-Id, else the body's request_id
	API          string          `json:"api"`                  // "completions" or "chat"
	Model        string          `json:"model"`
	Stream       bool            `json:"stream"`
	ArrivedNs    int64           `json:"arrived_ns"`
	TakenIn      *TakenIn        `json:"taken_in,omitempty"` // with a serving system
	InputTokens  int             `json:"input_tokens"`
	OutputTokens int             `json:"output_tokens"` // that the whole answer would have
	Chunks       []EmissionChunk `json:"chunks"`        // that carried tokens
	EndedNs      int64           `json:"ended_ns"`
	// Outcome is "ok", "failed" (by the serving system), "disconnected", "shutdown",
	// or "fault:KIND".
	Outcome string `json:"outcome"`
}

// TakenIn is how the serving system saw a request come. A simulation of the requests
// in order of Index, at their AtMs, gives the due times of all tokens.
type TakenIn struct {
	Index int   `json:"index"`
	AtMs  int64 `json:"at_ms"` // of the system's time
}

// EmissionChunk is one write that carried tokens.
type EmissionChunk struct {
	Tokens   int   `json:"tokens"`
	DueNs    int64 `json:"due_ns"`
	BeforeNs int64 `json:"before_ns"` // before the write began
	AfterNs  int64 `json:"after_ns"`  // after it was flushed to the socket
}

// emissionLog appends one line per request, whole or not at all, when the
// request has ended.
type emissionLog struct {
	anchor time.Time
	mu     sync.Mutex
	file   *durable.AppendFile // nil: no log
	err    error               // the first, which ends the log
}

func openEmissions(path string, c Config) (*emissionLog, error) {
	l := &emissionLog{anchor: time.Now()}
	if path == "" {
		return l, nil
	}
	f, err := durable.OpenAppend(path)
	if err != nil {
		return nil, fmt.Errorf("emission log %s: %w", path, err)
	}
	l.file = f
	l.append(EmissionHeader{Schema: EmissionsV1, Engine: Name, PID: os.Getpid(), AnchorUnixNs: l.anchor.UnixNano(), Config: c})
	if l.err != nil {
		f.Close()
		return nil, fmt.Errorf("emission log %s: %w", path, l.err)
	}
	return l, nil
}

// ns is t on the log's clock.
func (l *emissionLog) ns(t time.Time) int64 { return int64(t.Sub(l.anchor)) }

func (l *emissionLog) append(v any) {
	line := append(encode(v), '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.err == nil {
		l.err = l.file.AppendLine(line)
	}
}

// close makes the log durable and returns the first error it met.
func (l *emissionLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	if l.err == nil {
		l.err = l.file.Sync()
	}
	if err := l.file.Close(); l.err == nil {
		l.err = err
	}
	l.file = nil
	if l.err != nil {
		return fmt.Errorf("emission log: %w", l.err)
	}
	return nil
}
