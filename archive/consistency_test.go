package archive

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/schemas"
)

// forgery is a change of one document and what verify must say of it.
type forgery struct {
	name  string
	edit  func(f *forged)
	topic string
	says  string // in the message: the field and both values
	stage string
	trial string
}

var other = schemas.DigestOf([]byte("another"))

func statusForgeries() []forgery {
	return []forgery{
		{"run passed", func(f *forged) {
			f.run.Status, f.report.Status, f.report.Passed = schemas.RunPassed, schemas.RunPassed, true
		}, "status", `status is "passed", the record of broken@t001 gives "failed"`, "", ""},
		{"run tainted", func(f *forged) { f.run.Status, f.report.Status = schemas.RunTainted, schemas.RunTainted }, "status", `"tainted"`, "", ""},
		{"tainted record, run failed", func(f *forged) {
			recordOf(f, "broken@t001").Record.Status, row(f, "broken@t001").Status = schemas.StageTainted, schemas.StageTainted
		}, "status", `status is "failed", the record of broken@t001 gives "tainted"`, "", ""},
		{"aborted record, run failed", func(f *forged) {
			recordOf(f, "broken@t001").Record.Status, row(f, "broken@t001").Status = schemas.StageAborted, schemas.StageAborted
		}, "status", `status is "failed", the record of broken@t001 gives "aborted"`, "", ""},
		{"report status", func(f *forged) { f.report.Status = schemas.RunPassed; f.report.Passed = true }, "report", `status is "passed", the config gives "failed"`, "", ""},
		{"report passed", func(f *forged) { f.report.Passed = true }, "report", `passed is true, the status gives false`, "", ""},
		{"failed record passed", func(f *forged) {
			r := &recordOf(f, "broken@t001").Record
			r.Status = schemas.StagePassed
		}, "outcome", `its status is passed, and it has the error "exit code 1"`, "broken", "t001"},
		{"record and report passed", func(f *forged) {
			r := &recordOf(f, "broken@t001").Record
			r.Status, r.Error, row(f, "broken@t001").Status, row(f, "broken@t001").Error = schemas.StagePassed, "", schemas.StagePassed, ""
		}, "outcome", `it was skipped because of "broken@t001"`, "after", "t001"},
		{"passed on a failed need", func(f *forged) {
			r := &recordOf(f, "after@t001").Record
			r.Status = schemas.StageFailed
			r.RootCause = ""
		}, "outcome", `its status is failed, and broken@t001, which it needs, is failed`, "after", "t001"},
		{"root cause", func(f *forged) {
			recordOf(f, "after@t001").Record.RootCause, row(f, "after@t001").RootCause = "gen@t001", "gen@t001"
		}, "outcome", `"gen@t001"`, "after", "t001"},
		{"no error", func(f *forged) {
			recordOf(f, "broken@t001").Record.Error, row(f, "broken@t001").Error = "", ""
		}, "outcome", `failed, and it has no error`, "broken", "t001"},
		{"passed without a key", func(f *forged) { recordOf(f, "fold").Record.Key, f.preimages["fold"] = "", nil }, "outcome", `its key is ""`, "fold", ""},
		{"service died", func(f *forged) { f.run.Services[0].Status = "died"; fix(f) }, "status", `status is "passed", service engine-1, which died gives "failed"`, "", ""},
	}
}

// fix makes the scenario one in which every stage passed.
func fix(f *forged) {
	for i := range f.run.Records {
		r := &f.run.Records[i]
		if r.Record.Status == schemas.StagePassed {
			continue
		}
		id := r.Node
		f.run.Plan.Nodes[i].Needs = nil
		f.files[id], r.Path = map[string]string{"logs/l": id}, "trials/"+r.Record.Trial+"/"+r.Record.Stage
		r.Record.Status, r.Record.Error, r.Record.RootCause, r.Record.Outputs, r.Record.Inputs, r.Record.Findings = schemas.StagePassed, "", "", nil, nil, nil
		rr := row(f, id)
		rr.Status, rr.Error, rr.RootCause, rr.Outputs = schemas.StagePassed, "", "", nil
	}
	f.run.Status, f.report.Status, f.report.Passed = schemas.RunPassed, schemas.RunPassed, true
}

func reportForgeries() []forgery {
	return []forgery{
		{"run id", func(f *forged) { f.report.RunID = "r9" }, "report", `run_id is "r9", the config gives "r1"`, "", ""},
		{"start", func(f *forged) { f.report.StartedAt = sampleTime.Add(-time.Hour) }, "report", `started_at is`, "", ""},
		{"end", func(f *forged) { f.report.EndedAt = sampleTime.Add(time.Hour) }, "report", `ended_at is`, "", ""},
		{"source", func(f *forged) { f.report.Sources[0].Digest = other }, "report", `source_runs is`, "", ""},
		{"tool", func(f *forged) { f.report.Environment.Tool.Version = "2" }, "report", `environment.tool is`, "", ""},
		{"trials", func(f *forged) { f.report.Trials[1].Seed = 6 }, "report", `trials is`, "", ""},
		{"experiment name", func(f *forged) { f.report.Experiment.Name = "demo/other" }, "report", `experiment.name is "demo/other", experiment.json gives "demo/scenario"`, "", ""},
		{"experiment title", func(f *forged) { f.report.Experiment.Title = "Better" }, "report", `experiment.title is "Better"`, "", ""},
		{"experiment params", func(f *forged) { f.report.Experiment.Params["rate"] = 3.0 }, "report", `experiment.params is`, "", ""},
		{"row missing", func(f *forged) { f.report.Stages = f.report.Stages[1:] }, "report", `the number of stages is 7, the config gives 8`, "", ""},
		{"row status", func(f *forged) { row(f, "broken@t001").Status = schemas.StagePassed }, "report", `status is "passed", the record gives "failed"`, "broken", "t001"},
		{"row kind", func(f *forged) { row(f, "fold").Kind = "report" }, "report", `kind is "report", the record gives "command"`, "fold", ""},
		{"row stage", func(f *forged) { row(f, "fold").Stage = "gen" }, "report", `stage is "gen"`, "fold", ""},
		{"row trial", func(f *forged) { row(f, "replay@t001").Trial = "t002" }, "report", `trial is "t002", the plan gives "t001"`, "replay", "t001"},
		{"row key", func(f *forged) { row(f, "fold").Key = node(f, "gen@t001").Key }, "report", `key is`, "fold", ""},
		{"row outputs", func(f *forged) { row(f, "fold").Outputs[0].Digest = other }, "report", `outputs is`, "fold", ""},
		{"row reused", func(f *forged) { row(f, "gen@t001").ReusedFrom = "" }, "report", `reused_from is "", the config gives "r0"`, "gen", "t001"},
		{"row start", func(f *forged) { row(f, "fold").StartedAt = sampleTime.Add(time.Second) }, "report", `started_at is`, "fold", ""},
		{"row duration", func(f *forged) { row(f, "fold").DurationMs = 1 }, "report", `duration_ms is 1, the record gives 1000`, "fold", ""},
		{"row error", func(f *forged) { row(f, "broken@t001").Error = "disk full" }, "report", `error is "disk full", the record gives "exit code 1"`, "broken", "t001"},
		{"row root cause", func(f *forged) { row(f, "after@t002").RootCause = "fold" }, "report", `root_cause is "fold", the record gives "broken@t001"`, "after", "t002"},
		{"finding left out", func(f *forged) { f.report.Findings = nil }, "report", `findings does not have error command.exit`, "broken", "t001"},
		{"result value", func(f *forged) {
			x := 99.0
			f.report.Results[1].Result.Values["requests_per_s"] = schemas.Value{Unit: "1/s", Value: &x}
		}, "result", `/values/requests_per_s/value is 99, trials/t002/replay/outputs/result/result.json gives 20`, "replay", "t002"},
		{"result point", func(f *forged) { f.report.Results[0].Point = map[string]any{"rate": 2.0} }, "result", `point is {"rate":2}, the trial gives {"rate":1}`, "replay", "t001"},
		{"result trial", func(f *forged) { f.report.Results[0].Trial = "t002" }, "result", `trial is "t002"`, "replay", "t001"},
		{"result left out", func(f *forged) { f.report.Results = f.report.Results[:1] }, "result", `the number of results is 1, the config gives 2`, "", ""},
		{"results swapped", func(f *forged) { slices.Reverse(f.report.Results) }, "result", `node is "replay@t002", the plan gives "replay@t001"`, "replay", "t001"},
		{"not emulated", func(f *forged) { f.report.Emulated = false }, "result", `emulated is false, the results give`, "", ""},
		{"condition", func(f *forged) { f.report.Conditions[0].Value = "vllm" }, "result", `which no measured stage states`, "", ""},
		{"condition left out", func(f *forged) { f.report.Conditions = nil }, "result", `which a measured stage states`, "", ""},
		{"claim value", func(f *forged) { x := 15.5; f.report.Claims[0].Value = &x }, "claim", `value is 15.5, the results give`, "", ""},
		{"claim holds", func(f *forged) { f.report.Claims[0].Holds = false }, "claim", `holds is false, expect and tolerance give`, "", ""},
		{"claim value absent", func(f *forged) {
			f.report.Claims[0].Value, f.report.Claims[0].Holds, f.report.Claims[0].Reason = nil, false, "none"
		}, "claim", `the results give 15`, "", ""},
		{"claim without results", func(f *forged) { f.report.Results = nil }, "claim", `value is 15, the results give none`, "", ""},
		{"claim tolerance", func(f *forged) { f.report.Claims[0].Tolerance = 9 }, "claim", `claim is`, "", ""},
		{"claim left out", func(f *forged) { f.report.Claims = nil }, "claim", `the number of claims is 0`, "", ""},
	}
}

func planForgeries() []forgery {
	return []forgery{
		{"plan digest", func(f *forged) { f.expDigest = other }, "experiment", `plan.experiment_digest is`, "", ""},
		{"report digest", func(f *forged) {
			f.report.Experiment.Digest = other
		}, "report", `experiment.digest is`, "", ""},
		{"experiment name", func(f *forged) { f.exp.Name = "demo/other" }, "experiment", `plan.experiment is "demo/scenario", experiment.json gives "demo/other"`, "", ""},
		{"experiment argv", func(f *forged) { f.exp.Stage["fold"].Config["argv"] = []any{"make", "other"} }, "key", `definition is`, "fold", ""},
		{"experiment service", func(f *forged) { f.exp.Service["engine"].Config["seed"] = 3.0 }, "key", `service is`, "replay", "t001"},
		{"experiment params", func(f *forged) {
			f.exp.Matrix["rate"][0] = 4.0
			f.run.Plan.Trials[0].Point["rate"] = 4.0
		}, "key", `params.rate is 1, the trial gives 4`, "replay", "t001"},
		{"experiment claim", func(f *forged) { f.exp.Claim[0].Expect = 3 }, "claim", `claim is`, "", ""},
		{"experiment kind", func(f *forged) { d := f.exp.Stage["fold"]; d.Kind = "report"; f.exp.Stage["fold"] = d }, "plan", `kind is "command", experiment.json gives "report"`, "fold", ""},
		{"experiment without a stage", func(f *forged) { delete(f.exp.Stage, "after") }, "plan", `which experiment.json does not have`, "after", "t001"},
		{"experiment with one more stage", func(f *forged) { f.exp.Stage["more"] = f.exp.Stage["gen"] }, "plan", `does not have "more"`, "", ""},
		{"experiment needs", func(f *forged) {
			d := f.exp.Stage["fold"]
			d.Needs = append(d.Needs, "broken")
			f.exp.Stage["fold"] = d
		}, "plan", `it needs no node of stage broken, which experiment.json says it needs`, "fold", ""},
		{"repetitions", func(f *forged) { f.exp.Trials.Repeat = 2 }, "plan", `the number of trials is 2, the matrix gives 4`, "", ""},
		{"point", func(f *forged) { f.run.Plan.Trials[1].Point = map[string]any{"rate": 8.0} }, "plan", `rate of trial t002 is 8, which is not in the matrix`, "", ""},
		{"node scope", func(f *forged) { node(f, "fold").Scope = schemas.ScopeTrial }, "plan", `scope is "trial", experiment.json gives "run"`, "fold", ""},
		{"node not measured", func(f *forged) { node(f, "replay@t001").Measured = false }, "plan", `measured is false`, "replay", "t001"},
		{"node need gone", func(f *forged) { node(f, "after@t001").Needs = nil }, "plan", `it needs no node of stage broken`, "after", "t001"},
		{"node of another trial", func(f *forged) { node(f, "after@t001").Trials = []string{"t002"} }, "plan", `which is not among the trials it stands for`, "after", "t001"},
		{"node id", func(f *forged) {
			node(f, "fold").ID, recordOf(f, "fold").Node = "fold2", "fold2"
			f.files["fold2"], f.preimages["fold2"] = f.files["fold"], f.preimages["fold"]
		}, "plan", `id is "fold2", stage and trial give`, "fold", ""},
		{"node key", func(f *forged) { node(f, "fold").Key = node(f, "gen@t001").Key }, "record", `definition_key is`, "fold", ""},
		{"node and record key", func(f *forged) {
			k := node(f, "gen@t001").Key
			node(f, "fold").Key, recordOf(f, "fold").Record.DefinitionKey = k, k
		}, "key", `definition_key in the plan is`, "fold", ""},
		{"unit", func(f *forged) { f.run.Plan.Services[0].Engine, f.run.Services[0].Engine = "openai", "openai" }, "plan", `engine of service lifetime engine-1 is "openai", experiment.json gives "emulated"`, "", ""},
		{"unit of a node", func(f *forged) {
			node(f, "replay@t001").Unit, recordOf(f, "replay@t001").Record.Unit = "engine-2", "engine-2"
		}, "plan", `which does not list it`, "replay", "t001"},
	}
}

func recordForgeries() []forgery {
	drop := func(id string) func(*forged) {
		return func(f *forged) {
			f.run.Records = slices.DeleteFunc(f.run.Records, func(r schemas.RunRecord) bool { return r.Node == id })
			f.report.Stages = slices.DeleteFunc(f.report.Stages, func(r schemas.ReportStage) bool { return r.Node == id })
		}
	}
	return []forgery{
		{"record left out", drop("broken@t001"), "record", `there is no record of it`, "broken", "t001"},
		{"record without a node", func(f *forged) {
			f.run.Plan.Nodes = slices.DeleteFunc(f.run.Plan.Nodes, func(n schemas.Node) bool { return n.ID == "fold" })
		}, "record", `it has a record of node "fold", which its plan does not have`, "", ""},
		{"record twice", func(f *forged) {
			r := *recordOf(f, "after@t001")
			f.run.Records = append(f.run.Records, r)
		}, "record", `two records of node "after@t001"`, "", ""},
		{"record of another run", func(f *forged) { recordOf(f, "fold").Record.Run = "r7" }, "record", `run is "r7", the config gives "r1"`, "fold", ""},
		{"record of another experiment", func(f *forged) { recordOf(f, "fold").Record.Experiment = "demo/x" }, "record", `experiment is "demo/x"`, "fold", ""},
		{"record stage", func(f *forged) { recordOf(f, "fold").Record.Stage = "gen" }, "record", `stage is "gen", the plan gives "fold"`, "fold", ""},
		{"record trial", func(f *forged) { recordOf(f, "replay@t001").Record.Trial = "t002" }, "record", `trial is "t002", the plan gives "t001"`, "replay", "t001"},
		{"record kind", func(f *forged) { recordOf(f, "fold").Record.Kind, row(f, "fold").Kind = "report", "report" }, "record", `kind is "report", the plan gives "command"`, "fold", ""},
		{"record unit", func(f *forged) { recordOf(f, "replay@t001").Record.Unit = "" }, "record", `unit is "", the plan gives "engine-1"`, "replay", "t001"},
		{"record trials", func(f *forged) { recordOf(f, "gen@t001").Trials = []string{"t001"} }, "record", `trials is ["t001"], the plan gives ["t001","t002"]`, "gen", "t001"},
		{"record definition key", func(f *forged) { recordOf(f, "fold").Record.DefinitionKey = node(f, "gen@t001").Key }, "record", `definition_key is`, "fold", ""},
		{"reused definition key", func(f *forged) { recordOf(f, "gen@t001").Record.DefinitionKey = node(f, "fold").Key }, "record", `definition_key is`, "gen", "t001"},
		{"reused from another run", func(f *forged) { recordOf(f, "gen@t001").ReusedFrom, row(f, "gen@t001").ReusedFrom = "r5", "r5" }, "record", `reused_from is "r5", the record gives "r0"`, "gen", "t001"},
		{"measured record reused", func(f *forged) {
			r := recordOf(f, "replay@t001")
			r.ReusedFrom, r.Record.Run, row(f, "replay@t001").ReusedFrom = "r0", "r0", "r0"
		}, "record", `pure, of a reused record's node is false`, "replay", "t001"},
		{"executed, shown as this run's", func(f *forged) { recordOf(f, "gen@t001").ReusedFrom, row(f, "gen@t001").ReusedFrom = "", "" }, "record", `run is "r0", the config gives "r1"`, "gen", "t001"},
		{"service account gone", func(f *forged) { f.run.Services = f.run.Services[1:] }, "service", `service lifetime "engine-1", of which there is no account`, "replay", "t001"},
		{"service of no unit", func(f *forged) { f.run.Services[0].Unit = "engine-009" }, "service", `"engine-009", which its plan does not have`, "", ""},
		{"service engine", func(f *forged) { f.run.Services[0].Engine = "openai" }, "service", `engine of engine-1 is "openai", the plan gives "emulated"`, "", ""},
		{"key kind", func(f *forged) { f.preimages["fold"].Kind = "report" }, "key", `kind is "report", the record gives "command"`, "fold", ""},
		{"key kind version", func(f *forged) { f.preimages["fold"].KindVersion = 2 }, "key", `kind_version is 2, the record gives 1`, "fold", ""},
		{"record kind version", func(f *forged) { recordOf(f, "fold").Record.KindVersion = 2 }, "key", `kind_version is 1, the record gives 2`, "fold", ""},
		{"key scope", func(f *forged) { f.preimages["fold"].Scope = "trial" }, "key", `scope is "trial", the plan gives "run"`, "fold", ""},
		{"key seed", func(f *forged) { s := uint64(6); f.preimages["replay@t001"].Seed = &s }, "key", `seed is 6, the record gives 5`, "replay", "t001"},
		{"record seed", func(f *forged) { s := uint64(6); recordOf(f, "replay@t001").Record.Seed = &s }, "key", `seed is 5, the record gives 6`, "replay", "t001"},
		{"key definition", func(f *forged) { f.preimages["fold"].Definition["argv"] = []any{"true"} }, "key", `definition is {"argv":["true"]}, experiment.json gives {"argv":["make","fold"]}`, "fold", ""},
		{"key service", func(f *forged) { f.preimages["replay@t002"].Service["engine"] = "openai" }, "key", `service is`, "replay", "t002"},
		{"key parameter", func(f *forged) { f.preimages["replay@t002"].Params["rate"] = 1.0 }, "key", `params.rate is 1, the trial gives 2`, "replay", "t002"},
		{"key path parameter", func(f *forged) { f.preimages["replay@t002"].Params["load"] = string(other) }, "key", `params.load is`, "replay", "t002"},
		{"key parameter more", func(f *forged) { f.preimages["fold"].Params["rate"] = 1.0 }, "key", `the number of parameters is 1, experiment.json gives 0`, "fold", ""},
		{"key upstream", func(f *forged) { f.preimages["replay@t001"].Upstream["gen/out"] = string(other) }, "key", `upstream gen/out is`, "replay", "t001"},
		{"key and input upstream", func(f *forged) {
			f.preimages["replay@t001"].Upstream["gen/out"] = string(other)
			for i, in := range recordOf(f, "replay@t001").Record.Inputs {
				if in.Name == "gen/out" {
					recordOf(f, "replay@t001").Record.Inputs[i].Digest = other
				}
			}
		}, "key", `which no node it needs has as that output`, "replay", "t001"},
		{"key upstream left out", func(f *forged) {
			delete(f.preimages["fold"].Upstream, "replay/result@rate=2,repetition=0")
		}, "key", `in the record of replay@t002`, "fold", ""},
		{"key upstream more", func(f *forged) { f.preimages["fold"].Upstream["broken/out"] = string(other) }, "key", `upstream broken/out is`, "fold", ""},
		{"key input", func(f *forged) { f.preimages["gen@t001"].Inputs["inputs/seed"] = string(other) }, "key", `inputs.inputs/seed is`, "gen", "t001"},
		{"key tool", func(f *forged) { f.preimages["gen@t001"].Tools["tool.0.make"] = string(other) }, "key", `tools.tool.0.make is`, "gen", "t001"},
		{"key source", func(f *forged) { f.preimages["gen@t001"].Sources["report.json"] = string(other) }, "key", `sources.source.report.json is`, "gen", "t001"},
		{"key input left out", func(f *forged) { delete(f.preimages["gen@t001"].Inputs, "inputs/seed") }, "key", `it has no inputs/seed`, "gen", "t001"},
		{"source run left out", func(f *forged) { f.run.Sources, f.report.Sources = nil, nil }, "key", `inputs of a source run, and the config names none`, "gen", "t001"},
		{"result file", func(f *forged) {
			id := "replay@t001"
			f.files[id]["outputs/result/result.json"] = strings.Replace(f.files[id]["outputs/result/result.json"], `"value":10`, `"value":11`, 1)
			f.outputs(recordOf(f, id))
			row(f, id).Outputs = recordOf(f, id).Record.Outputs
		}, "result", `/values/requests_per_s/value is 10, trials/t001/replay/outputs/result/result.json gives 11`, "replay", "t001"},
	}
}

// Whoever rewrites one document and hashes everything anew is told by the others.
func TestForgeries(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	for _, group := range [][]forgery{statusForgeries(), reportForgeries(), planForgeries(), recordForgeries()} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				f := scenario(t, s)
				c.edit(f)
				v, err := s.Verify(ctx, f.seal())
				wantVerdict(t, v, err, Invalid)
				for _, got := range v.Findings {
					if !strings.HasPrefix(got.ID, "archive.contradiction.") {
						t.Errorf("not hashed anew: %+v", got)
					}
				}
				if !slices.ContainsFunc(v.Findings, func(got schemas.Finding) bool {
					return got.ID == "archive.contradiction."+c.topic && got.Stage == c.stage && got.Trial == c.trial && strings.Contains(got.Message, c.says) && got.Run != ""
				}) {
					t.Errorf("no finding of %s, stage %q, trial %q says %q", c.topic, c.stage, c.trial, c.says)
					for _, got := range v.Findings {
						t.Logf("%s %s@%s: %s", got.ID, got.Stage, got.Trial, got.Message)
					}
				}
			})
		}
	}
}

// An interruption after the last stage shows in the status alone.
func TestAbortedAfterTheLastStage(t *testing.T) {
	s := newStore(t)
	f := scenario(t, s)
	f.run.Status, f.report.Status = schemas.RunAborted, schemas.RunAborted
	v, err := s.Verify(context.Background(), f.seal())
	wantVerdict(t, v, err, Valid)
}

// A reused record may have been planned under another definition key when a path
// parameter was spelled another way, and under another stage.
func TestReuseUnderAnotherName(t *testing.T) {
	s := newStore(t)
	f := scenario(t, s)
	r := recordOf(f, "gen@t001")
	r.Record.Stage, r.Record.Experiment, row(f, "gen@t001").Stage = "make", "demo/elsewhere", "make"
	v, err := s.Verify(context.Background(), f.seal())
	wantVerdict(t, v, err, Valid)
}

// An extracted run is held against itself too.
func TestForgeryExtracted(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	f := scenario(t, s)
	x := 99.0
	f.report.Results[0].Result.Values["requests_per_s"] = schemas.Value{Unit: "1/s", Value: &x}
	run, err := s.Run(ctx, f.seal())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "x")
	if err := run.Extract(ctx, dir); err != nil {
		t.Fatal(err)
	}
	ref, err := s.Resolve(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ref.Verify(ctx)
	wantVerdict(t, v, err, Invalid)
	if !slices.ContainsFunc(v.Findings, func(f schemas.Finding) bool { return f.ID == "archive.contradiction.result" }) {
		t.Errorf("findings %+v", v.Findings)
	}
}
