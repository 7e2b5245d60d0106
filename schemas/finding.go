package schemas

// Severity of a finding. Unknown is not a pass; deferred is a check of an
// output that does not exist yet.
type Severity string

// The closed list of severities, worst first.
const (
	SeverityError    Severity = "error"
	SeverityUnknown  Severity = "unknown"
	SeverityWarning  Severity = "warning"
	SeverityDeferred Severity = "deferred"
	SeverityInfo     Severity = "info"
	SeverityPass     Severity = "pass"
)

// Finding is one result of one check.
type Finding struct {
	ID       string   `json:"id" jsonschema:"pattern=^[a-z][a-z0-9.-]*$"`
	Severity Severity `json:"severity" jsonschema:"enum=error,enum=unknown,enum=warning,enum=deferred,enum=info,enum=pass"`
	Subject  string   `json:"subject"`
	Message  string   `json:"message"`
	Remedy   string   `json:"remedy,omitempty"`
	// Where the fault lies, as far as it is known.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty" jsonschema:"minimum=1"`
	Column int    `json:"column,omitempty" jsonschema:"minimum=1"`
	Blob   Digest `json:"blob,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Run    string `json:"run,omitempty"`
	Stage  string `json:"stage,omitempty"`
	Trial  string `json:"trial,omitempty"`
	Path   string `json:"path,omitempty"`
	// Paths lists every path a fault may touch when no single one can be named.
	Paths []string `json:"paths,omitempty"`
}

// Findings is the document that `preflight` and `verify` print as JSON.
type Findings struct {
	Schema   string    `json:"schema" jsonschema_extras:"const=assay/findings/v1"`
	Findings []Finding `json:"findings"`
}
