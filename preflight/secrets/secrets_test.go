package secrets

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"assay/preflight"
	"assay/schemas"
)

func TestKey(t *testing.T) {
	const key = "sk-checked-0123"
	for _, c := range []struct {
		value string
		err   error
		id    string
		sev   schemas.Severity
	}{
		{key, nil, "service.api-key", schemas.SeverityPass},
		{"", errors.New("the environment variable X is not set"), "service.api-key-missing", schemas.SeverityError},
		{"", nil, "service.api-key-unfit", schemas.SeverityError},
		{"short", nil, "service.api-key-unfit", schemas.SeverityError},
		{key + " and more", nil, "service.api-key-unfit", schemas.SeverityError},
	} {
		f := Key("service engine", c.value, c.err)
		if f.ID != c.id || f.Severity != c.sev || f.Message == "" || f.Subject != "service engine: api_key" || (f.Remedy == "") != (c.sev == schemas.SeverityPass) {
			t.Errorf("%q: %+v", c.value, f)
		}
		if strings.Contains(f.Message+f.Remedy, key) {
			t.Errorf("the finding holds the key: %+v", f)
		}
		if !slices.ContainsFunc(Catalog(), func(e preflight.Entry) bool { return e.ID == f.ID && e.Checks != "" && e.Rule != "" }) {
			t.Errorf("%s is in no catalog", f.ID)
		}
	}
}
