package schemas

import "time"

// Report is a run's report.json, assembled when the run is sealed.
type Report struct {
	Schema     string           `json:"schema" jsonschema_extras:"const=assay/report/v1"`
	Experiment ReportExperiment `json:"experiment"`
	RunID      string           `json:"run_id"`
	Status     RunStatus        `json:"status" jsonschema:"enum=passed,enum=failed,enum=tainted,enum=aborted"`
	Passed     bool             `json:"passed"`
	StartedAt  time.Time        `json:"started_at"`
	EndedAt    time.Time        `json:"ended_at"`
	// ArchiveRoot is the folder of engine archives in the run, where it has one.
	ArchiveRoot string        `json:"archive_root,omitempty"`
	Emulated    bool          `json:"emulated"`            // something here was measured on the emulated engine
	Simulated   bool          `json:"simulated,omitempty"` // something here was simulated
	Stages      []ReportStage `json:"stages"`
	Trials      []Trial       `json:"trials"` // in the order run
	Results     []StageResult `json:"results"`
	Findings    []Finding     `json:"findings"`
	Conditions  []Condition   `json:"conditions"`
	Environment Environment   `json:"environment"`
	Sources     []SourceRun   `json:"source_runs"`
	Claims      []ClaimResult `json:"claims"`
	Files       FileSummary   `json:"files"`
}

// ReportExperiment identifies the experiment and its effective parameters.
type ReportExperiment struct {
	Name   string         `json:"name"`
	Title  string         `json:"title,omitempty"`
	Digest Digest         `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Params map[string]any `json:"params"`
}

// ReportStage is one row of the stage table.
type ReportStage struct {
	Node       string      `json:"node"`
	Stage      string      `json:"stage"`
	Kind       string      `json:"kind"`
	Trial      string      `json:"trial,omitempty"`
	Status     StageStatus `json:"status" jsonschema:"enum=passed,enum=failed,enum=tainted,enum=aborted,enum=skipped"`
	Key        Key         `json:"key,omitempty" jsonschema:"pattern=^key:[0-9a-f]{64}$"`
	Outputs    []Output    `json:"outputs"`
	ReusedFrom string      `json:"reused_from,omitempty"`
	StartedAt  time.Time   `json:"started_at"`
	DurationMs float64     `json:"duration_ms"`
	Error      string      `json:"error,omitempty"`
	RootCause  string      `json:"root_cause,omitempty"`
}

// StageResult is what one measure stage of one trial gave.
type StageResult struct {
	Node   string         `json:"node"`
	Stage  string         `json:"stage"`
	Trial  string         `json:"trial,omitempty"`
	Point  map[string]any `json:"point,omitempty"`
	Result Result         `json:"result"`
}

// Result is a fold over the request records of one measure stage.
type Result struct {
	Schema         string             `json:"schema" jsonschema_extras:"const=assay/result/v1"`
	MetricsVersion int                `json:"metrics_version" jsonschema:"minimum=1"`
	Emulated       bool               `json:"emulated"`
	Simulated      bool               `json:"simulated,omitempty"` // nothing was measured: a model gave the times
	Headline       string             `json:"headline_ttft" jsonschema:"enum=ttft_from_schedule_ms,enum=ttft_ms"`
	StampSource    string             `json:"stamp_source" jsonschema:"enum=kernel,enum=user,enum=mixed,enum=simulated,enum=unknown"`
	Counts         Counts             `json:"counts"`
	Metrics        map[string]Summary `json:"metrics"` // distributions: ttft_ms, tpot_ms, ...; pooled over requests
	Values         map[string]Value   `json:"values"`  // single numbers: requests_per_s, makespan_s, ...
	Models         []ModelResult      `json:"models"`
	// Steady is the steady window beside the full run, which everything above is over.
	Steady *WindowResult `json:"steady,omitempty"`
	// Phases are requests that the schedule assigned to a phase, kept apart.
	Phases     []PhaseResult `json:"phases,omitempty"`
	SLO        *SLO          `json:"slo,omitempty"`
	Speed      float64       `json:"speed"`
	Comparable bool          `json:"comparable"` // false with speed != 1: qos is not comparable
	Findings   []Finding     `json:"findings"`
	// Panel is the chart of a sweep, whose result has no distributions.
	Panel *Panel `json:"panel,omitempty"`
	// Switches is what a run in mode switch measured for every ordered pair of models.
	Switches *SwitchMatrix `json:"switches,omitempty"`
	// Comparison is what a compare stage found; its result has no distributions.
	Comparison *Comparison `json:"comparison,omitempty"`
	// Client says how far the client that measured this can be believed.
	Client *ClientVerdict `json:"client,omitempty"`
	// Observed is what was seen of the service and its host meanwhile.
	Observed *Observed `json:"observed,omitempty"`
}

// SLO holds the targets in milliseconds.
type SLO struct {
	TTFTMs float64 `json:"ttft_ms"`
	TPOTMs float64 `json:"tpot_ms"`
}

// Counts are whole numbers of requests and tokens.
type Counts struct {
	Issued       int             `json:"issued"`
	OK           int             `json:"ok"`
	Outcomes     map[Outcome]int `json:"outcomes"`
	InputTokens  int64           `json:"input_tokens"`
	OutputTokens int64           `json:"output_tokens"`
	// OutputTokenSources counts requests by where their output token count comes from.
	OutputTokenSources map[string]int `json:"output_token_sources"`
}

// Summary of a distribution. Absent numbers could not be computed: N says over how many.
type Summary struct {
	Unit        string       `json:"unit"`
	N           int          `json:"n"`                 // samples with a value
	Censored    int          `json:"censored"`          // samples known only to exceed their limit
	Unknown     int          `json:"unknown,omitempty"` // requests that ended properly and have none; the note says why
	Mean        *float64     `json:"mean,omitempty"`
	StdDev      *float64     `json:"stddev,omitempty"` // population
	Min         *float64     `json:"min,omitempty"`
	Max         *float64     `json:"max,omitempty"`
	Percentiles []Percentile `json:"percentiles"`
	// Confidence of the percentiles' intervals, 0.95; absent when none has one.
	Confidence float64 `json:"confidence,omitempty"`
	Note       string  `json:"note,omitempty"`
}

// Percentile of a distribution, type 7.
type Percentile struct {
	P     float64  `json:"p"`
	Value *float64 `json:"value,omitempty"`
	// Above is set instead of Value when the rank falls among censored samples: the percentile is above it.
	Above *float64 `json:"above,omitempty"`
	// Few marks a percentile whose sample floor at 99 % confidence is not met.
	Few bool `json:"few,omitempty"`
	// Low and High are the order statistics that hold the percentile between them
	// at the summary's confidence, for independent samples; absent where there are
	// too few. HighAbove is set instead of High when it is a censored sample.
	Low       *float64 `json:"low,omitempty"`
	High      *float64 `json:"high,omitempty"`
	HighAbove *float64 `json:"high_above,omitempty"`
}

// Value is one number, or the reason there is none.
type Value struct {
	Unit   string   `json:"unit"`
	Value  *float64 `json:"value,omitempty"`
	Reason string   `json:"unknown,omitempty"`
	Set    string   `json:"set,omitempty"` // what a cv was taken over
}

// ModelResult is the part of a result that belongs to one model.
type ModelResult struct {
	Model   string             `json:"model"`
	Counts  Counts             `json:"counts"`
	Metrics map[string]Summary `json:"metrics"`
}

// WindowResult is the part of a result that lies in a window of the run. A request
// belongs to it by its scheduled time, a completion and a token by their own.
type WindowResult struct {
	// Source says where the window comes from: a drift test on requests in flight
	// and TTFT, or the stage's warmup and drain.
	Source string `json:"source" jsonschema:"enum=detected,enum=declared"`
	// Unknown says why there is no such window; the rest is then empty.
	Unknown string             `json:"unknown,omitempty"`
	FromNs  int64              `json:"from_ns"`
	ToNs    int64              `json:"to_ns"`
	Counts  Counts             `json:"counts"`
	Metrics map[string]Summary `json:"metrics"`
	Values  map[string]Value   `json:"values"`
}

// PhaseResult is the part of a result that belongs to one phase, or to one ordered
// pair of models within the phase switch.
type PhaseResult struct {
	Phase      string             `json:"phase" jsonschema:"enum=startup,enum=cold,enum=switch,enum=steady"`
	SwitchFrom string             `json:"switch_from,omitempty"`
	Model      string             `json:"model,omitempty"`
	Counts     Counts             `json:"counts"`
	Metrics    map[string]Summary `json:"metrics"`
}

// Condition is one circumstance a result was obtained under.
type Condition struct {
	Name    string `json:"name"`
	Subject string `json:"subject,omitempty"` // stage, service or model it belongs to
	Value   any    `json:"value,omitempty"`
	Unknown string `json:"unknown,omitempty"` // why it could not be learnt
}

// Environment is the host a run was made on.
type Environment struct {
	Host         string        `json:"host"`
	OS           string        `json:"os"`
	Kernel       string        `json:"kernel"`
	Arch         string        `json:"arch"`
	CPUModel     string        `json:"cpu_model"`
	CPUs         int           `json:"cpus"`
	MemoryBytes  int64         `json:"memory_bytes"`
	Accelerators []Accelerator `json:"accelerators"`
	// AcceleratorsUnknown says why accelerators could not be listed.
	AcceleratorsUnknown string       `json:"accelerators_unknown,omitempty"`
	Tool                ToolIdentity `json:"tool"`
	CommandLine         []string     `json:"command_line"`
}

// Accelerator is one device as its vendor's tool names it.
type Accelerator struct {
	Index  int    `json:"index"`
	Name   string `json:"name"`
	Memory string `json:"memory,omitempty"`
	Driver string `json:"driver,omitempty"`
}

// ClaimResult is a claim and what came out.
type ClaimResult struct {
	Claim
	Value  *float64 `json:"value,omitempty"`
	Holds  bool     `json:"holds"`
	Reason string   `json:"unknown,omitempty"` // why there is no value
}

// FileSummary sums the file list up.
type FileSummary struct {
	Count  int    `json:"count"`
	Bytes  int64  `json:"bytes"`
	Digest Digest `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
}
