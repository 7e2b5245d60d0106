package schemas

// Plan is the expanded DAG: pure, printable, made without touching anything.
type Plan struct {
	Schema     string      `json:"schema" jsonschema_extras:"const=assay/plan/v1"`
	Experiment string      `json:"experiment"`
	Digest     Digest      `json:"experiment_digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"` // of the effective experiment
	Trials     []Trial     `json:"trials"`                                                       // in the order they run
	Nodes      []Node      `json:"nodes"`                                                        // in topological, deterministic order
	Services   []PlanUnit  `json:"services"`                                                     // service lifetimes, in start order
	Stages     []PlanStage `json:"stages"`
}

// Trial is one point of the matrix in one repetition.
type Trial struct {
	ID         string         `json:"id"` // "t001"...
	Position   int            `json:"position" jsonschema:"minimum=0"`
	Point      map[string]any `json:"point"` // matrix parameters only
	Repetition int            `json:"repetition" jsonschema:"minimum=0"`
	Seed       uint64         `json:"seed"` // H(experiment seed, repetition); equal across matrix points
}

// Node is one execution of a stage.
type Node struct {
	ID     string   `json:"id"` // "stage" or "stage@trial"
	Stage  string   `json:"stage"`
	Kind   string   `json:"kind"`
	Scope  string   `json:"scope" jsonschema:"enum=run,enum=trial"`
	Trial  string   `json:"trial,omitempty"`
	Trials []string `json:"trials,omitempty"` // every trial that shares this node (an unseeded pure stage)
	Needs  []string `json:"needs,omitempty"`  // node ids
	Unit   string   `json:"unit,omitempty"`   // service lifetime it belongs to
	// UsesUnits are further service lifetimes it needs up (through ${service.x.url} or a service's needs).
	UsesUnits []string `json:"uses_units,omitempty"`
	Pure      bool     `json:"pure"`
	Measured  bool     `json:"measured"`
	Key       Key      `json:"definition_key" jsonschema:"pattern=^key:[0-9a-f]{64}$"`
}

// PlanUnit is one lifetime of a service: the unit of resume.
type PlanUnit struct {
	ID      string   `json:"id"` // "service-1"...
	Service string   `json:"service"`
	Engine  string   `json:"engine"`
	Key     Key      `json:"definition_key" jsonschema:"pattern=^key:[0-9a-f]{64}$"`
	Nodes   []string `json:"nodes"`
	Needs   []string `json:"needs,omitempty"` // units
	Devices []string `json:"devices,omitempty"`
	// Trials whose stages use it, in order; empty when only run-scoped stages do.
	Trials []string `json:"trials,omitempty"`
}

// PlanStage sums one stage up for people.
type PlanStage struct {
	Stage string   `json:"stage"`
	Kind  string   `json:"kind"`
	Needs []string `json:"needs,omitempty"`
	Nodes int      `json:"nodes"`
}
