package schemas

// ClientVerdict says how far the client that took a measurement can be believed.
// Times are milliseconds. What could not be learnt is absent.
type ClientVerdict struct {
	// OK is "true" if every limit was kept, "false" if one was not, "unknown" if
	// too little is known to say.
	OK string `json:"client_ok" jsonschema:"enum=true,enum=false,enum=unknown"`
	// ErrorMs estimates by how much this client may have got a latency wrong, at
	// the 99th percentile.
	ErrorMs *float64 `json:"error_ms,omitempty"`
	// Reasons say what OK and ErrorMs rest on, where OK is not "true".
	Reasons []string `json:"reasons"`

	LatenessMs *Spread `json:"lateness_ms,omitempty"` // dispatched after scheduled
	// Stamps counts the token events that have one, Shared those among them that
	// came with others, so that only an interval is known.
	Stamps        int64   `json:"stamps"`
	Shared        int64   `json:"shared"`
	SharedWidthMs *Spread `json:"shared_width_ms,omitempty"`
	// ReadLagMs is how long bytes waited in the kernel before the client read them.
	ReadLagMs      *Spread  `json:"read_lag_ms,omitempty"`
	SchedLatencyMs *Spread  `json:"sched_latency_ms,omitempty"` // of the Go runtime: runnable, but not running
	GCPauseMs      *Spread  `json:"gc_pause_ms,omitempty"`
	GCCycles       int64    `json:"gc_cycles"`
	CPUCores       *float64 `json:"cpu_cores,omitempty"` // used by this process, mean
	CPUs           int      `json:"cpus"`                // it may use
	BusiestCore    *float64 `json:"busiest_core,omitempty"`
	ClockSteps     int64    `json:"clock_steps"` // times that the wall clock was set
	Predialled     int      `json:"predialled"`
	// Reconnects counts requests that went out again because the service had closed the
	// idle connection that they were sent on.
	Reconnects int64 `json:"reconnects,omitempty" jsonschema:"minimum=0"`
	// Priority of the threads that send and read: real-time, nice (above ordinary) or
	// normal, as the system permitted; empty if there were none.
	Priority    string       `json:"priority,omitempty"`
	Calibration *Calibration `json:"calibration,omitempty"`
	// Uncalibrated says why there is no calibration.
	Uncalibrated string `json:"uncalibrated,omitempty"`
}

// Spread of a set of durations in milliseconds, by nearest rank.
type Spread struct {
	N   int64   `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Calibration is a run of the same client against a server of its own that sends
// at fixed times and notes them.
type Calibration struct {
	Streams     int    `json:"streams"`
	Tokens      int    `json:"tokens"` // of each stream
	GapMs       Spread `json:"gap_error_ms"`
	TTFTMs      Spread `json:"ttft_error_ms"`
	Shared      int64  `json:"shared"`
	Stamps      int64  `json:"stamps"`
	Outside     int64  `json:"outside"` // true times outside their stamp's interval
	StampSource string `json:"stamp_source" jsonschema:"enum=kernel,enum=user,enum=mixed,enum=unknown"`
}
