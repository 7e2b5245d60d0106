// Package importrules holds a test and nothing else: the directions in which
// packages may import each other, so that the diagram in the documents is true.
package importrules

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "assay"

// rows lists the packages from the bottom up. A package imports what is below
// its row; packages of one row never import each other. "x/*" is every package
// below x. A parent may import its own sub-packages and the other way round.
var rows = [][]string{
	{"schemas"},
	{"internal/durable"},
	{"internal/statcache", "internal/supervise", "internal/redact"},
	{"internal/workload", "internal/metrics", "internal/fingerprint"},
	{"internal/loadgen", "internal/serving", "internal/report", "internal/report/*", "internal/observe", "internal/foundry"},
	{"internal/engines", "internal/engines/*"},
	{"pipeline", "preflight", "preflight/*", "archive", "archive/*", "experiments", "experiments/*"},
	{"stages/*"},
	{"stages"},
	{"internal/audit", "internal/probe", "internal/rerun", "internal/export", "internal/sign"},
	{"internal/cli"},
	{"internal/crashtest"}, // kills whole runs: tests only
	{"cmd/assay", "bench", "bench/*"},
}

// owners lists libraries that one package alone may import, itself or below.
var owners = []struct {
	library string
	allowed []string
}{
	{"github.com/urfave/cli", []string{"internal/cli"}},
	{"github.com/vbauerster/mpb", []string{"internal/cli"}},
	{"github.com/jedib0t/go-pretty", []string{"internal/cli"}},
	{"github.com/BurntSushi/toml", []string{"experiments"}},
	{"go.yaml.in/yaml", []string{"internal/engines/aegaeon"}},
	{"github.com/santhosh-tekuri/jsonschema", []string{"schemas"}},
	{"github.com/google/go-containerregistry", []string{"archive", "archive/remote"}},
	{registryTransport, []string{"archive/remote"}},
	{"github.com/google/go-containerregistry/pkg/authn", []string{"archive/remote"}},
	{"github.com/google/go-containerregistry/pkg/name", []string{"archive/remote"}},
	{"github.com/docker/cli", []string{"archive/remote"}},
	{"github.com/gofrs/flock", []string{"internal/durable"}},
}

// registryTransport must stay out of reach of the store: an archive is read and
// checked offline.
const registryTransport = "github.com/google/go-containerregistry/pkg/v1/remote"

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
	GoFiles    []string
}

// list asks the Go tool for the production imports of every package of ours.
func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps,GoFiles", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if len(p.GoFiles) > 0 && ours(p.ImportPath) {
			all = append(all, p)
		}
	}
	if len(all) < 10 {
		t.Fatalf("go list found %d packages of module %s: the test looks in the wrong place", len(all), module)
	}
	return all
}

func ours(path string) bool { return strings.HasPrefix(path, module+"/") }

func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// row is the row a package stands in, -1 for none.
func row(pkg string) int {
	for i, r := range rows {
		for _, pattern := range r {
			parent, wild := strings.CutSuffix(pattern, "/*")
			if pkg == pattern || (wild && strings.HasPrefix(pkg, parent+"/")) {
				return i
			}
		}
	}
	return -1
}

func related(a, b string) bool {
	return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// wrong says what is wrong with an import, "" for nothing.
func wrong(from, to string) string {
	switch f, t := row(from), row(to); {
	case f < 0:
		return from + " stands in no row: give it one in this test and in the documents"
	case t < 0:
		return to + " stands in no row: give it one in this test and in the documents"
	case t < f, t == f && related(from, to):
		return ""
	case t == f:
		return from + " imports " + to + ", which stands beside it"
	}
	return from + " imports " + to + ", which stands above it"
}

func TestDirections(t *testing.T) {
	for _, p := range list(t) {
		if row(short(p.ImportPath)) < 0 {
			t.Errorf("%s stands in no row", p.ImportPath)
		}
		for _, imp := range p.Imports {
			if !ours(imp) {
				continue
			}
			if msg := wrong(short(p.ImportPath), short(imp)); msg != "" {
				t.Error(msg)
			}
		}
	}
}

func TestOwners(t *testing.T) {
	for _, p := range list(t) {
		for _, imp := range p.Imports {
			for _, o := range owners {
				if (imp == o.library || strings.HasPrefix(imp, o.library+"/")) && !slices.Contains(o.allowed, short(p.ImportPath)) {
					t.Errorf("%s imports %s: only %s may", p.ImportPath, imp, strings.Join(o.allowed, ", "))
				}
			}
			if imp == "testing" || strings.HasPrefix(imp, "testing/") {
				t.Errorf("%s imports %s in production code", p.ImportPath, imp)
			}
		}
	}
}

func TestStoreIsOffline(t *testing.T) {
	found := false
	for _, p := range list(t) {
		if p.ImportPath != module+"/archive" {
			continue
		}
		found = true
		for _, bad := range []string{registryTransport, "net/http"} {
			if slices.Contains(p.Deps, bad) {
				t.Errorf("archive reaches %s", bad)
			}
		}
	}
	if !found {
		t.Error("there is no package archive")
	}
}

// TestRules checks the rules themselves on imports that must not be.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"internal/cli", "schemas", true},
		{"pipeline", "internal/report", true},
		{"internal/engines", "internal/engines/emulated", true},
		{"stages", "stages/measure", true},
		{"stages/measure", "stages/warmup", false},
		{"archive", "pipeline", false},
		{"pipeline", "experiments", false},
		{"preflight/disk", "preflight/paths", false},
		{"schemas", "internal/durable", false},
		{"internal/metrics", "internal/report", false},
		{"unheard-of", "schemas", false},
	} {
		if got := wrong(c.from, c.to) == ""; got != c.ok {
			t.Errorf("%s -> %s: allowed %v, want %v", c.from, c.to, got, c.ok)
		}
	}
}
