package schemas

// ValidatedOutput is the output that holds a validated run: a report.json, the
// configuration that loads its archives, and the archives.
const ValidatedOutput = "validated"

// ValidatedConfig is the configuration of a validated run, beside its report.json.
const ValidatedConfig = "multi-model-load.yaml"

// GivesValidated says whether stages of a kind publish a validated run.
func GivesValidated(kind string) bool { return kind == "validate" || kind == "adopt" }

// The modes of CUDA graphs of decode steps.
const (
	GraphsOff  = "off"
	GraphsSave = "save"
	GraphsLoad = "load"
)

// Graphs is what a graphs stage saw of a service in one mode.
type Graphs struct {
	Schema       string `json:"schema" jsonschema_extras:"const=assay/graphs/v1"`
	Mode         string `json:"mode" jsonschema:"enum=off,enum=save,enum=load"`
	Emulated     bool   `json:"emulated"`
	InputTokens  int    `json:"input_tokens"`
	OutputTokens int    `json:"output_tokens"`
	// Models are those that were asked, in order.
	Models  []string       `json:"models"`
	Answers []GraphsAnswer `json:"answers"`
	Markers []GraphsMarker `json:"markers"`
}

// GraphsAnswer is one request, in the order sent.
type GraphsAnswer struct {
	Model string `json:"model"`
	// After is the model asked just before.
	After        string  `json:"after,omitempty"`
	PromptDigest Digest  `json:"prompt_digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	PromptTokens int     `json:"prompt_tokens"`
	Outcome      Outcome `json:"outcome"`
	Error        string  `json:"error,omitempty"`
	TokenIDs     []int   `json:"token_ids"`
}

// GraphsMarker counts the lines of the service's log that tell of graphs.
type GraphsMarker struct {
	Marker string `json:"marker" jsonschema:"enum=captured,enum=loaded,enum=replay"`
	Lines  int    `json:"lines"`
	// ByModel counts those that name a model, with the graphs that they tell of.
	ByModel map[string]GraphsCount `json:"by_model"`
}

// GraphsCount is what the lines of a model say.
type GraphsCount struct {
	Lines  int `json:"lines"`
	Graphs int `json:"graphs"` // the number in the last of them; 0 where they give none
}

// Marker returns the count of a marker.
func (g Graphs) Marker(name string) GraphsMarker {
	for _, m := range g.Markers {
		if m.Marker == name {
			return m
		}
	}
	return GraphsMarker{Marker: name}
}

func graphModeField() Field {
	return Field{Name: "graph_mode", Type: TypeString, Enum: []string{GraphsOff, GraphsSave, GraphsLoad}, Doc: "with aegaeon_config: replaces its server.cuda_graph.mode"}
}

func graphArchiveField() Field {
	return Field{Name: "graph_archive", Type: TypePath, Machine: true, Doc: "with aegaeon_config: folder of archives, which replaces its server.cuda_graph.archive_dir; default: that of the source run, or for save an empty folder that lasts as long as the process"}
}

func graphsKind() KindSpec {
	return KindSpec{Name: "graphs", Scope: ScopeTrial, Service: "required", Doc: "asks each model, before and after every other, for one exact answer, and keeps answers, log, configuration and, after a save, the archive of CUDA graphs",
		Outputs: []string{"answers", "log", "config", "archive"}, Fields: []Field{
			{Name: "mode", Type: TypeString, Required: true, Enum: []string{GraphsOff, GraphsSave, GraphsLoad}, Doc: "what the service does with graphs"},
			{Name: "models", Type: TypeStringList, Doc: "model names; default: all that the service lists"},
			{Name: "input_tokens", Type: TypeInt, Default: 32.0, Min: bound(1), Max: bound(1e6), Doc: "prompt length"},
			{Name: "output_tokens", Type: TypeInt, Default: 16.0, Min: bound(2), Max: bound(1e6), Doc: "output length that requests are held to"},
			{Name: "marker_timeout", Type: TypeDuration, Default: "30s", Unkeyed: true, Doc: "how long after the last answer the log may take to tell of graphs"},
			{Name: "request_timeout", Type: TypeDuration, Default: "5m0s", Doc: "limit of one request; the first of a model may capture graphs"},
		}}
}

func validateKind() KindSpec {
	return KindSpec{Name: "validate", Scope: ScopeRun, Doc: "judges graphs stages of the modes off, save and load against each other and assembles a validated run for --source-run", Outputs: []string{ValidatedOutput}, Fields: []Field{}}
}

func adoptKind() KindSpec {
	return KindSpec{Name: "adopt", Scope: ScopeRun, Doc: "takes a validated run of another tool into the store; `assay run --source-run FOLDER` makes such a run", Outputs: []string{ValidatedOutput}, Fields: []Field{
		{Name: "folder", Type: TypePath, Required: true, Machine: true, Doc: "folder with its report.json"},
	}}
}

// aegaeonFields are those of Aegaeon's own, beside what every engine takes.
func aegaeonFields() []Field {
	return []Field{
		{Name: "aegaeon_config", Type: TypePath, Doc: "Aegaeon's YAML configuration; {config} in an argument of command stands for the file it is started with, in which only the mode, the folder of archives and the paths of models are replaced"},
		graphModeField(), graphArchiveField(),
	}
}
