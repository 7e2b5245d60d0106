package preflight

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/preflight"
	"assay/schemas"
)

var update = flag.Bool("update", false, "write docs/preflight.md anew")

func TestEveryPitfallIsCheckedOrHasAReason(t *testing.T) {
	list := Pitfalls()
	if len(list) != 60 {
		t.Fatalf("%d pitfalls, want 60", len(list))
	}
	checked := map[int][]string{}
	for _, e := range Catalog() {
		for _, n := range e.Pitfalls {
			if n < 1 || n > len(list) {
				t.Errorf("%s stands for pitfall %d, which there is not", e.ID, n)
			}
			checked[n] = append(checked[n], e.ID)
		}
	}
	for _, p := range list {
		if p.Symptom == "" {
			t.Errorf("pitfall %d has no symptom", p.Number)
		}
		if len(checked[p.Number]) == 0 && p.Reason == "" {
			t.Errorf("pitfall %d (%s) is neither in the catalog nor has a reason why not", p.Number, p.Symptom)
		}
	}
}

func TestTheCatalogIsWhole(t *testing.T) {
	id := regexp.MustCompile(`^[a-z][a-z0-9-]*\.[a-z0-9.-]+$`)
	seen := map[string]bool{}
	for _, e := range Catalog() {
		switch {
		case !id.MatchString(e.ID):
			t.Errorf("ID %q", e.ID)
		case seen[e.ID]:
			t.Errorf("%s stands in the catalog twice", e.ID)
		case e.Subject == "" || e.Checks == "" || whenText[e.When] == "":
			t.Errorf("%s: subject, checks or when is empty or unknown: %+v", e.ID, e)
		case len(e.Pitfalls) == 0 && e.Rule == "":
			t.Errorf("%s stands for no pitfall and no rule", e.ID)
		case e.Severity == schemas.SeverityError && e.Remedy == "":
			t.Errorf("%s refuses and says no remedy", e.ID)
		case strings.ContainsAny(e.Checks+e.Remedy+e.Rule, "\n"):
			t.Errorf("%s has more than one line", e.ID)
		}
		seen[e.ID] = true
	}
}

// inCatalog fails for findings that stand in no catalog, or are worse than it says.
func inCatalog(t *testing.T, findings []schemas.Finding) {
	t.Helper()
	entries := map[string]preflight.Entry{}
	for _, e := range Catalog() {
		entries[e.ID] = e
	}
	worst := []schemas.Severity{schemas.SeverityError, schemas.SeverityUnknown, schemas.SeverityWarning, schemas.SeverityDeferred, schemas.SeverityInfo, schemas.SeverityPass}
	for _, f := range findings {
		switch e, ok := entries[f.ID]; {
		case !ok:
			t.Errorf("finding %s (%s) stands in no catalog", f.ID, f.Message)
		case slices.Index(worst, f.Severity) < slices.Index(worst, e.Severity):
			t.Errorf("finding %s is %s (%s), the catalog says %s at worst", f.ID, f.Severity, f.Message, e.Severity)
		}
	}
}

// Whatever ID stands in the code of the checks stands in the catalog.
func TestEveryIDOfTheCodeIsInTheCatalog(t *testing.T) {
	known := map[string]bool{}
	for _, e := range Catalog() {
		known[e.ID] = true
	}
	files, err := filepath.Glob("../../preflight/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	own, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	given := regexp.MustCompile(`(?:\bID: |\.ID(?:, [^=\n]*)? = )"([^"]+)"`)
	n := 0
	for _, file := range append(files, own...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range given.FindAllStringSubmatch(string(b), -1) {
			if n++; !known[m[1]] {
				t.Errorf("%s makes findings %s, which stand in no catalog", file, m[1])
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d IDs were found: the test looks in the wrong place", n)
	}
}

func TestDocument(t *testing.T) {
	const path = "../../docs/preflight.md"
	want := Document()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/preflight.md is not what the catalog says; go test ./stages/preflight -run TestDocument -update\n%s", diff)
	}
}
