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
	}
}
