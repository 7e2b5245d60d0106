package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"assay/internal/durable"
	"assay/internal/report"
	"assay/pipeline"
	"assay/schemas"
)

// The outputs, and the files in them.
const (
	OutputSummary = "summary"
	OutputTable   = "table"
	SummaryFile   = "summary.json"
	TableFile     = "table.txt"
)

// maxResultBytes bounds one result.json.
const maxResultBytes = 64 << 20

// Kind returns the kind.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "report", Version: 2,
		Pure:    func(map[string]any) bool { return true },
		Outputs: func(map[string]any) []string { return []string{OutputSummary, OutputTable} },
		Run:     run,
	}
}

func run(ctx context.Context, task *pipeline.Task) error {
	results, err := collect(ctx, task)
	if err != nil {
		return err
	}
	b, err := schemas.Encode(summarize(results))
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := put(task, OutputSummary, SummaryFile, append(b, '\n')); err != nil {
		return err
	}
	var table bytes.Buffer
	if err := report.Table(results, &table); err != nil {
		return err
	}
	return put(task, OutputTable, TableFile, table.Bytes())
}

// collect reads the result of every measure stage that this one needs.
func collect(ctx context.Context, task *pipeline.Task) ([]schemas.StageResult, error) {
	var results []schemas.StageResult
	for _, up := range task.Upstream {
		if !schemas.GivesResult(up.Kind) || up.Kind == "compare" || up.Name != "result" {
			continue
		}
		sr := schemas.StageResult{Node: up.Stage, Stage: up.Stage, Trial: up.Trial.ID, Point: up.Trial.Point}
		if up.Trial.ID != "" {
			sr.Node += "@" + up.Trial.ID
		}
		dir, err := up.Path(ctx)
		if err != nil {
			return nil, fmt.Errorf("result of %s: %w", sr.Node, err)
		}
		if sr.Result, err = readResult(filepath.Join(dir, "result.json")); err != nil {
			return nil, fmt.Errorf("result of %s: %w", sr.Node, err)
		}
		results = append(results, sr)
	}
	if len(results) == 0 {
		return nil, errors.New("there is no result to report: name measure or simulate stages in needs")
	}
	return results, nil
}

func readResult(path string) (schemas.Result, error) {
	var res schemas.Result
	f, err := os.Open(path)
	if err != nil {
		return res, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxResultBytes+1))
	switch {
	case err != nil:
		return res, err
	case len(b) > maxResultBytes:
		return res, fmt.Errorf("%s is over the limit of %d bytes", filepath.Base(path), maxResultBytes)
	}
	if err := schemas.Validate("result", b); err != nil {
		return res, err
	}
	return res, json.Unmarshal(b, &res)
}

func put(task *pipeline.Task, output, name string, data []byte) error {
	path, err := task.OutputFile(output, name)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
