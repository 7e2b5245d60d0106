package schemas

import "time"

// Probe is the summary of a probe: one request, or some at random times, for people
// who want to see what a service answers and when. Its request records lie beside it.
type Probe struct {
	Schema string `json:"schema" jsonschema_extras:"const=assay/probe/v1"`
	ID     string `json:"id"`
	Mode   string `json:"mode" jsonschema:"enum=single,enum=timed"`
	// StartedAt is the zero of all stamps.
	StartedAt   time.Time `json:"started_at"`
	URL         string    `json:"url"`
	API         string    `json:"api" jsonschema:"enum=completions,enum=chat"`
	Models      []string  `json:"models"` // in rotation
	ModelSource string    `json:"model_source"`
	MaxTokens   int       `json:"max_tokens"`
	// RatePerS, DurationS and Seed are those of timed arrivals, whose gaps are
	// exponential.
	RatePerS  float64 `json:"rate_per_s,omitempty"`
	DurationS float64 `json:"duration_s,omitempty"`
	Seed      uint64  `json:"seed"`
	// Repeated says that a prompt was sent more than once: later answers may come from
	// a prefix cache.
	Repeated       bool   `json:"prompts_repeated"`
	RequestsDigest Digest `json:"requests_digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"` // of the schedule's lines

	Requests []ProbeRequest `json:"requests"`
	Result   Result         `json:"result"` // the fold of the records
}

// ProbeRequest is what came of one request. Times are milliseconds from the send;
// one that is absent was not seen.
type ProbeRequest struct {
	ID         string  `json:"id"`
	Index      int     `json:"index"`
	Model      string  `json:"model"`
	Prompt     string  `json:"prompt"`
	Outcome    Outcome `json:"outcome"`
	Error      string  `json:"error,omitempty"`
	HTTPStatus int     `json:"http_status,omitempty"`

	ScheduledS float64  `json:"scheduled_s"` // from the start
	SendLagMs  *float64 `json:"send_lag_ms,omitempty"`
	// FirstTextMs is when the first non-empty text chunk arrived.
	FirstTextMs *float64 `json:"first_text_ms,omitempty"`
	ConnectedMs *float64 `json:"connected_ms,omitempty"`
	FirstByteMs *float64 `json:"first_byte_ms,omitempty"`
	// HeadersMs is when the head of the answer had been read. With an event that came
	// with it, it is that event's time at the latest.
	HeadersMs *float64 `json:"headers_ms,omitempty"`
	// EmptyMs is when an event came that held no output, before any that did: most
	// often one that only names a role.
	EmptyMs *float64 `json:"empty_event_ms,omitempty"`
	// FirstOutputMs is when the first output of any kind arrived, reasoning too.
	FirstOutputMs *float64 `json:"first_output_ms,omitempty"`
	LastTextMs    *float64 `json:"last_text_ms,omitempty"`
	FinishMs      *float64 `json:"finish_ms,omitempty"`
	UsageMs       *float64 `json:"usage_ms,omitempty"`
	DoneMs        *float64 `json:"done_ms,omitempty"`
	TotalMs       *float64 `json:"total_ms,omitempty"` // until the client stopped looking, whatever the outcome
	StampSource   string   `json:"stamp_source" jsonschema:"enum=kernel,enum=user"`

	TextChunks   int `json:"text_chunks"`   // events with visible text
	HiddenChunks int `json:"hidden_chunks"` // events with other output
	// OutputTokens and InputTokens are the service's own counts; a chunk is no token.
	OutputTokens       *int   `json:"output_tokens,omitempty"`
	OutputTokensSource string `json:"output_tokens_source" jsonschema:"enum=usage,enum=token_ids,enum=unknown"`
	InputTokens        *int   `json:"input_tokens,omitempty"`
	FinishReason       string `json:"finish_reason,omitempty"`
	Text               string `json:"text"`
	// TextCut says that the text was longer than is kept.
	TextCut bool `json:"text_cut,omitempty"`
}
