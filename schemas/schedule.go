package schemas

// The modes of a measure stage.
const (
	ModeOpen       = "open"       // every request at its absolute time
	ModeClosed     = "closed"     // a fixed number of requests in flight
	ModeSequential = "sequential" // one request at a time
	ModeSwitch     = "switch"     // one at a time, through every ordered pair of models
)

// The phases that a schedule can tell. Start-up is told from the records.
const (
	PhaseStartup = "startup" // of a service just started: sent before its first answer began
	PhaseCold    = "cold"    // first use of a model that nothing warmed
	PhaseSwitch  = "switch"  // another model was served just before
	PhaseSteady  = "steady"
)

// Schedule is the header document of a measure stage's schedule: everything
// decided before the first request was sent. Its requests follow it, one JSON
// line each (ScheduledRequest), in the same file.
type Schedule struct {
	Schema         string  `json:"schema" jsonschema_extras:"const=assay/schedule/v1"`
	Arrival        string  `json:"arrival"` // the arrival process: trace, poisson, ..., or the mode where nothing arrives by itself
	Speed          float64 `json:"speed"`
	ContentSeed    uint64  `json:"content_seed"`
	WorkloadDigest Digest  `json:"workload_digest,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	WorkloadForm   string  `json:"workload_form"`
	// Requests is how many are planned. With DurationMs they are only prepared: those
	// whose turn came have a record.
	Requests int `json:"requests"`
	// DurationMs is the time after which a closed loop begins no request; AtEnd what
	// becomes of those in flight then.
	DurationMs float64 `json:"duration_ms,omitempty"`
	AtEnd      string  `json:"at_end,omitempty" jsonschema:"enum=drain,enum=cut"`
	// FirstUse says that the run started the service and had sent it nothing before.
	FirstUse bool `json:"first_use,omitempty"`

	Mode  string `json:"mode,omitempty" jsonschema:"enum=open,enum=closed,enum=sequential,enum=switch"`
	Seeds *Seeds `json:"seeds,omitempty"`
	// Streams are the generators that were used: each starts somewhere else, also
	// where the numbers of seeds are equal.
	Streams     []SeedStream    `json:"streams,omitempty"`
	Process     *ArrivalProcess `json:"process,omitempty"` // of a generated schedule in open loop
	Input       *LengthSpec     `json:"input,omitempty"`   // of a generated schedule
	Output      *LengthSpec     `json:"output,omitempty"`
	Concurrency int             `json:"concurrency,omitempty"`   // closed loop
	MaxInFlight int             `json:"max_in_flight,omitempty"` // open loop with a cap
	// Reading says how a workload file was read.
	Reading *Reading `json:"reading,omitempty"`
	// Lengths says how prompts sent as text got their lengths, where a tokenizer was
	// asked.
	Lengths *LengthCalibration `json:"lengths,omitempty"`
	// RequestsDigest is the SHA-256 of the request lines that follow.
	RequestsDigest Digest `json:"requests_digest,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
}

// Seeds are what everything random in a schedule comes from. Each has streams of
// its own, so that equal numbers do not make the streams alike.
type Seeds struct {
	Arrival    uint64 `json:"arrival"`
	Assignment uint64 `json:"assignment"` // of models to requests
	Content    uint64 `json:"content"`    // lengths and prompts
	Order      uint64 `json:"order"`      // of prompts and of pairs of models
}

// SeedStream is one generator of random numbers.
type SeedStream struct {
	Seed    string `json:"seed" jsonschema:"enum=arrival,enum=assignment,enum=content,enum=order"` // which of the four
	Purpose string `json:"purpose"`                                                                // what it draws; N is a request's index, or a block's id
	// Start is the hex of the first eight bytes of SHA-256("assay/seed/v1\n", the seed's
	// number as eight bytes, the purpose), with N = 0.
	Start string `json:"start"`
}

// ArrivalProcess describes arrivals. Rates are requests per second, over all models.
type ArrivalProcess struct {
	Process string  `json:"process" jsonschema:"enum=constant,enum=poisson,enum=gamma,enum=on-off,enum=ramp"`
	Rate    float64 `json:"rate"`
	Shape   float64 `json:"shape,omitempty"`    // gamma: of the gaps; 1 is poisson, below it burstier
	OnMs    float64 `json:"on_ms,omitempty"`    // on-off: length of a burst, at rate
	OffMs   float64 `json:"off_ms,omitempty"`   // on-off: length of the pause after it
	OffRate float64 `json:"off_rate,omitempty"` // on-off: rate in the pause
	ToRate  float64 `json:"to_rate,omitempty"`  // ramp: rate at its end, and from then on
	OverMs  float64 `json:"over_ms,omitempty"`  // ramp: time from rate to to_rate
}

// LengthSpec describes a distribution of lengths in tokens.
type LengthSpec struct {
	Dist   string  `json:"dist" jsonschema:"enum=fixed,enum=uniform,enum=lognormal"`
	Tokens int     `json:"tokens,omitempty"` // fixed
	Min    int     `json:"min,omitempty"`
	Max    int     `json:"max,omitempty"`
	Mean   float64 `json:"mean,omitempty"`  // lognormal, before the limits
	Sigma  float64 `json:"sigma,omitempty"` // lognormal: of the logarithm
}

// Reading is the account of how a workload file was taken.
type Reading struct {
	Verdict string `json:"verdict"` // form and unit, and how they were decided
	Rows    int    `json:"rows"`
	Kept    int    `json:"kept"`
	Failed  int    `json:"failed,omitempty"`  // rows of requests that failed when they were recorded, left out
	Dropped int    `json:"dropped,omitempty"` // over a length limit, left out
	Clipped int    `json:"clipped,omitempty"` // over a length limit, cut to it
	Policy  string `json:"policy,omitempty"`
}

// ScheduledRequest is one planned request. AtNs counts from the anchor; it is 0
// where a request is sent when another ends.
type ScheduledRequest struct {
	Index        int    `json:"index"`
	ID           string `json:"id"`
	AtNs         int64  `json:"at_ns"`
	Model        string `json:"model"`
	InputTokens  int    `json:"input_tokens"` // 0: a given text, whose tokens only the service can count
	OutputTokens int    `json:"output_tokens"`
	// PromptWords is how many words make a generated prompt, where it is sent as text
	// to a service that takes no token ids or was asked for its counts; else 0.
	PromptWords int `json:"prompt_words,omitempty"`
	// CountedTokens is the prompt's length by the service's own tokenizer, asked
	// before the run; 0 where it was not.
	CountedTokens int `json:"counted_tokens,omitempty"`
	// PromptDigest is the SHA-256 of the request's prompt as it will be sent.
	PromptDigest Digest `json:"prompt_digest,omitempty"`
	SwitchFrom   string `json:"switch_from,omitempty"`
	// Conversation says which one the request is turn number Turn, from 0, of. It is
	// sent ThinkNs after the answer to the turn before; of a first turn AtNs says when.
	Conversation string `json:"conversation,omitempty"`
	Turn         int    `json:"turn,omitempty"`
	ThinkNs      int64  `json:"think_ns,omitempty"`
	Phase        string `json:"phase,omitempty" jsonschema:"enum=cold,enum=switch,enum=steady"`
}
