package schemas

// What the samples of a switch matrix are.
const (
	SwitchOverVisits = "visits" // of one trial
	SwitchOverTrials = "trials" // means of trials: the trial is the unit
)

// SwitchMatrix is what a run in mode switch measured for every ordered pair of
// models: the request that follows one of another model, and those after it that
// find the model in place. Visits that met something else are not in it.
type SwitchMatrix struct {
	Over   string   `json:"over" jsonschema:"enum=visits,enum=trials"`
	Models []string `json:"models"` // sorted; rows are the model before, columns the one after
	// Confidence of the t intervals of means, whose samples are taken as independent.
	Confidence float64      `json:"confidence"`
	Cells      []SwitchCell `json:"cells"` // by from, then to
	// All is over all pairs.
	All map[string]SwitchStat `json:"all"`
	// Counted is by how much the service's own count of switches rose meanwhile; absent
	// where it does not tell.
	Counted *float64 `json:"counted,omitempty"`
	// Excluded counts visits that are not in the cells, by what they met.
	Excluded map[string]int `json:"excluded"`
}

// SwitchCell is one ordered pair.
type SwitchCell struct {
	From    string                `json:"from"`
	To      string                `json:"to"`
	Visits  int                   `json:"visits"`
	Metrics map[string]SwitchStat `json:"metrics"`
}

// SwitchStat is one quantity over visits, or over the steady requests of a pair.
type SwitchStat struct {
	Unit   string   `json:"unit"`
	N      int      `json:"n"`
	Failed int      `json:"failed,omitempty"` // requests without a value because they failed
	Mean   *float64 `json:"mean,omitempty"`
	Low    *float64 `json:"low,omitempty"` // of the interval of the mean
	High   *float64 `json:"high,omitempty"`
	P50    *float64 `json:"p50,omitempty"`
	Min    *float64 `json:"min,omitempty"`
	Max    *float64 `json:"max,omitempty"`
}
