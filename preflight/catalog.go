package preflight

import "assay/schemas"

// When a check is made.
const (
	// Before anything is started, from files and facts.
	Before = "before"
	// NotYet is for a check that is written and that nothing calls so far.
	NotYet = "not yet"
)

// Entry describes one check for lists and documents: each sub-package lists its
// own as Catalog, and a finding has no ID that stands in none of them.
type Entry struct {
	// ID is that of the findings.
	ID string `json:"id"`
	// Subject is what is looked at: checkpoint, archive, configuration, host,
	// workload, service, machine or source.
	Subject string `json:"subject"`
	// Severity is the worst that it says.
	Severity schemas.Severity `json:"severity"`
	// Checks says what has to hold, in one sentence.
	Checks string `json:"checks"`
	// Remedy says what to do where it does not.
	Remedy string `json:"remedy,omitempty"`
	// When is one of the times above.
	When string `json:"when"`
	// Pitfalls are numbers in the table of docs/preflight.md.
	Pitfalls []int `json:"pitfalls,omitempty"`
	// Rule names what it stands for where no pitfall does.
	Rule string `json:"rule,omitempty"`
}
