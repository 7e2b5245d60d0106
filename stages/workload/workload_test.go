package workload

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

func generate(t *testing.T, seed uint64, config map[string]any) []byte {
	t.Helper()
	fields, _ := schemas.FieldsOf("workload")
	task := &pipeline.Task{Config: schemas.ApplyDefaults(fields, config), Seed: seed, Dir: t.TempDir(), Log: &bytes.Buffer{}}
	if err := run(context.Background(), task); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(task.Dir, "outputs", Output, FileName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSeedAloneDecides(t *testing.T) {
	config := map[string]any{"models": 3.0, "rate": 2.0, "duration": "10s"}
	one := generate(t, 1, config)
	if !bytes.Equal(one, generate(t, 1, config)) {
		t.Error("equal seeds give different workloads")
	}
	if bytes.Equal(one, generate(t, 2, config)) {
		t.Error("other seeds give the same workload")
	}
	w, err := workload.Read(bytes.NewReader(one), workload.Options{})
	if err != nil || w.Form != workload.FormAegaeonSynth || len(w.Models()) != 3 || w.SpanNs() >= 10e9 {
		t.Errorf("read back: %v, %d models, span %d ns", err, len(w.Models()), w.SpanNs())
	}
}

func TestBadSettingsAreErrors(t *testing.T) {
	task := &pipeline.Task{Config: map[string]any{"models": 3.0, "rate": 0.0, "duration": "10s"}, Dir: t.TempDir(), Log: &bytes.Buffer{}}
	if err := run(context.Background(), task); err == nil {
		t.Error("a rate of 0 gives no workload")
	}
}

func TestSeedUse(t *testing.T) {
	k := Kind()
	if !k.Pure(nil) || k.Seed(map[string]any{"per_repetition": false}) != pipeline.SeedExperiment || k.Seed(map[string]any{}) != pipeline.SeedRepetition {
		t.Error("per_repetition decides which seed is used")
	}
}
