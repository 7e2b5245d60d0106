package schemas

// Outcome of one request: a closed list. Failures are never zeros and never dropped.
type Outcome string

// The outcomes.
const (
	OutcomeOK             Outcome = "ok"              // finish reason and [DONE] (or a complete body) seen, tokens received
	OutcomeTruncated      Outcome = "truncated"       // the stream ended without its explicit end
	OutcomeSSEError       Outcome = "sse_error"       // an error event after status 200
	OutcomeEngineError    Outcome = "engine_error"    // the service says the generation failed (finish_reason error, abort)
	OutcomeProtocolError  Outcome = "protocol_error"  // what arrived is not the protocol (bad JSON, event over the limit, bad HTTP)
	OutcomeReset          Outcome = "reset"           // connection reset or broken while in use
	OutcomeRefused        Outcome = "refused"         // no connection could be made
	OutcomeTimeout        Outcome = "timeout"         // a limit passed; which one is in Error
	OutcomeHTTP4xx        Outcome = "http_4xx"        //
	OutcomeHTTP5xx        Outcome = "http_5xx"        //
	OutcomeNoToken        Outcome = "no_token"        // ended properly but generated nothing
	OutcomeLengthMismatch Outcome = "length_mismatch" // ended properly with another number of tokens than it was held to
	OutcomeClientResource Outcome = "client_resource" // this client ran out of ports, files or memory
	OutcomeCancelled      Outcome = "cancelled"       // the run was interrupted
	OutcomeNotSent        Outcome = "not_sent"        // scheduled but never dispatched
)

// Outcomes lists all of them in report order.
var Outcomes = []Outcome{
	OutcomeOK, OutcomeTruncated, OutcomeSSEError, OutcomeEngineError, OutcomeProtocolError, OutcomeReset,
	OutcomeRefused, OutcomeTimeout, OutcomeHTTP4xx, OutcomeHTTP5xx, OutcomeNoToken, OutcomeLengthMismatch,
	OutcomeClientResource, OutcomeCancelled, OutcomeNotSent,
}

// What becomes of requests in flight at the end of a loop of a stated duration.
const (
	AtEndDrained = "drained"
	AtEndCut     = "cut"
)

// RequestRecord is the immutable account of one request. All *_ns stamps are
// nanoseconds on one monotonic clock whose zero is the anchor of the measure
// stage (its wall-clock time is in the stage's schedule document); an absent
// stamp means the event was not seen.
type RequestRecord struct {
	Schema string `json:"schema" jsonschema_extras:"const=assay/request-record/v1"`
	ID     string `json:"id"`
	Index  int    `json:"index" jsonschema:"minimum=0"`
	Model  string `json:"model"`
	API    string `json:"api" jsonschema:"enum=completions,enum=chat"`

	AskedInputTokens  int `json:"asked_input_tokens" jsonschema:"minimum=0"`
	AskedOutputTokens int `json:"asked_output_tokens" jsonschema:"minimum=0"`
	// Held says that the service was asked for exactly AskedOutputTokens.
	Held bool `json:"held"`

	Outcome    Outcome `json:"outcome" jsonschema:"enum=ok,enum=truncated,enum=sse_error,enum=engine_error,enum=protocol_error,enum=reset,enum=refused,enum=timeout,enum=http_4xx,enum=http_5xx,enum=no_token,enum=length_mismatch,enum=client_resource,enum=cancelled,enum=not_sent"`
	Error      string  `json:"error,omitempty"`
	HTTPStatus int     `json:"http_status,omitempty"`

	// SwitchFrom is the model that was served just before, in mode switch.
	SwitchFrom string `json:"switch_from,omitempty"`
	// Conversation and Turn, from 0, are set where a request follows on an answer.
	Conversation string `json:"conversation,omitempty"`
	Turn         int    `json:"turn,omitempty"`
	// AtEnd is set in a closed loop of a stated duration, for a request that was in
	// flight when it was over: waited for, or cut.
	AtEnd string `json:"at_end,omitempty" jsonschema:"enum=drained,enum=cut"`
	// Phase is set where the schedule says which phase a request belongs to.
	Phase string `json:"phase,omitempty" jsonschema:"enum=cold,enum=switch,enum=steady"`

	StampSource string `json:"stamp_source" jsonschema:"enum=kernel,enum=user"`
	// ScheduledNs is the planned time in open loop; in closed loop, when a slot was free.
	ScheduledNs int64 `json:"scheduled_ns"`
	// QueuedNs is when a request that was due began to wait for a slot below max_in_flight.
	QueuedNs *int64 `json:"queued_ns,omitempty"`
	// DispatchedNs is when the client took the request from the schedule and began to send it.
	DispatchedNs   *int64 `json:"dispatched_ns,omitempty"`
	ConnAcquiredNs *int64 `json:"conn_acquired_ns,omitempty"`
	ConnReused     *bool  `json:"conn_reused,omitempty"`
	// Reconnects counts how often the request went out again, on a new connection,
	// because the idle one that it was sent on was closed with nothing answered.
	// DispatchedNs is that of the first send; ConnAcquiredNs, ConnReused and
	// WroteRequestNs are those of the last.
	Reconnects     int    `json:"reconnects,omitempty" jsonschema:"minimum=0"`
	WroteRequestNs *int64 `json:"wrote_request_ns,omitempty"`
	FirstByteNs    *int64 `json:"first_byte_ns,omitempty"`
	FirstEventNs   *int64 `json:"first_event_ns,omitempty"`
	FirstTokenNs   *int64 `json:"first_token_ns,omitempty"`
	FirstVisibleNs *int64 `json:"first_visible_ns,omitempty"`
	LastTokenNs    *int64 `json:"last_token_ns,omitempty"`
	FinishNs       *int64 `json:"finish_ns,omitempty"`
	UsageNs        *int64 `json:"usage_ns,omitempty"`
	DoneNs         *int64 `json:"done_ns,omitempty"`
	// EndNs is when the client stopped looking at the request, whatever its
	// outcome; the right end of a censored sample.
	EndNs int64 `json:"end_ns"`

	// Chunks are the events that carried generated output, in order of arrival.
	Chunks       []Chunk `json:"chunks"`
	FinishReason string  `json:"finish_reason,omitempty"`

	InputTokens        *int   `json:"input_tokens,omitempty"`
	InputTokensSource  string `json:"input_tokens_source,omitempty" jsonschema:"enum=usage,enum=token_ids,enum=tokenizer,enum=asked"`
	OutputTokens       *int   `json:"output_tokens,omitempty"`
	OutputTokensSource string `json:"output_tokens_source,omitempty" jsonschema:"enum=usage,enum=token_ids,enum=chunks"`

	// TextDigest is the SHA-256 of all visible generated text, in order.
	TextDigest Digest `json:"text_digest,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	TokenIDs   []int  `json:"token_ids,omitempty"`
}

// Chunk is one event that carried generated output.
type Chunk struct {
	AtNs int64 `json:"at_ns"`
	// SinceNs is set where several events came with one stamp: the event arrived
	// after SinceNs and not after AtNs. Without it AtNs is the event's own.
	SinceNs *int64 `json:"since_ns,omitempty"`

	Bytes int `json:"bytes"` // of generated text in the event, any channel
	// Tokens is set only where the service tells how many tokens the event carries.
	Tokens *int `json:"tokens,omitempty"`
	// Hidden marks output that a reader does not see as text: reasoning, tool calls.
	Hidden bool `json:"hidden,omitempty"`
}
