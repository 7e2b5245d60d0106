package experiments

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"assay/internal/workload"
)

var update = flag.Bool("update", false, "rewrite the shipped workloads")

// shippedWorkloads are generated from fixed seeds. The name follows the
// published one: models, rate per model, scales of input and output lengths.
var shippedWorkloads = map[string]workload.SynthSpec{
	"synth-3-0.1-1.0-1.0.csv":  {Models: 3, RatePerModel: 0.1, Duration: 2 * time.Minute, InputMean: 256, OutputMean: 128, MaxTokens: 4096, Seed: 3},
	"synth-16-0.1-1.0-1.0.csv": {Models: 16, RatePerModel: 0.1, Duration: 2 * time.Minute, InputMean: 256, OutputMean: 128, MaxTokens: 4096, Seed: 16},
}

func TestShippedWorkloads(t *testing.T) {
	for name, spec := range shippedWorkloads {
		w, err := workload.Synth(spec)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := workload.WriteCSV(&b, w); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("workloads", name)
		if *update {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, b.Bytes()) {
			t.Errorf("%s is not what its seed gives; run go test ./experiments -run TestShippedWorkloads -update", file)
		}
	}
	files, _ := filepath.Glob("workloads/*")
	if len(files) != len(shippedWorkloads) {
		t.Errorf("workloads/ holds %d files, want %d", len(files), len(shippedWorkloads))
	}
}
