package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"assay/internal/report"
	"assay/schemas"
)

// forged is a run as its documents, before anything is hashed. A test rewrites
// one of them; seal then hashes everything anew, as one would who hides a change.
type forged struct {
	t         *testing.T
	store     *Store
	exp       schemas.Experiment
	run       schemas.Run
	report    schemas.Report
	preimages map[string]*schemas.Preimage // by node
	files     map[string]map[string]string // by node
	expDigest schemas.Digest               // "" for the true one
}

func node(f *forged, id string) *schemas.Node {
	i := slices.IndexFunc(f.run.Plan.Nodes, func(n schemas.Node) bool { return n.ID == id })
	return &f.run.Plan.Nodes[i]
}

func recordOf(f *forged, id string) *schemas.RunRecord {
	i := slices.IndexFunc(f.run.Records, func(r schemas.RunRecord) bool { return r.Node == id })
	return &f.run.Records[i]
}

func row(f *forged, id string) *schemas.ReportStage {
	i := slices.IndexFunc(f.report.Stages, func(r schemas.ReportStage) bool { return r.Node == id })
	return &f.report.Stages[i]
}

func scenarioExperiment() schemas.Experiment {
	command := func(scope, arg string, more map[string]any) schemas.StageDef {
		def := schemas.StageDef{Kind: "command", Scope: scope, Config: map[string]any{"argv": []any{"make", arg}}}
		for k, v := range more {
			def.Config[k] = v
		}
		return def
	}
	fold := command(schemas.ScopeRun, "fold", nil)
	fold.Needs = []string{"replay"}
	after := command(schemas.ScopeTrial, "after", nil)
	after.Needs = []string{"broken"}
	return schemas.Experiment{
		Schema: schemas.ExperimentV1, Name: "demo/scenario", Title: "A run with one of each",
		Params: map[string]any{"rate": 1.0, "load": map[string]any{"path": "load.csv"}}, Matrix: map[string][]any{"rate": {1.0, 2.0}},
		Trials: schemas.Trials{Repeat: 1, Order: schemas.OrderSequential}, Claim: []schemas.Claim{{Name: "fast", Metric: "replay.requests_per_s", Expect: 15, Tolerance: 1}},
		Service: map[string]schemas.Service{"engine": {Engine: "emulated", Restart: "trial", Config: map[string]any{"models": []any{map[string]any{"name": "m"}}}}},
		Stage: map[string]schemas.StageDef{
			"check":  {Kind: "preflight", Scope: schemas.ScopeRun, Config: map[string]any{}},
			"gen":    command(schemas.ScopeTrial, "gen", map[string]any{"reuse": true, "inputs": map[string]any{"seed": "seed.txt"}}),
			"replay": {Kind: "measure", Scope: schemas.ScopeTrial, Service: "engine", Needs: []string{"check", "gen"}, Config: map[string]any{"workload": "${param.load}", "speed": "${param.rate}"}},
			"fold":   fold,
			"broken": command(schemas.ScopeTrial, "broken", map[string]any{"reuse": true}),
			"after":  after,
		},
	}
}

// scenario is a failed run with two trials: a check, a shared pure stage that was
// reused, a measured stage on a service, a stage that folds both trials, one that
// failed and one that was skipped for it.
func scenario(t *testing.T, s *Store) *forged {
	f := &forged{t: t, store: s, exp: scenarioExperiment(), preimages: map[string]*schemas.Preimage{}, files: map[string]map[string]string{}}
	f.run = schemas.Run{Schema: schemas.RunV1, ID: "r1", Experiment: f.exp.Name, Status: schemas.RunFailed, StartedAt: sampleTime, EndedAt: sampleTime.Add(time.Minute),
		Sources: []schemas.SourceRun{{Reference: "base", Digest: schemas.DigestOf([]byte("base"))}}, Tool: schemas.ToolIdentity{Version: "1"}}
	f.run.Plan = schemas.Plan{Schema: schemas.PlanV1, Experiment: f.exp.Name, Trials: []schemas.Trial{
		{ID: "t001", Point: map[string]any{"rate": 1.0}, Seed: 5}, {ID: "t002", Position: 1, Point: map[string]any{"rate": 2.0}, Seed: 5}}}
	both := []string{"t001", "t002"}
	f.add("check", "", nil, nil)
	f.add("gen", "t001", both, nil)
	for _, trial := range both {
		f.add("replay", trial, []string{trial}, []string{"check", "gen@t001"})
		unit := "engine-" + trial[3:]
		node(f, "replay@"+trial).Unit, recordOf(f, "replay@"+trial).Record.Unit = unit, unit
		f.run.Plan.Services = append(f.run.Plan.Services, schemas.PlanUnit{ID: unit, Service: "engine", Engine: "emulated", Key: recordOf(f, "gen@t001").Record.DefinitionKey,
			Nodes: []string{"replay@" + trial}, Trials: []string{trial}})
		f.run.Services = append(f.run.Services, schemas.ServiceRecord{Unit: unit, Service: "engine", Engine: "emulated", Attempt: 1, Status: "stopped", StartedAt: sampleTime, EndedAt: sampleTime, Models: []string{"m"}})
	}
	f.add("fold", "", nil, []string{"replay@t001", "replay@t002"})
	f.add("broken", "t001", both, nil)
	f.add("after", "t001", []string{"t001"}, []string{"broken@t001"})
	f.add("after", "t002", []string{"t002"}, []string{"broken@t001"})
	f.outcomes()
	f.run.Plan.Stages = []schemas.PlanStage{{Stage: "check", Kind: "preflight", Nodes: 1}, {Stage: "gen", Kind: "command", Nodes: 1}, {Stage: "replay", Kind: "measure", Needs: []string{"check", "gen"}, Nodes: 2},
		{Stage: "fold", Kind: "command", Needs: []string{"replay"}, Nodes: 1}, {Stage: "broken", Kind: "command", Nodes: 1}, {Stage: "after", Kind: "command", Needs: []string{"broken"}, Nodes: 2}}
	f.makeReport()
	return f
}

// outcomes gives the nodes that did not simply pass their ends.
func (f *forged) outcomes() {
	broken := &recordOf(f, "broken@t001").Record
	broken.Status, broken.Error = schemas.StageFailed, "exit code 1"
	broken.Findings = []schemas.Finding{{ID: "command.exit", Severity: schemas.SeverityError, Subject: "make", Message: "it ended with 1"}}
	for _, id := range []string{"after@t001", "after@t002"} {
		r := recordOf(f, id)
		r.Record.Status, r.Record.Error, r.Record.RootCause = schemas.StageSkipped, "not run: stage broken@t001 did not pass", "broken@t001"
		r.Record.Outputs, r.Path = nil, ""
		r.Record.Inputs, r.Record.Key = nil, ""
		delete(f.preimages, id)
		delete(f.files, id)
	}
	gen := recordOf(f, "gen@t001")
	gen.ReusedFrom, gen.Record.Run, gen.Record.Trial, gen.Record.Node = "r0", "r0", "t009", "gen@t009"
}

// add plans a node and gives it the record of one that passed.
func (f *forged) add(stage, trial string, trials, needs []string) {
	def, id, path := f.exp.Stage[stage], stage, "run/"+stage
	if trial != "" {
		id, path = stage+"@"+trial, "trials/"+trial+"/"+stage
	}
	n := schemas.Node{ID: id, Stage: stage, Kind: def.Kind, Scope: def.Scope, Trial: trial, Trials: trials, Needs: needs, Measured: def.Kind == "measure", Pure: def.Config["reuse"] == true}
	f.files[id] = map[string]string{"outputs/out/f": id, "logs/stage.log": "done\n"}
	if n.Measured {
		f.files[id] = map[string]string{"outputs/result/result.json": f.resultText(trial), "outputs/result/conditions.json": `[{"name":"engine","value":"emulated"}]`}
	}
	var seed *uint64
	if n.Measured {
		s := uint64(5)
		seed = &s
	}
	pre := &schemas.Preimage{Schema: schemas.KeyV1, Kind: def.Kind, KindVersion: 1, Scope: def.Scope, Seed: seed, Platform: schemas.Platform{OS: "linux", Arch: "amd64"}, Upstream: map[string]string{},
		Inputs: map[string]string{}, Env: map[string]string{}, Tools: map[string]string{}, Models: map[string]string{}}
	pre.Definition, _ = schemas.KeyedDefinition(def)
	if def.Service != "" {
		pre.Service, _ = schemas.KeyedService(f.exp.Service[def.Service])
	}
	params := schemas.TrialParams(f.exp.Params, f.point(trial))
	pre.Params = schemas.ReferredParams(def.Config, params)
	n.Key = f.definitionKey(*pre)
	r := schemas.RunRecord{Node: id, Trials: trials, Path: path, Record: schemas.StageRecord{Schema: schemas.StageRecordV1, Node: id, Stage: stage, Kind: def.Kind, KindVersion: 1,
		Experiment: f.exp.Name, Run: "r1", Trial: trial, Attempt: 1, DefinitionKey: n.Key, Pure: n.Pure, Status: schemas.StagePassed, Seed: seed,
		StartedAt: sampleTime, EndedAt: sampleTime.Add(time.Second), DurationMs: 1000}}
	f.run.Plan.Nodes, f.preimages[id] = append(f.run.Plan.Nodes, n), pre
	f.outputs(&r)
	f.inputs(n, pre, &r.Record)
	f.run.Records = append(f.run.Records, r)
}

func (f *forged) point(trial string) map[string]any {
	for _, t := range f.run.Plan.Trials {
		if t.ID == trial {
			return t.Point
		}
	}
	return nil
}

// definitionKey is what the planner would give: the preimage without what is only
// known when the stage runs.
func (f *forged) definitionKey(pre schemas.Preimage) schemas.Key {
	key, _, err := schemas.KeyOf(schemas.Preimage{Schema: pre.Schema, Kind: pre.Kind, KindVersion: pre.KindVersion, Scope: pre.Scope, Definition: pre.Definition,
		Params: pre.Params, Service: pre.Service, Seed: pre.Seed})
	if err != nil {
		f.t.Fatal(err)
	}
	return key
}

// outputs gives a record the outputs of its node's files.
func (f *forged) outputs(r *schemas.RunRecord) {
	name := "out"
	if r.Record.Kind == "measure" {
		name = "result"
	}
	tree, _, err := f.store.PutTree(context.Background(), writeFiles(f.t, f.files[r.Node]))
	if err != nil {
		f.t.Fatal(err)
	}
	sub := schemas.SubTree(tree.Entries, "outputs/"+name)
	d, err := schemas.TreeDigest(sub)
	if err != nil {
		f.t.Fatal(err)
	}
	n, size := schemas.SumEntries(sub)
	r.Record.Outputs = []schemas.Output{{Name: name, Digest: d, Path: "outputs/" + name, Bytes: size, Files: n}}
}

// inputs gives a record and its key what the node reads.
func (f *forged) inputs(n schemas.Node, pre *schemas.Preimage, rec *schemas.StageRecord) {
	file := func(name, origin string, d schemas.Digest) {
		rec.Inputs = append(rec.Inputs, schemas.Input{Name: name, Origin: origin, Digest: d, Files: 1})
	}
	d := schemas.DigestOf([]byte("content"))
	if pre.Params["load"] != nil {
		pre.Params["load"] = string(d)
		file("param.load", "file", d)
	}
	if n.Stage == "gen" {
		pre.Inputs["inputs/seed"], pre.Tools["tool.0.make"], pre.Sources = string(d), string(d)+" executable", map[string]string{"report.json": string(d)}
		file("inputs/seed", "file", d)
		file("tool.0.make", "tool", d)
		file("source.report.json", "source", d)
	}
	for _, id := range n.Needs {
		need := node(f, id)
		if need.Kind == "preflight" {
			continue
		}
		for _, o := range recordOf(f, id).Record.Outputs {
			name := need.Stage + "/" + o.Name
			if n.Trial == "" {
				name += fmt.Sprintf("@rate=%v,repetition=0", f.point(need.Trial)["rate"])
			}
			pre.Upstream[name] = string(o.Digest)
			file(name, "stage", o.Digest)
		}
	}
}

func (f *forged) result(trial string) schemas.Result {
	rate := 10 * f.point(trial)["rate"].(float64)
	return schemas.Result{Schema: schemas.ResultV1, MetricsVersion: 1, Emulated: true, Headline: "ttft_ms", StampSource: "user", Speed: 1,
		Values: map[string]schemas.Value{"requests_per_s": {Unit: "1/s", Value: &rate}}}
}

func (f *forged) resultText(trial string) string {
	b, err := schemas.Encode(f.result(trial))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}

// makeReport projects config and results, as sealing does.
func (f *forged) makeReport() {
	f.report = sampleReport(f.run, schemas.FileSummary{})
	f.report.Passed, f.report.Emulated, f.report.Sources = false, true, slices.Clone(f.run.Sources)
	f.report.Trials = slices.Clone(f.run.Plan.Trials)
	f.report.Experiment = schemas.ReportExperiment{Name: f.exp.Name, Title: f.exp.Title, Params: map[string]any{"rate": 1.0, "load": map[string]any{"path": "load.csv"}}}
	f.report.Environment.Tool = f.run.Tool
	f.report.Findings = slices.Clone(recordOf(f, "broken@t001").Record.Findings)
	f.report.Conditions = []schemas.Condition{{Name: "engine", Subject: "replay", Value: "emulated"}}
	for i := range f.report.Stages {
		r := f.run.Records[i]
		s := &f.report.Stages[i]
		s.Trial, s.Error, s.RootCause, s.Outputs = node(f, r.Node).Trial, r.Record.Error, r.Record.RootCause, slices.Clone(r.Record.Outputs)
	}
	for _, trial := range []string{"t001", "t002"} {
		f.report.Results = append(f.report.Results, schemas.StageResult{Node: "replay@" + trial, Stage: "replay", Trial: trial, Point: f.point(trial), Result: f.result(trial)})
	}
	mean := 15.0
	f.report.Claims = []schemas.ClaimResult{{Claim: f.exp.Claim[0], Value: &mean, Holds: true}}
}

// seal hashes everything anew and seals it: keys from preimages, in records and
// report, the experiment's digest in plan and report, trees, records, manifest.
func (f *forged) seal() schemas.Digest {
	ctx, t, s := context.Background(), f.t, f.store
	t.Helper()
	canon, err := schemas.Canonical(f.exp)
	if err != nil {
		t.Fatal(err)
	}
	if f.expDigest == "" {
		f.expDigest = schemas.DigestOf(canon)
	}
	f.run.Plan.Digest = f.expDigest
	if f.report.Experiment.Digest == "" {
		f.report.Experiment.Digest = f.expDigest
	}
	known := map[schemas.Digest]bool{}
	for i := range f.run.Records {
		r := &f.run.Records[i]
		if r.Path != "" {
			if _, r.Record.Tree, err = s.PutTree(ctx, writeFiles(t, f.files[r.Node])); err != nil {
				t.Fatal(err)
			}
		}
		var preimage []byte
		if pre := f.preimages[r.Node]; pre != nil {
			if r.Record.Key, preimage, err = schemas.KeyOf(pre); err != nil {
				t.Fatal(err)
			}
			if d := r.Record.Key.Preimage(); !known[d] {
				known[d] = true
				f.run.Preimages = append(f.run.Preimages, d)
			}
		}
		for j := range f.report.Stages {
			if f.report.Stages[j].Node == r.Node && f.report.Stages[j].Key == "" {
				f.report.Stages[j].Key = r.Record.Key
			}
		}
		if r.Digest, err = s.PutRecord(ctx, r.Record, preimage); err != nil {
			t.Fatal(err)
		}
	}
	d, err := s.Seal(ctx, schemas.SealRequest{Run: f.run, Experiment: canon, Report: func(sum schemas.FileSummary) (schemas.Report, error) {
		f.report.Files = sum
		return f.report, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The scenario names metrics that exist.
func TestScenarioIsOneOfEach(t *testing.T) {
	s := newStore(t)
	f := scenario(t, s)
	var res schemas.Result
	if err := json.Unmarshal([]byte(f.resultText("t002")), &res); err != nil {
		t.Fatal(err)
	}
	if v, _, err := report.Lookup(res, "requests_per_s"); err != nil || v != 20 {
		t.Errorf("requests_per_s of the second trial is %v, %v, want 20", v, err)
	}
	v, err := s.Verify(context.Background(), f.seal())
	wantVerdict(t, v, err, Valid)
}
