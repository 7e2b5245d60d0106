package workload

import (
	"context"
	"fmt"
	"strconv"

	"assay/internal/durable"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// Output is the name of the output, and FileName of the file in it.
const (
	Output   = "workload"
	FileName = "workload.csv"
)

// Kind returns the kind.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "workload", Version: 1,
		Pure:    func(map[string]any) bool { return true },
		Seed:    seed,
		Outputs: func(map[string]any) []string { return []string{Output} },
		Run:     run,
	}
}

func lengths(set schemas.Settings, key string) ([]float64, error) {
	var out []float64
	for _, text := range set.List(key) {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a number of tokens", key, text)
		}
		out = append(out, v)
	}
	return out, nil
}

func seed(config map[string]any) pipeline.SeedUse {
	if v, ok := config["per_repetition"].(bool); ok && !v {
		return pipeline.SeedExperiment
	}
	return pipeline.SeedRepetition
}

func run(_ context.Context, task *pipeline.Task) error {
	set := schemas.Settings(task.Config)
	input, err := lengths(set, "input_quantiles")
	if err != nil {
		return err
	}
	output, err := lengths(set, "output_quantiles")
	if err != nil {
		return err
	}
	w, err := workload.Synth(workload.SynthSpec{
		InputQuantiles: input, OutputQuantiles: output, InputScale: set.Float("input_scale"), OutputScale: set.Float("output_scale"), FixedCount: set.Text("arrivals") == "fixed-count",
		Models: set.Int("models"), RatePerModel: set.Float("rate"), Duration: set.Duration("duration"),
		InputMean: set.Int("input_mean"), OutputMean: set.Int("output_mean"), MaxTokens: set.Int("max_tokens"), Seed: task.Seed,
	})
	if err != nil {
		return err
	}
	path, err := task.OutputFile(Output, FileName)
	if err != nil {
		return err
	}
	f, err := durable.Create(path)
	if err != nil {
		return fmt.Errorf("write workload: %w", err)
	}
	defer f.Abort()
	if err := workload.WriteCSV(f, w); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return fmt.Errorf("write workload: %w", err)
	}
	fmt.Fprintf(task.Log, "%d requests to %d models within %s\n", len(w.Requests), len(w.Models()), set.Text("duration"))
	return nil
}
