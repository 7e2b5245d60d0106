package cli

import (
	"encoding/xml"
	"strings"
	"testing"

	"assay/schemas"
)

func reported() []schemas.Finding {
	return []schemas.Finding{
		{ID: "a.one", Severity: schemas.SeverityError, Subject: "x: y, z", Message: "100% wrong\n::error::forged", Remedy: "do", File: "a,b:c.yaml", Line: 3, Column: 4},
		{ID: "a.two", Severity: schemas.SeverityUnknown, Subject: "x: y, z", Message: "not <known> \x01"},
		{ID: "a.three", Severity: schemas.SeverityWarning, Subject: "w", Message: "odd", Line: 7},
		{ID: "a.four", Severity: schemas.SeverityDeferred, Subject: "w", Message: "later"},
		{ID: "a.five", Severity: schemas.SeverityPass, Subject: "p", Message: "well"},
	}
}

func TestAnnotationsAreEscaped(t *testing.T) {
	got := annotations(reported(), []string{"a.two"})
	want := "::error title=a.one x%3A y%2C z,file=a%2Cb%3Ac.yaml,line=3,col=4::100%25 wrong%0A::error::forged%0Ado: do\n" +
		"::notice title=a.two x%3A y%2C z::not <known> \x01\n" +
		"::warning title=a.three w::odd\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := annotations(reported(), nil); !strings.Contains(got, "::error title=a.two") {
		t.Errorf("what is unknown is no error:\n%s", got)
	}
}

func TestJUnitCounts(t *testing.T) {
	b, err := junit(reported(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var doc junitSuites
	if err := xml.Unmarshal(b, &doc); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if doc.Tests != 5 || doc.Failures != 2 || doc.Skipped != 1 || len(doc.Suites) != 3 {
		t.Errorf("%s", b)
	}
	if k := doc.Suites[0].Cases[0]; k.Failure == nil || k.Failure.Type != "error" || k.File != "a,b:c.yaml" || k.Line != 3 {
		t.Errorf("%+v", k)
	}
	if b, err = junit(reported(), []string{"a.two"}); err != nil || !strings.Contains(string(b), `failures="1"`) {
		t.Errorf("%v\n%s", err, b)
	}
}
