package preflight

import "assay/schemas"

// Refuses lists the findings that stop a run: errors, and what could not be
// found out, which is not a pass.
func Refuses(findings []schemas.Finding) []schemas.Finding {
	var out []schemas.Finding
	for _, f := range findings {
		if f.Severity == schemas.SeverityError || f.Severity == schemas.SeverityUnknown {
			out = append(out, f)
		}
	}
	return out
}
