package remote

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"assay/archive"
	"assay/schemas"
)

var sampleTime = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

// sealRun makes a run of one stage with these files in the store.
func sealRun(t testing.TB, s *archive.Store, id string, files map[string]string, sources ...schemas.Digest) schemas.Digest {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(content), 0o644))
	}
	return sealDir(t, s, id, dir, sources...)
}

func sealDir(t testing.TB, s *archive.Store, id, dir string, sources ...schemas.Digest) schemas.Digest {
	t.Helper()
	def := schemas.StageDef{Kind: "command", Scope: schemas.ScopeTrial, Config: map[string]any{"argv": []any{"make"}, "reuse": true}}
	exp, err := schemas.Canonical(schemas.Experiment{Schema: schemas.ExperimentV1, Name: "demo/sample",
		Trials: schemas.Trials{Repeat: 1, Order: schemas.OrderSequential}, Stage: map[string]schemas.StageDef{"make": def}})
	must(t, err)
	rec := storeStage(t, s, id, dir, def)
	run := schemas.Run{Schema: schemas.RunV1, ID: id, Experiment: "demo/sample", Status: schemas.RunPassed, StartedAt: sampleTime, EndedAt: sampleTime.Add(time.Minute),
		Services: []schemas.ServiceRecord{}, Records: []schemas.RunRecord{rec}, Sources: []schemas.SourceRun{}, Preimages: []schemas.Digest{rec.Record.Key.Preimage()},
		Plan: schemas.Plan{Schema: schemas.PlanV1, Experiment: "demo/sample", Digest: schemas.DigestOf(exp), Services: []schemas.PlanUnit{},
			Trials: []schemas.Trial{{ID: "t001", Point: map[string]any{}}}, Stages: []schemas.PlanStage{{Stage: "make", Kind: "command", Nodes: 1}},
			Nodes: []schemas.Node{{ID: rec.Node, Stage: "make", Kind: "command", Scope: schemas.ScopeTrial, Trial: "t001", Trials: rec.Trials, Pure: true, Key: rec.Record.DefinitionKey}}}}
	for _, s := range sources {
		run.Sources = append(run.Sources, schemas.SourceRun{Reference: "earlier", Digest: s, Consumed: []string{"report.json"}})
	}
	out, err := s.Seal(context.Background(), schemas.SealRequest{Run: run, Experiment: exp, Source: []byte("# " + id + "\n"),
		Report: func(f schemas.FileSummary) (schemas.Report, error) { return reportOf(run, f), nil }})
	must(t, err)
	return out
}

func storeStage(t testing.TB, s *archive.Store, id, dir string, def schemas.StageDef) schemas.RunRecord {
	t.Helper()
	ctx := context.Background()
	tree, blob, err := s.PutTree(ctx, dir)
	must(t, err)
	keyed, _ := schemas.KeyedDefinition(def)
	pre := schemas.Preimage{Schema: schemas.KeyV1, Kind: "command", KindVersion: 1, Scope: schemas.ScopeTrial, Definition: keyed, Params: map[string]any{}}
	definition, _, err := schemas.KeyOf(pre)
	must(t, err)
	pre.Platform = schemas.Platform{OS: "linux", Arch: "amd64"}
	pre.Upstream, pre.Inputs, pre.Env, pre.Tools, pre.Models = map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	key, preimage, err := schemas.KeyOf(pre)
	must(t, err)
	sub := schemas.SubTree(tree.Entries, "outputs/result")
	d, err := schemas.TreeDigest(sub)
	must(t, err)
	n, size := schemas.SumEntries(sub)
	rec := schemas.StageRecord{Schema: schemas.StageRecordV1, Node: "make@t001", Stage: "make", Kind: "command", KindVersion: 1, Experiment: "demo/sample", Run: id,
		Trial: "t001", Attempt: 1, DefinitionKey: definition, Key: key, Pure: true, Status: schemas.StagePassed, StartedAt: sampleTime, EndedAt: sampleTime.Add(time.Second),
		DurationMs: 1000, Inputs: []schemas.Input{}, Outputs: []schemas.Output{{Name: "result", Digest: d, Path: "outputs/result", Bytes: size, Files: n}}, Tree: blob}
	rd, err := s.PutRecord(ctx, rec, preimage)
	must(t, err)
	return schemas.RunRecord{Record: rec, Digest: rd, Node: rec.Node, Trials: []string{"t001"}, Path: "stages/make/t001"}
}

func reportOf(run schemas.Run, f schemas.FileSummary) schemas.Report {
	r := run.Records[0]
	return schemas.Report{Schema: schemas.ReportV1, RunID: run.ID, Status: run.Status, Passed: true, StartedAt: run.StartedAt, EndedAt: run.EndedAt,
		Experiment: schemas.ReportExperiment{Name: run.Experiment, Digest: run.Plan.Digest, Params: map[string]any{}}, Trials: run.Plan.Trials,
		Stages: []schemas.ReportStage{{Node: r.Node, Stage: r.Record.Stage, Kind: r.Record.Kind, Trial: r.Record.Trial, Status: r.Record.Status, Key: r.Record.Key,
			Outputs: r.Record.Outputs, StartedAt: r.Record.StartedAt, DurationMs: r.Record.DurationMs}},
		Results: []schemas.StageResult{}, Findings: []schemas.Finding{}, Conditions: []schemas.Condition{}, Sources: run.Sources, Claims: []schemas.ClaimResult{},
		Environment: schemas.Environment{Accelerators: []schemas.Accelerator{}, CommandLine: []string{"assay", "run"}}, Files: f}
}
