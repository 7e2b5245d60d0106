package schemas

import "time"

// Validated is the report.json of a validated run that assay made: three models (or
// how many there are) gave the same tokens without CUDA graphs, while they were
// saved, and after they were loaded.
type Validated struct {
	SchemaVersion string    `json:"schema_version" jsonschema_extras:"const=assay/validated/v1"`
	Passed        bool      `json:"passed"`
	CreatedAt     time.Time `json:"created_at"`
	Emulated      bool      `json:"emulated"`
	// ArchiveRoot and LoadConfig are paths beside the report.
	ArchiveRoot      string               `json:"archive_root"`
	LoadConfig       string               `json:"load_config"`
	LoadConfigSHA256 string               `json:"load_config_sha256"`
	Environment      ValidatedEnvironment `json:"environment"`
	Graph            ValidatedGraph       `json:"graph"`
	Models           []ValidatedModel     `json:"models"`
	SwitchSequence   []ValidatedSwitch    `json:"switch_sequence"`
	Checks           []ValidatedCheck     `json:"checks"`
	// Files are all files beside the report, by path.
	Files []ValidatedFile `json:"files"`
}

// ValidatedEnvironment is what archives of graphs are bound to.
type ValidatedEnvironment struct {
	AegaeonRevision   string `json:"aegaeon_revision"`
	FoundryRevision   string `json:"foundry_revision"`
	Torch             string `json:"torch"`
	VLLM              string `json:"vllm"`
	CUDA              string `json:"cuda"`
	Driver            string `json:"driver"`
	GPUName           string `json:"gpu_name"`
	ComputeCapability string `json:"compute_capability"`
	GPUMemoryBytes    int64  `json:"gpu_memory_bytes"`
	HookSHA256        string `json:"hook_sha256"`
}

// ValidatedGraph is the memory layout and the shapes of the graphs.
type ValidatedGraph struct {
	BatchSizes        []int   `json:"batch_sizes"`
	SeqLenBucket      int     `json:"seq_len_bucket"`
	BaseAddress       int64   `json:"base_address"`
	RegionSizeBytes   int64   `json:"region_size_bytes"`
	ScratchSizeBytes  int64   `json:"scratch_size_bytes"`
	MemoryUtilization float64 `json:"memory_utilization"`
	Strict            bool    `json:"strict"`
}

// ValidatedModel is what was seen of a model.
type ValidatedModel struct {
	Name               string `json:"name"`
	Path               string `json:"path"` // as the configuration has it
	WeightsFingerprint string `json:"weights_fingerprint"`
	Ranks              int    `json:"ranks"`
	GraphsCaptured     int    `json:"graphs_captured"`
	TokenIDsEqual      struct {
		OffSave bool `json:"off_save"`
		OffLoad bool `json:"off_load"`
	} `json:"token_ids_equal"`
	ReplaySeen bool `json:"replay_seen"`
}

// ValidatedSwitch is a switch between two models under load of graphs, after which
// the second gave the tokens that it gave before.
type ValidatedSwitch struct {
	From string `json:"from"`
	To   string `json:"to"`
	OK   bool   `json:"ok"`
}

// ValidatedCheck is one criterion.
type ValidatedCheck struct {
	ID     string `json:"id"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// ValidatedFile is an entry of the inventory.
type ValidatedFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}
