package schemas

// The ways by which a load stage's models come.
const (
	LoadByDeploy  = "deploy"  // the service's deploy endpoint
	LoadByStartup = "startup" // the service's own start-up list
)

// What a request of a load stage met: where its model's weights were.
const (
	LoadCPUCacheHit = "cpu_cache_hit" // in host memory; no other model had been asked for since they came
	LoadSwitch      = "switch"        // in host memory, after requests of another model
	LoadResident    = "resident"      // on the device
)

// Load is the summary of a load stage. Its requests never enter a result. Times are
// in milliseconds.
type Load struct {
	Schema   string `json:"schema" jsonschema_extras:"const=assay/load/v1"`
	Emulated bool   `json:"emulated"`
	Via      string `json:"via" jsonschema:"enum=deploy,enum=startup"`
	// Snapshot says whether the service tells which replicas are ready; without it a
	// model is ready when it is listed and answers.
	Snapshot bool `json:"snapshot"`
	// InputTokens and OutputTokens are asked of every request, greedily and exactly.
	InputTokens  int            `json:"input_tokens"`
	OutputTokens int            `json:"output_tokens"`
	Models       []LoadModel    `json:"models"`
	Evictions    []LoadEviction `json:"evictions"`
	// EvictionsCounted is by how much the service's own count rose; it is absent where
	// the service does not tell.
	EvictionsCounted *float64       `json:"evictions_counted,omitempty"`
	Undeployed       []LoadUndeploy `json:"undeployed"`
}

// LoadModel is one model that was brought up.
type LoadModel struct {
	Model string `json:"model"`
	// Deploy is what came of the endpoint; absent where it was not used.
	Deploy *LoadDeploy `json:"deploy,omitempty"`
	// ReadyMs is from the first call, or the first look, until every replica that was
	// asked for was ready; absent when that never was.
	ReadyMs  *float64      `json:"ready_ms,omitempty"`
	Replicas []LoadReplica `json:"replicas"`
}

// LoadDeploy is the last answer of the deploy endpoint for a model.
type LoadDeploy struct {
	Calls      int           `json:"calls"` // more than one when a busy replica had to drain
	HTTPStatus int           `json:"http_status,omitempty"`
	Status     string        `json:"status,omitempty"` // the service's word: ok, partial
	CallMs     float64       `json:"call_ms"`          // of the last call
	ReadyNodes []string      `json:"ready_nodes"`
	Failed     []LoadFailure `json:"failed"`
	Error      string        `json:"error,omitempty"` // the service's text
}

// LoadFailure is a node that did not take a model, or keep to itself, as it was asked to.
type LoadFailure struct {
	Node   string `json:"node,omitempty"`
	Status string `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
}

// LoadReplica is a model on a node. Node is empty where the service tells of no nodes,
// or not which of them answered.
type LoadReplica struct {
	Node  string `json:"node"`
	State string `json:"state,omitempty"` // as the last snapshot has it
	// ColdLoad is from the call until the replica was ready: weights into host memory.
	ColdLoad *LoadSpan `json:"cold_load,omitempty"`
	// Unknown says why there is no cold load.
	Unknown string `json:"unknown,omitempty"`
	// FirstUse is the first request after that, Repeat one of the same model after it.
	FirstUse *LoadRequest  `json:"first_use,omitempty"`
	Repeat   *LoadRequest  `json:"repeat,omitempty"`
	Switches []LoadRequest `json:"switches"`
	// CPUCacheHit and GPUSwitch are what the first use, and a switch on average, took
	// beyond the repeat.
	CPUCacheHit *LoadCost `json:"cpu_cache_hit,omitempty"`
	GPUSwitch   *LoadCost `json:"gpu_switch,omitempty"`
}

// LoadSpan is a time known from looks at the service: above Above, at most AtMost.
type LoadSpan struct {
	AboveMs  float64 `json:"above_ms"`
	AtMostMs float64 `json:"at_most_ms"`
	// Loading says that a look saw the replica load.
	Loading bool `json:"loading"`
}

// LoadCost is a difference between two sorts of requests.
type LoadCost struct {
	N      int     `json:"n"`
	TTFTMs float64 `json:"ttft_ms"`
	E2EMs  float64 `json:"e2e_ms"`
}

// LoadRequest is one exact request.
type LoadRequest struct {
	Index        int      `json:"index"` // of its record
	After        string   `json:"after,omitempty"`
	Met          string   `json:"met" jsonschema:"enum=cpu_cache_hit,enum=switch,enum=resident"`
	ToldBy       string   `json:"told_by" jsonschema:"enum=order,enum=order and counter"`
	Outcome      Outcome  `json:"outcome"`
	OutputTokens *int     `json:"output_tokens,omitempty"`
	TTFTMs       *float64 `json:"ttft_ms,omitempty"`
	E2EMs        *float64 `json:"e2e_ms,omitempty"`
	// ModelSwitches is by how much the service's count of model switches of the node
	// rose meanwhile; absent where it cannot be told.
	ModelSwitches *float64 `json:"model_switches,omitempty"`
}

// LoadEviction is a model that had to make room.
type LoadEviction struct {
	Model  string `json:"model"`
	Node   string `json:"node,omitempty"`
	By     string `json:"by"`      // model that was deployed
	ToldBy string `json:"told_by"` // answer, snapshot
}

// LoadUndeploy is what came of undeploying a model.
type LoadUndeploy struct {
	Model          string        `json:"model"`
	HTTPStatus     int           `json:"http_status,omitempty"`
	Status         string        `json:"status,omitempty"`
	Calls          int           `json:"calls"`
	Ms             float64       `json:"ms"` // until it was nowhere
	RemainingNodes []string      `json:"remaining_nodes"`
	Failed         []LoadFailure `json:"failed"`
	Error          string        `json:"error,omitempty"`
}

// deployFields are what a deployment of a model is asked for.
func deployFields() []Field {
	return []Field{
		{Name: "nodes", Type: TypeStringList, Doc: "node ids that are to have it; default: the service chooses"},
		{Name: "replicas", Type: TypeInt, Min: bound(1), Max: bound(1000), Doc: "least number of replicas; default: 1, or as many as nodes are named"},
		{Name: "max_model_len", Type: TypeInt, Min: bound(1), Max: bound(1e9), Doc: "another limit than the service's own; it deploys anew where that changes"},
		{Name: "tool_parser", Type: TypeString, Doc: "name of a tool parser"},
	}
}

func loadKind() KindSpec {
	return KindSpec{Name: "load", Scope: ScopeTrial, Service: "required", Doc: "deploys models, waits until each is ready, and asks each for one exact answer", Outputs: []string{"requests", "summary", "answers"}, Fields: append([]Field{
		{Name: "models", Type: TypeStringList, Doc: "names of models, in the order in which they are deployed; default: those of the experiment's models, else all that the service lists; an empty list deploys nothing"},
		{Name: "via", Type: TypeString, Enum: []string{LoadByDeploy, LoadByStartup}, Doc: "deploy: call the service's deploy endpoint; startup: wait for what its start-up list names; default: deploy where the service has a runtime snapshot, else startup"},
		{Name: "each", Type: TypeTableList, Doc: "what differs for single models", Fields: append([]Field{
			{Name: "model", Type: TypeString, Required: true, Doc: "one of models"},
			{Name: "path", Type: TypeString, Machine: true, Doc: "checkpoint on the service's machine, for a model that it has no configuration of"},
		}, deployFields()...)},
		{Name: "allow_partial", Type: TypeBool, Default: false, Doc: "go on with the replicas that are ready when some nodes failed; true: a warning says which"},
		{Name: "input_tokens", Type: TypeInt, Default: 32.0, Min: bound(1), Max: bound(1e6), Doc: "prompt length of the requests"},
		{Name: "output_tokens", Type: TypeInt, Default: 8.0, Min: bound(2), Max: bound(1e6), Doc: "output length that they are held to"},
		{Name: "api", Type: TypeString, Default: "completions", Enum: []string{"completions", "chat"}, Doc: "endpoint"},
		{Name: "switches", Type: TypeInt, Default: 1.0, Min: bound(0), Max: bound(1000), Doc: "rounds through all models at the end, A to B to A, that show what a switch takes; 0: none"},
		{Name: "undeploy", Type: TypeBoolOrList, Doc: "true: undeploy at the end what was deployed; a list: these models"},
		{Name: "ready_timeout", Type: TypeDuration, Default: "10m0s", Doc: "limit of one model, from the call until it is ready"},
		{Name: "request_timeout", Type: TypeDuration, Default: "5m0s", Doc: "limit of one request"},
	}, deployFields()...)}
}
