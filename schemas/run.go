package schemas

import "time"

// RunStatus is how a run ended.
type RunStatus string

// The statuses of a run.
const (
	RunPassed  RunStatus = "passed"
	RunFailed  RunStatus = "failed"
	RunTainted RunStatus = "tainted"
	RunAborted RunStatus = "aborted"
)

// Run is the config document of a run's manifest: everything about the run but
// its report and its bytes.
type Run struct {
	Schema     string          `json:"schema" jsonschema_extras:"const=assay/run/v1"`
	ID         string          `json:"id"`
	Experiment string          `json:"experiment"`
	Status     RunStatus       `json:"status" jsonschema:"enum=passed,enum=failed,enum=tainted,enum=aborted"`
	StartedAt  time.Time       `json:"started_at"`
	EndedAt    time.Time       `json:"ended_at"`
	Plan       Plan            `json:"plan"`
	Services   []ServiceRecord `json:"services"`
	Records    []RunRecord     `json:"records"`
	Sources    []SourceRun     `json:"sources"`
	Preimages  []Digest        `json:"preimages"` // blobs of the keys' preimages
	Report     Digest          `json:"report" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	FileList   Digest          `json:"file_list" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Resumed    int             `json:"resumed,omitempty"`
	Tool       ToolIdentity    `json:"tool"`
}

// RunRecord is a stage record as this run uses it.
type RunRecord struct {
	Record StageRecord `json:"record"`
	Digest Digest      `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"` // of the record's blob
	// ReusedFrom is the run that executed it, when this run did not.
	ReusedFrom string `json:"reused_from,omitempty"`
	// Node and Trials in this run: a reused record keeps its own.
	Node   string   `json:"node"`
	Trials []string `json:"trials,omitempty"`
	// Path is where its tree stands in the run's file list.
	Path string `json:"path,omitempty"`
}

// SourceRun pins an earlier run by digest.
type SourceRun struct {
	Reference string   `json:"reference"`
	Digest    Digest   `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Consumed  []string `json:"consumed,omitempty"`
	// Validated is the folder of the validated run in it, where it holds one.
	Validated string `json:"validated,omitempty"`
	// Files are the digests of what was consumed: of a folder, that of its tree.
	Files []SourceFile `json:"files,omitempty"`
}

// SourceFile is a file or folder of a source run, by its path in the run.
type SourceFile struct {
	Path   string `json:"path"`
	Digest Digest `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
}

// ToolIdentity names the assay that made a document.
type ToolIdentity struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// ServiceRecord is the account of one service lifetime.
type ServiceRecord struct {
	Unit      string    `json:"unit"`
	Service   string    `json:"service"`
	Engine    string    `json:"engine"`
	Attempt   int       `json:"attempt" jsonschema:"minimum=1"`
	Attached  bool      `json:"attached"` // a running service was used, none was started
	Argv      []string  `json:"argv,omitempty"`
	URL       string    `json:"url"`
	Status    string    `json:"status" jsonschema:"enum=stopped,enum=died,enum=failed_to_start,enum=killed,enum=detached"`
	Error     string    `json:"error,omitempty"`
	ExitCode  *int      `json:"exit_code,omitempty"`
	StartedAt time.Time `json:"started_at"`
	ReadyMs   float64   `json:"ready_ms"` // process start to ready; 0 when it never was
	EndedAt   time.Time `json:"ended_at"`
	Models    []string  `json:"models"` // as it listed them when ready
	// Config is the configuration file it was started with, where it has one.
	Config *ServiceConfig `json:"config,omitempty"`
	// Tree is the blob of the tree that holds its logs.
	Tree Digest `json:"tree,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Path string `json:"path,omitempty"`
}

// ServiceConfig is a configuration file as written and as a service was started with
// it. The second lies with the service's log.
type ServiceConfig struct {
	File     string   `json:"file"` // beside the log
	Written  Digest   `json:"written" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Started  Digest   `json:"started" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Replaced []string `json:"replaced"` // keys that differ
}

// ServedEmulated says whether one of these services was the emulated engine.
func ServedEmulated(services []ServiceRecord) bool {
	for _, s := range services {
		if s.Engine == "emulated" {
			return true
		}
	}
	return false
}
