package experiments

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"assay/internal/workload"
	"assay/schemas"
)

func TestShippedExperimentsLoad(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	want := []string{"aegaeon/figure-11", "aegaeon/figure-12", "aegaeon/figure-13", "aegaeon/foundry-save", "aegaeon/replay", "aegaeon/three-model-foundry", "aegaeon/twin", "quickstart", "real/llamacpp-gemma3"}
	if got := Shipped(); !slices.Equal(got, want) {
		t.Fatalf("shipped: %v, want %v", got, want)
	}
	for _, name := range want {
		for _, form := range []string{name, name + ".toml", "experiments/" + name + ".toml"} {
			l, err := Load(form, Options{Machine: "none"})
			if err != nil {
				t.Fatal(err)
			}
			if l.Experiment.Name != name {
				t.Errorf("%s: name %q", form, l.Experiment.Name)
			}
			doc, err := schemas.Encode(l.Experiment)
			if err != nil {
				t.Fatal(err)
			}
			if err := schemas.Validate("experiment", doc); err != nil {
				t.Errorf("%s: %v", form, err)
			}
		}
	}
}

func TestShippedPathsAreFiles(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	l, err := Load("aegaeon/replay.toml", Options{Machine: "none"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := workload.ReadFile(l.ParamPaths["workload"], workload.Options{})
	if err != nil || len(w.Requests) == 0 {
		t.Fatalf("workload: %d requests, %v", len(w.Requests), err)
	}
	if got := l.Experiment.Params["workload"].(map[string]any)["path"]; got != "../workloads/synth-3-0.1-1.0-1.0.csv" {
		t.Errorf("effective path %q", got)
	}
	// A spoilt copy in the cache is replaced, not used.
	if err := os.WriteFile(l.ParamPaths["workload"], []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Load("aegaeon/replay", Options{Machine: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := workload.ReadFile(again.ParamPaths["workload"], workload.Options{}); err != nil {
		t.Errorf("after damage: %v", err)
	}
	if filepath.Base(again.Dir) != "aegaeon" {
		t.Errorf("dir %s", again.Dir)
	}
}
