package archive

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/schemas"
)

var sampleTime = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

// writeFiles makes a folder: a name ending in "/" is a folder, a content
// beginning with "->" a link, one beginning with "#!" is executable.
func writeFiles(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	fillFiles(t, dir, files)
	return dir
}

func fillFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		target, isLink := strings.CutPrefix(content, "->")
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o755)
		case isLink:
			err = os.Symlink(target, p)
		case strings.HasPrefix(content, "#!"):
			err = os.WriteFile(p, []byte(content), 0o755)
		default:
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func noise(n int, seed uint64) string {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return string(b)
}

// smallStages is a run of two stages without large files.
func smallStages() map[string]map[string]string {
	return map[string]map[string]string{
		"gen": {"outputs/workload/w.csv": "a,b\n1,2\n", "outputs/workload/empty": "", "logs/stage.log": "made it\n"},
		"replay": {"outputs/requests/r.jsonl": strings.Repeat("{\"id\":1}\n", 50), "outputs/requests/dir/": "",
			"outputs/requests/run.sh": "#!/bin/sh\n", "outputs/requests/last": "->r.jsonl", "logs/stage.log": "ok\n"},
	}
}

// bigStages adds files that are blobs of their own: one that compresses, one
// that does not.
func bigStages() map[string]map[string]string {
	m := smallStages()
	m["replay"]["outputs/requests/text.log"] = strings.Repeat("the same line again\n", 300_000)
	m["replay"]["outputs/requests/noise.bin"] = noise(largeFileBytes+17, 1)
	return m
}

// runRequest stores the stages and returns what Seal needs.
func runRequest(t testing.TB, s *Store, id string, stages map[string]map[string]string) (schemas.SealRequest, error) {
	t.Helper()
	run := schemas.Run{Schema: schemas.RunV1, ID: id, Experiment: "demo/sample", Status: schemas.RunPassed,
		StartedAt: sampleTime, EndedAt: sampleTime.Add(time.Minute), Services: []schemas.ServiceRecord{}, Records: []schemas.RunRecord{},
		Sources: []schemas.SourceRun{}, Preimages: []schemas.Digest{}}
	exp, err := schemas.Canonical(sampleExperiment(stages))
	if err != nil {
		return schemas.SealRequest{}, err
	}
	run.Plan = schemas.Plan{Schema: schemas.PlanV1, Experiment: run.Experiment, Digest: schemas.DigestOf(exp),
		Trials: []schemas.Trial{{ID: "t001", Point: map[string]any{}}}, Services: []schemas.PlanUnit{}}
	for _, name := range slices.Sorted(maps.Keys(stages)) {
		rec, err := storeStage(t, s, id, name, stages[name])
		if err != nil {
			return schemas.SealRequest{}, err
		}
		run.Plan.Nodes = append(run.Plan.Nodes, schemas.Node{ID: rec.Node, Stage: name, Kind: "command", Scope: schemas.ScopeTrial, Trial: "t001",
			Trials: rec.Trials, Pure: true, Key: rec.Record.DefinitionKey})
		run.Plan.Stages = append(run.Plan.Stages, schemas.PlanStage{Stage: name, Kind: "command", Nodes: 1})
		run.Records = append(run.Records, rec)
		run.Preimages = append(run.Preimages, rec.Record.Key.Preimage())
	}
	return schemas.SealRequest{Run: run, Experiment: exp, Source: []byte("schema = \"assay/experiment/v1\"\n# " + id + "\n"),
		Report: func(f schemas.FileSummary) (schemas.Report, error) { return sampleReport(run, f), nil }}, nil
}

// sampleExperiment has one command for each stage.
func sampleExperiment(stages map[string]map[string]string) schemas.Experiment {
	exp := schemas.Experiment{Schema: schemas.ExperimentV1, Name: "demo/sample", Trials: schemas.Trials{Repeat: 1, Order: schemas.OrderSequential}, Stage: map[string]schemas.StageDef{}}
	for name := range stages {
		exp.Stage[name] = sampleStage(name)
	}
	return exp
}

func sampleStage(name string) schemas.StageDef {
	return schemas.StageDef{Kind: "command", Scope: schemas.ScopeTrial, Config: map[string]any{"argv": []any{"make", name}, "reuse": true}}
}

// sampleKeys are the definition key of a stage, its action key and preimage.
func sampleKeys(name string) (definition, action schemas.Key, preimage []byte, err error) {
	keyed, _ := schemas.KeyedDefinition(sampleStage(name))
	pre := schemas.Preimage{Schema: schemas.KeyV1, Kind: "command", KindVersion: 1, Scope: schemas.ScopeTrial, Definition: keyed, Params: map[string]any{}}
	if definition, _, err = schemas.KeyOf(pre); err != nil {
		return
	}
	pre.Platform = schemas.Platform{OS: "linux", Arch: "amd64"}
	pre.Upstream, pre.Inputs, pre.Env, pre.Tools, pre.Models = map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	action, preimage, err = schemas.KeyOf(pre)
	return
}

func storeStage(t testing.TB, s *Store, id, name string, files map[string]string) (schemas.RunRecord, error) {
	ctx := context.Background()
	none := schemas.RunRecord{}
	tree, blob, err := s.PutTree(ctx, writeFiles(t, files))
	if err != nil {
		return none, err
	}
	definition, key, preimage, err := sampleKeys(name)
	if err != nil {
		return none, err
	}
	rec := schemas.StageRecord{Schema: schemas.StageRecordV1, Node: name + "@t001", Stage: name, Kind: "command", KindVersion: 1,
		Experiment: "demo/sample", Run: id, Trial: "t001", Attempt: 1, DefinitionKey: definition, Key: key, Pure: true, Status: schemas.StagePassed,
		StartedAt: sampleTime, EndedAt: sampleTime.Add(time.Second), DurationMs: 1000, Inputs: []schemas.Input{}, Outputs: []schemas.Output{}, Tree: blob}
	for _, e := range tree.Entries {
		out, ok := strings.CutPrefix(e.Path, "outputs/")
		if !ok || strings.Contains(out, "/") {
			continue
		}
		sub := schemas.SubTree(tree.Entries, e.Path)
		d, err := schemas.TreeDigest(sub)
		if err != nil {
			return none, err
		}
		n, size := schemas.SumEntries(sub)
		rec.Outputs = append(rec.Outputs, schemas.Output{Name: out, Digest: d, Path: e.Path, Bytes: size, Files: n})
	}
	d, err := s.PutRecord(ctx, rec, preimage)
	return schemas.RunRecord{Record: rec, Digest: d, Node: rec.Node, Trials: []string{"t001"}, Path: "stages/" + name + "/t001"}, err
}

func sampleReport(run schemas.Run, f schemas.FileSummary) schemas.Report {
	rows := []schemas.ReportStage{}
	for _, r := range run.Records {
		rows = append(rows, schemas.ReportStage{Node: r.Node, Stage: r.Record.Stage, Kind: r.Record.Kind, Trial: r.Record.Trial, Status: r.Record.Status,
			Key: r.Record.Key, Outputs: r.Record.Outputs, ReusedFrom: r.ReusedFrom, StartedAt: r.Record.StartedAt, DurationMs: r.Record.DurationMs})
	}
	return schemas.Report{Schema: schemas.ReportV1, RunID: run.ID, Status: run.Status, Passed: true, StartedAt: run.StartedAt, EndedAt: run.EndedAt,
		Experiment: schemas.ReportExperiment{Name: run.Experiment, Digest: run.Plan.Digest, Params: map[string]any{}},
		Stages:     rows, Trials: run.Plan.Trials, Results: []schemas.StageResult{}, Findings: []schemas.Finding{},
		Conditions: []schemas.Condition{}, Sources: []schemas.SourceRun{}, Claims: []schemas.ClaimResult{},
		Environment: schemas.Environment{Accelerators: []schemas.Accelerator{}, CommandLine: []string{"assay", "run"}}, Files: f}
}

func newStore(t testing.TB) *Store {
	t.Helper()
	s, err := Create(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sealRun(t testing.TB, s *Store, id, tag string, stages map[string]map[string]string) schemas.Digest {
	t.Helper()
	req, err := runRequest(t, s, id, stages)
	if err != nil {
		t.Fatal(err)
	}
	req.Tag = tag
	d, err := s.Seal(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func wantVerdict(t testing.TB, v Verdict, err error, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if v.Verdict != want {
		var b bytes.Buffer
		for _, f := range v.Findings {
			fmt.Fprintf(&b, "\n%+v", f)
		}
		t.Fatalf("verdict %s, want %s:%s", v.Verdict, want, b.String())
	}
}
