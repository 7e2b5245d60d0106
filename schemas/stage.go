package schemas

import "time"

// StageStatus is how one execution of a stage ended.
type StageStatus string

// The statuses of a stage.
const (
	StagePassed  StageStatus = "passed"
	StageFailed  StageStatus = "failed"
	StageTainted StageStatus = "tainted" // an input changed while it ran
	StageAborted StageStatus = "aborted"
	StageSkipped StageStatus = "skipped" // a stage it needs did not pass
)

// Preimage is what an action key is the hash of. Every influence on a result
// has a line here; what is not here must not influence it.
type Preimage struct {
	Schema      string            `json:"schema" jsonschema_extras:"const=assay/key/v1"`
	Kind        string            `json:"kind"`
	KindVersion int               `json:"kind_version"`
	Scope       string            `json:"scope"`
	Definition  map[string]any    `json:"definition"`        // the stage's keys as written, with ${...}
	Params      map[string]any    `json:"params"`            // values of the parameters it refers to; a path parameter is its content's digest
	Upstream    map[string]string `json:"upstream"`          // logical name ("gen/workload", "@trial" appended for fan-in) -> output digest
	Inputs      map[string]string `json:"inputs"`            // logical name -> content digest
	Env         map[string]string `json:"env"`               // allow-listed variables
	Tools       map[string]string `json:"tools"`             // measured tool identities
	Models      map[string]string `json:"models"`            // name -> checkpoint fingerprint
	Service     map[string]any    `json:"service,omitempty"` // the service's keys as written
	Seed        *uint64           `json:"seed,omitempty"`    // set for seeded stages only
	Platform    Platform          `json:"platform"`          //
	Sources     map[string]string `json:"sources,omitempty"` // logical path in the source run -> digest
}

// Platform is the part of the host that a result may depend on.
type Platform struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

// StageRecord is the immutable account of one stage execution.
type StageRecord struct {
	Schema        string      `json:"schema" jsonschema_extras:"const=assay/stage-record/v1"`
	Node          string      `json:"node"`
	Stage         string      `json:"stage"`
	Kind          string      `json:"kind"`
	KindVersion   int         `json:"kind_version"`
	Experiment    string      `json:"experiment"`
	Run           string      `json:"run"` // run id of the run that executed it
	Trial         string      `json:"trial,omitempty"`
	Unit          string      `json:"unit,omitempty"`
	Attempt       int         `json:"attempt" jsonschema:"minimum=1"`
	DefinitionKey Key         `json:"definition_key" jsonschema:"pattern=^key:[0-9a-f]{64}$"`
	Key           Key         `json:"key,omitempty" jsonschema:"pattern=^key:[0-9a-f]{64}$"` // absent when it never came to be known
	Pure          bool        `json:"pure"`
	Status        StageStatus `json:"status" jsonschema:"enum=passed,enum=failed,enum=tainted,enum=aborted,enum=skipped"`
	Error         string      `json:"error,omitempty"`
	RootCause     string      `json:"root_cause,omitempty"` // node whose failure caused this one's
	Seed          *uint64     `json:"seed,omitempty"`
	StartedAt     time.Time   `json:"started_at"`
	EndedAt       time.Time   `json:"ended_at"`
	DurationMs    float64     `json:"duration_ms"`
	Inputs        []Input     `json:"inputs"`
	Outputs       []Output    `json:"outputs"`
	// Tree is the blob of the tree that holds outputs/ and logs/ of this execution.
	Tree     Digest    `json:"tree,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Findings []Finding `json:"findings,omitempty"`
	ExitCode *int      `json:"exit_code,omitempty"`
	// Nondeterminism: other results that were recorded for the same key.
	OtherResults []Digest `json:"other_results,omitempty"`
}

// Input is one thing a stage read.
type Input struct {
	Name   string `json:"name"`   // logical name
	Origin string `json:"origin"` // "file", "stage", "source", "tool"
	Digest Digest `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Bytes  int64  `json:"bytes"`
	Files  int    `json:"files"`
}

// Output is one named result of a stage.
type Output struct {
	Name   string `json:"name"`
	Digest Digest `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"` // of the canonical tree below outputs/NAME
	Path   string `json:"path"`                                              // in the stage's tree
	Bytes  int64  `json:"bytes"`
	Files  int    `json:"files"`
}

// Tree is the canonical listing of a folder: its digest is the SHA-256 of the
// canonical JSON of Entries without their parts. The stored document adds where
// the bytes are.
type Tree struct {
	Schema  string      `json:"schema" jsonschema_extras:"const=assay/tree/v1"`
	Digest  Digest      `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Entries []TreeEntry `json:"entries"` // byte-sorted by path
	Blobs   []Blob      `json:"blobs"`   // every blob the parts point into
}

// TreeEntry is one file, folder or symbolic link.
type TreeEntry struct {
	Path       string `json:"path"` // slash-separated, relative, clean
	Kind       string `json:"kind" jsonschema:"enum=file,enum=dir,enum=symlink"`
	Executable bool   `json:"executable,omitempty"`
	Size       int64  `json:"size,omitempty"`
	Digest     Digest `json:"digest,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"` // of a file's content
	Target     string `json:"target,omitempty"`                                            // of a symbolic link
	Parts      []Part `json:"parts,omitempty"`
}

// Part is where some of a file's bytes are: Length bytes from Offset of the
// uncompressed content of the blob.
type Part struct {
	Blob   Digest `json:"blob" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
}

// Blob describes a stored blob.
type Blob struct {
	MediaType string `json:"media_type"`
	Digest    Digest `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Size      int64  `json:"size"`
	// Uncompressed content of a compressed blob.
	ContentDigest Digest `json:"content_digest,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	ContentSize   int64  `json:"content_size,omitempty"`
}
