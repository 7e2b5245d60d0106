package schemas

// Observed is what was seen of the service and its host while a stage measured.
type Observed struct {
	// From and To bound the time in which requests were sent and answered, on the
	// run's clock. Gauges are summed up over it.
	FromNs  int64            `json:"from_ns"`
	ToNs    int64            `json:"to_ns"`
	Sources []ObservedSource `json:"sources"`
	Series  []ObservedSeries `json:"series"`
	// Values follow from the series: prefix_cache_hit_ratio, energy_j, ...
	Values map[string]Value `json:"values"`
	// Checks hold the service's counts against the client's.
	Checks []ObservedCheck `json:"checks"`
	// CPUS is the processor time that observing took of this client's machine,
	// programs it started apart; CPUCores is that over the time it took.
	CPUS     *float64 `json:"cpu_s,omitempty"`
	CPUCores *float64 `json:"cpu_cores,omitempty"`
}

// How a source of observations fared.
const (
	ObservedOff     = "off"
	ObservedSeen    = "observed"
	ObservedUnknown = "unknown"
)

// ObservedSource is one place that was looked at.
type ObservedSource struct {
	Name    string   `json:"name" jsonschema:"enum=metrics,enum=snapshot,enum=events,enum=gpu,enum=profile,enum=reset,enum=host"`
	Status  string   `json:"status" jsonschema:"enum=off,enum=observed,enum=unknown"`
	Unknown string   `json:"unknown,omitempty"` // why nothing, or not all, could be had
	From    string   `json:"from,omitempty"`    // path or program that was asked
	Files   []string `json:"files"`             // below the output "observed"
	// IntervalS is between two looks, in seconds.
	IntervalS float64 `json:"interval_s,omitempty"`
	Looks     int64   `json:"looks"`   // that gave something
	Errors    int64   `json:"errors"`  // that did not
	Skipped   int64   `json:"skipped"` // left out: one before took too long, or several failed
	Bad       int64   `json:"bad"`     // lines or rows that could not be read
	LastError string  `json:"last_error,omitempty"`
}

// ObservedSeries sums one series up. Absent numbers could not be had.
type ObservedSeries struct {
	Name    string `json:"name"`
	Subject string `json:"subject,omitempty"` // device, where there are several
	Unit    string `json:"unit"`
	Kind    string `json:"kind" jsonschema:"enum=gauge,enum=counter,enum=histogram"`
	Source  string `json:"source"`
	File    string `json:"file,omitempty"`
	Metric  string `json:"metric,omitempty"` // its name there
	// N counts looks within the time; of a histogram, what it counted in it.
	N    int64    `json:"n"`
	Min  *float64 `json:"min,omitempty"`
	Mean *float64 `json:"mean,omitempty"`
	Max  *float64 `json:"max,omitempty"`
	// First is before the first request, Last after the last answer, Delta of a
	// counter what it grew by in between.
	First   *float64 `json:"first,omitempty"`
	Last    *float64 `json:"last,omitempty"`
	Delta   *float64 `json:"delta,omitempty"`
	Unknown string   `json:"unknown,omitempty"`
}

// ObservedCheck is one count by the service held against the client's.
type ObservedCheck struct {
	Name   string `json:"name"`
	Metric string `json:"metric,omitempty"`
	// The service's count may lie between Least and Most, by what the client saw;
	// they differ where requests failed.
	Least   *float64 `json:"least,omitempty"`
	Most    *float64 `json:"most,omitempty"`
	Service *float64 `json:"service,omitempty"`
	Agrees  string   `json:"agrees" jsonschema:"enum=true,enum=false,enum=unknown"`
	Unknown string   `json:"unknown,omitempty"`
}
