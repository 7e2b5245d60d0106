package schemas

// FieldType is the type of one key of the experiment or machine file.
type FieldType string

// Field types. In JSON a duration or size is a string with a unit.
const (
	TypeString     FieldType = "string"
	TypeInt        FieldType = "integer"
	TypeFloat      FieldType = "number"
	TypeBool       FieldType = "boolean"
	TypeDuration   FieldType = "duration"
	TypeSize       FieldType = "size"
	TypePath       FieldType = "path" // relative to the file it stands in; enters a key as its content's digest
	TypeURL        FieldType = "url"
	TypePort       FieldType = "port"
	TypeSecret     FieldType = "secret"      // ${secret.NAME} and nothing else
	TypeScalar     FieldType = "scalar"      // string, integer, float or boolean
	TypeStringList FieldType = "string-list" //
	TypeBoolOrList FieldType = "boolean or string-list"
	TypeScalarList FieldType = "scalar-list"
	TypeStringMap  FieldType = "string-map" // name -> string
	TypePathMap    FieldType = "path-map"   // name -> path
	TypeTable      FieldType = "table"      // Fields
	TypeTableMap   FieldType = "table-map"  // name -> table of Fields
	TypeTableList  FieldType = "table-list" // array of tables of Fields
	TypeParamMap   FieldType = "param-map"  // name -> scalar or { path = "..." }
)

// Field describes one key: its type, its limits and what it means. One list of
// them drives the loader, the JSON Schema and the printed reference.
type Field struct {
	Name     string
	Type     FieldType
	Required bool
	Enum     []string
	Min      *float64 // inclusive, for numbers; durations and sizes are never negative
	Max      *float64
	Default  any // in JSON form; nil for none
	Doc      string
	Fields   []Field
	// Machine allows ${machine.*} here (paths, URLs and ports always do).
	Machine bool
	// Secret allows ${secret.*} here.
	Secret bool
	// Ref says which table's names the value names: "stage", "service", "model".
	Ref string
	// Unkeyed values change no result and stay out of every key.
	Unkeyed bool
	// Paths allows ${stage.*}, ${source.*} and path parameters here, and
	// ${service.*}: arguments and environments. Paths and path maps always take
	// the former, URLs the latter.
	Paths bool
}

// KindSpec describes the keys and outputs of a stage kind.
type KindSpec struct {
	Name    string
	Doc     string
	Scope   string // default scope
	Service string // "required", "optional" or "" (none)
	Fields  []Field
	Outputs []string // names a later stage may use; "*" when the stage declares them itself
}

// EngineSpec describes the keys of a service of one engine.
type EngineSpec struct {
	Name   string
	Doc    string
	Fields []Field
	// OneOf lists groups of keys; exactly one key of each group must be there.
	OneOf [][]string
}

func bound(f float64) *float64 { return &f }

// ExperimentFields describes the experiment file, without the keys that depend
// on a stage's kind or a service's engine (see Kinds and Engines).
func ExperimentFields() []Field {
	return []Field{
		{Name: "schema", Type: TypeString, Required: true, Enum: []string{ExperimentV1}, Doc: "format of this file"},
		{Name: "name", Type: TypeString, Required: true, Doc: "identity of the experiment: lower-case letters, digits, '-', '_' and '/'"},
		{Name: "title", Type: TypeString, Doc: "one line for people"},
		{Name: "description", Type: TypeString, Doc: "what is asked and why"},
		{Name: "license", Type: TypeString, Doc: "SPDX identifier of the licence of the results"},
		{Name: "params", Type: TypeParamMap, Doc: "named values; --set changes them"},
		{Name: "matrix", Type: TypeTable, Doc: "lists of values of parameters, crossed (each key a declared parameter)"},
		{Name: "trials", Type: TypeTable, Doc: "how often and in which order matrix points run", Fields: []Field{
			{Name: "repeat", Type: TypeInt, Default: 1.0, Min: bound(1), Max: bound(10000), Doc: "repetitions of each matrix point"},
			{Name: "order", Type: TypeString, Default: OrderInterleaved, Enum: []string{OrderSequential, OrderInterleaved, OrderABBA, OrderRandom}, Doc: "order of trials"},
			{Name: "seed", Type: TypeInt, Default: 0.0, Min: bound(0), Max: bound(1<<53 - 1), Doc: "seed all others are derived from"},
		}},
		{Name: "model", Type: TypeTableMap, Doc: "models under test", Fields: []Field{
			{Name: "name", Type: TypeString, Required: true, Doc: "the name requests use"},
			{Name: "checkpoint", Type: TypePath, Machine: true, Doc: "folder or file of weights; enters keys as a fingerprint"},
			{Name: "fingerprint", Type: TypeString, Doc: "the fingerprint that the checkpoint has to have, \"sha256:...\"; preflight refuses another"},
			{Name: "fingerprint_level", Type: TypeString, Enum: []string{FingerprintHeader, FingerprintFull}, Doc: "what fingerprints rest on: \"header\" (the default: names, sizes and headers of files, in a moment) or \"full\" (every byte, remembered between runs)"},
		}},
		{Name: "service", Type: TypeTableMap, Doc: "serving processes", Fields: ServiceFields()},
		{Name: "stage", Type: TypeTableMap, Required: true, Doc: "the DAG", Fields: StageFields()},
		{Name: "claim", Type: TypeTableList, Doc: "what a reproduction must show", Fields: []Field{
			{Name: "name", Type: TypeString, Required: true, Doc: "one line for people"},
			{Name: "metric", Type: TypeString, Required: true, Doc: "stage.metric.statistic, like replay.qos.mean"},
			{Name: "expect", Type: TypeFloat, Required: true, Doc: "expected value, in the metric's unit"},
			{Name: "tolerance", Type: TypeFloat, Required: true, Min: bound(0), Doc: "largest accepted absolute difference"},
			{Name: "gate", Type: TypeBool, Default: true, Doc: "false: reported, but never fails the run"},
			{Name: "source", Type: TypeString, Doc: "where the expectation comes from"},
		}},
	}
}

// StageFields are the keys every stage takes.
func StageFields() []Field {
	return []Field{
		{Name: "kind", Type: TypeString, Required: true, Doc: "sort of work"},
		{Name: "needs", Type: TypeStringList, Ref: "stage", Doc: "stages that must have passed before"},
		{Name: "service", Type: TypeString, Ref: "service", Doc: "service the stage uses"},
		{Name: "scope", Type: TypeString, Enum: []string{ScopeRun, ScopeTrial}, Doc: "once a run or once a trial; the kind has a default"},
		{Name: "timeout", Type: TypeDuration, Unkeyed: true, Doc: "time limit of one execution"},
	}
}

// ServiceFields are the keys every service takes.
func ServiceFields() []Field {
	return []Field{
		{Name: "engine", Type: TypeString, Required: true, Doc: "what serves"},
		{Name: "restart", Type: TypeString, Default: "trial", Enum: []string{"trial", "change", "run"}, Doc: "when a fresh process is started"},
		{Name: "devices", Type: TypeStringList, Machine: true, Unkeyed: true, Doc: "named tokens; two services that share one never overlap"},
		{Name: "needs", Type: TypeStringList, Ref: "service", Doc: "services that must be up before"},
	}
}

// MachineFields describes the machine file.
func MachineFields() []Field {
	return []Field{
		{Name: "schema", Type: TypeString, Required: true, Enum: []string{MachineV1}, Doc: "format of this file"},
		{Name: "values", Type: TypeStringMap, Doc: "what ${machine.NAME} stands for: folders, URLs, ports, devices"},
		{Name: "secrets", Type: TypeStringMap, Doc: "where ${secret.NAME} comes from: \"env:VARIABLE\" or \"file:PATH\""},
		{Name: "checkpoint", Type: TypeTableList, Doc: "folders of weights, for services that are started with aegaeon_config", Fields: []Field{
			{Name: "model", Type: TypeString, Required: true, Doc: "the name that requests use"},
			{Name: "path", Type: TypeString, Required: true, Doc: "absolute path of the folder"},
		}},
		{Name: "facts", Type: TypeStringMap, Doc: "what archives of CUDA graphs are bound to, on the machine that serves: aegaeon_revision, foundry_revision, torch, vllm, cuda, driver, gpu_name, compute_capability, gpu_memory_bytes, hook_sha256"},
		{Name: "service", Type: TypeTableMap, Doc: "per service: what only this machine needs", Fields: []Field{
			{Name: "env", Type: TypeStringMap, Secret: true, Doc: "environment variables of the process"},
			{Name: "engine", Type: TypeString, Doc: "what serves here in place of the experiment's engine; keys that this engine does not have fall away, and the effective experiment has what is given here"},
			{Name: "command", Type: TypeStringList, Doc: "with engine: program and arguments that start it; ${machine.NAME} for what may not enter keys"},
			{Name: "url", Type: TypeString, Doc: "with engine: attach to a running service instead"},
			{Name: "ready_path", Type: TypeString, Doc: "with engine: HTTP path that answers 200 when it is ready"},
			{Name: "ready_log", Type: TypeString, Doc: "with engine: regular expression a line of its log matches when it is ready"},
			{Name: "ready_timeout", Type: TypeDuration, Doc: "with engine: limit of start-up"},
			{Name: "stop_signal", Type: TypeString, Enum: []string{"TERM", "INT", "QUIT"}, Doc: "with engine: signal that asks it to stop"},
			{Name: "stop_grace", Type: TypeDuration, Doc: "with engine: time it has to stop before it is killed"},
		}},
	}
}
