package preflight

import (
	"testing"

	"assay/schemas"
)

func TestRefuses(t *testing.T) {
	var all []schemas.Finding
	for _, s := range []schemas.Severity{schemas.SeverityPass, schemas.SeverityInfo, schemas.SeverityWarning, schemas.SeverityDeferred, schemas.SeverityError, schemas.SeverityUnknown} {
		all = append(all, schemas.Finding{ID: "x", Severity: s})
	}
	got := Refuses(all)
	if len(got) != 2 || got[0].Severity != schemas.SeverityError || got[1].Severity != schemas.SeverityUnknown {
		t.Errorf("refuses %+v, want errors and unknowns", got)
	}
}
