package workload

import (
	"assay/preflight"
	"assay/schemas"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	return []preflight.Entry{
		{ID: "workload.form", Subject: "workload", Severity: schemas.SeverityError, Checks: "every line of the workload is well formed, as the stage will read it",
			Remedy: "correct the line, or name the form", When: preflight.Before, Rule: "the whole schedule is known before the first request"},
		{ID: "workload.read", Subject: "workload", Severity: schemas.SeverityUnknown, Checks: "the workload can be read to its end",
			Remedy: "check the file and the file system it lies on", When: preflight.Before, Rule: "the whole schedule is known before the first request"},
		{ID: "workload.models", Subject: "workload", Severity: schemas.SeverityError, Checks: "the service has as many models as the workload asks for",
			Remedy: "serve as many models, or use a workload of fewer", When: preflight.Before, Pitfalls: []int{39}},
		{ID: "workload.sequence", Subject: "workload", Severity: schemas.SeverityError, Checks: "prompt and answer together are no longer than every model takes",
			Remedy: "shorten prompts or answers, or raise max_model_len", When: preflight.Before, Pitfalls: []int{52}},
		{ID: "workload.samples", Subject: "workload", Severity: schemas.SeverityInfo, Checks: "says which percentiles the requests are too few for",
			Remedy: "send more, or do not rely on them", When: preflight.Before, Rule: "a percentile has its floor of samples"},
		{ID: "workload.body", Subject: "workload", Severity: schemas.SeverityError, Checks: "requests to Aegaeon have no field that it does not know, and decode greedily",
			Remedy: "leave the field out", When: preflight.Before, Pitfalls: []int{38}},
	}
}
