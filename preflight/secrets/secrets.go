// Package secrets checks that what a service has to be asked with can be had, before
// anything is started.
package secrets

import (
	"assay/preflight"
	"assay/schemas"
)

// IDs of the findings.
const (
	idMissing = "service.api-key-missing"
	idUnfit   = "service.api-key-unfit"
	idFound   = "service.api-key"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	const rule = "an API key is in the environment or in a file of this machine, never in an experiment"
	return []preflight.Entry{
		{ID: idFound, Subject: "service", Severity: schemas.SeverityPass, Checks: "the service's API key is there", When: preflight.Before, Rule: rule},
		{ID: idMissing, Subject: "service", Severity: schemas.SeverityError, Checks: "the environment variable or file that holds the service's API key is there and not empty",
			Remedy: "set it where assay is started, or name another under [secrets] of the machine file", When: preflight.Before, Rule: rule},
		{ID: idUnfit, Subject: "service", Severity: schemas.SeverityError, Checks: "the service's API key can be sent in a header, and cut out of what is archived",
			Remedy: "look at the variable or file that it comes from; leave api_key out for a service that asks for none", When: preflight.Before, Rule: rule},
	}
}

// Key judges the API key of a service; err says why it could not be had. No finding
// holds the key.
func Key(subject, value string, err error) schemas.Finding {
	f := schemas.Finding{Subject: subject + ": api_key", Severity: schemas.SeverityError}
	switch _, unfit := schemas.NewAPIKey(value); {
	case err != nil:
		f.ID, f.Message = idMissing, err.Error()
	case unfit != nil:
		f.ID, f.Message = idUnfit, unfit.Error()
	default:
		f.ID, f.Severity, f.Message = idFound, schemas.SeverityPass, "the API key is there"
	}
	for _, e := range Catalog() {
		if e.ID == f.ID {
			f.Remedy = e.Remedy
		}
	}
	return f
}
