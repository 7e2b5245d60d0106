package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"assay/internal/report"
	"assay/schemas"
)

// seal publishes the run: its records in plan order, its services, its report.
func (r *runner) seal(aborted bool) (Outcome, error) {
	ctx := context.Background()
	run := schemas.Run{
		Schema: schemas.RunV1, ID: r.RunID, Experiment: r.Experiment.Name, Status: r.status(aborted), StartedAt: r.started, EndedAt: r.Now(), Plan: r.Plan,
		Services: append([]schemas.ServiceRecord{}, r.services...), Sources: append([]schemas.SourceRun{}, r.Sources...), Records: []schemas.RunRecord{},
		Preimages: []schemas.Digest{}, Resumed: r.kept.resumed, Tool: r.Environment.Tool,
	}
	out := Outcome{RunID: r.RunID, Status: run.Status, Aborted: aborted}
	for _, n := range r.Plan.Nodes {
		rec, ok := r.records[n.ID]
		if !ok {
			continue
		}
		run.Records = append(run.Records, rec)
		switch {
		case rec.ReusedFrom != "":
			out.Reused++
		case rec.Record.Tree != "": // what never began has no log
			out.Executed++
		}
	}
	for d := range r.preimage {
		run.Preimages = append(run.Preimages, d)
	}
	sort.Slice(run.Preimages, func(i, j int) bool { return run.Preimages[i] < run.Preimages[j] })
	archiveRoot, err := r.archiveRoot(ctx)
	if err != nil {
		return out, &InfraError{"read the validated run for the report", err}
	}
	results, conditions, err := r.results(ctx)
	if err != nil {
		return out, &InfraError{"read results for the report", err}
	}
	canon, err := schemas.Canonical(r.Experiment)
	if err != nil {
		return out, fmt.Errorf("seal: %w", err)
	}
	req := schemas.SealRequest{Run: run, Experiment: canon, Source: r.Source, Tag: r.Tag}
	req.Report = func(files schemas.FileSummary) (schemas.Report, error) {
		out.Report = r.makeReport(run, results, conditions, files)
		out.Report.ArchiveRoot = archiveRoot
		out.Report.Emulated = out.Report.Emulated || archiveRoot != "" && schemas.ServedEmulated(run.Services)
		return out.Report, nil
	}
	r.event(Event{Type: "seal"})
	if out.Digest, err = r.Store.Seal(ctx, req); err != nil {
		return out, &InfraError{"seal the run", err}
	}
	out.Findings = out.Report.Findings
	return out, r.journal.write(journalEvent{Event: "seal", Time: r.Now(), Digest: out.Digest})
}

func (r *runner) status(aborted bool) schemas.RunStatus {
	status := schemas.RunPassed
	for _, rec := range r.records {
		switch rec.Record.Status {
		case schemas.StageTainted:
			if !aborted {
				return schemas.RunTainted
			}
		case schemas.StagePassed:
		default:
			status = schemas.RunFailed
		}
	}
	for _, s := range r.services {
		if s.Status == "died" || s.Status == "failed_to_start" {
			status = schemas.RunFailed
		}
	}
	if aborted {
		return schemas.RunAborted
	}
	return status
}

// results reads what measure and simulate stages published as "result": result.json, and
// conditions.json beside it.
func (r *runner) results(ctx context.Context) ([]schemas.StageResult, []schemas.Condition, error) {
	results, conditions := []schemas.StageResult{}, []schemas.Condition{}
	fresh := newCopies(r.Store, filepath.Join(r.workDir, "seal")) // from the blobs: no stage has seen these
	for _, n := range r.Plan.Nodes {
		rec := r.records[n.ID].Record
		for _, o := range rec.Outputs {
			if o.Name != "result" || !(r.kinds[n.Kind].Measured || schemas.GivesResult(n.Kind)) {
				continue
			}
			dir := fresh.want(rec.Tree, "outputs/result")
			if err := fresh.fill(ctx); err != nil {
				return nil, nil, err
			}
			sr := schemas.StageResult{Node: n.ID, Stage: n.Stage, Trial: n.Trial, Point: r.trials[n.Trial].Point}
			if err := readJSON(filepath.Join(dir, "result.json"), &sr.Result); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", n.ID, err)
			}
			var conds []schemas.Condition
			if err := readJSON(filepath.Join(dir, "conditions.json"), &conds); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", n.ID, err)
			}
			results = append(results, sr)
			conditions = addConditions(conditions, n.ID, conds)
		}
	}
	return results, conditions, nil
}

// archiveRoot is the folder, in this run, of the archives of the validated run that a
// stage published; "" for none. Another tool's report may say anything.
func (r *runner) archiveRoot(ctx context.Context) (string, error) {
	for _, n := range r.Plan.Nodes {
		rec := r.records[n.ID].Record
		for _, o := range rec.Outputs {
			if o.Name != schemas.ValidatedOutput || rec.Status != schemas.StagePassed || !schemas.GivesValidated(n.Kind) {
				continue
			}
			dir := filepath.Join(r.workDir, "seal", "validated")
			if err := r.Store.Materialize(ctx, rec.Tree, path.Join(o.Path, "report.json"), dir); err != nil {
				return "", err
			}
			var v struct {
				ArchiveRoot string `json:"archive_root"`
			}
			if err := readJSON(filepath.Join(dir, "report.json"), &v); err != nil || !filepath.IsLocal(v.ArchiveRoot) {
				return "", nil
			}
			return path.Join(nodePath(n), o.Path, v.ArchiveRoot), nil
		}
	}
	return "", nil
}

// addConditions keeps one copy of a condition that is the same for every node of
// its stage.
func addConditions(all []schemas.Condition, node string, conds []schemas.Condition) []schemas.Condition {
	stage, _, _ := strings.Cut(node, "@")
	for _, c := range conds {
		c.Subject = firstText(c.Subject, stage)
		b, _ := json.Marshal(c)
		seen := false
		for _, o := range all {
			ob, _ := json.Marshal(o)
			seen = seen || string(ob) == string(b)
		}
		if !seen {
			all = append(all, c)
		}
	}
	return all
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

func (r *runner) makeReport(run schemas.Run, results []schemas.StageResult, conditions []schemas.Condition, files schemas.FileSummary) schemas.Report {
	rep := schemas.Report{
		Schema:     schemas.ReportV1,
		Experiment: schemas.ReportExperiment{Name: r.Experiment.Name, Title: r.Experiment.Title, Digest: r.Plan.Digest, Params: r.Experiment.Params},
		RunID:      run.ID, Status: run.Status, Passed: run.Status == schemas.RunPassed, StartedAt: run.StartedAt, EndedAt: run.EndedAt,
		Stages: []schemas.ReportStage{}, Trials: run.Plan.Trials, Results: results, Findings: r.reportFindings(), Conditions: conditions,
		Environment: r.Environment, Sources: run.Sources, Files: files,
	}
	for _, s := range results {
		rep.Emulated = rep.Emulated || s.Result.Emulated
		rep.Simulated = rep.Simulated || s.Result.Simulated
	}
	for _, rec := range run.Records {
		rr := rec.Record
		rep.Stages = append(rep.Stages, schemas.ReportStage{Node: rec.Node, Stage: rr.Stage, Kind: rr.Kind, Trial: r.nodes[rec.Node].Trial, Status: rr.Status, Key: rr.Key,
			Outputs: append([]schemas.Output{}, rr.Outputs...), ReusedFrom: rec.ReusedFrom, StartedAt: rr.StartedAt, DurationMs: rr.DurationMs, Error: rr.Error, RootCause: rr.RootCause})
	}
	rep.Claims = Claims(r.Experiment.Claim, results, run.Plan)
	return rep
}

// reportFindings leaves passes out: the records keep them.
func (r *runner) reportFindings() []schemas.Finding {
	list := []schemas.Finding{}
	for _, f := range r.findings {
		if f.Severity != schemas.SeverityPass {
			list = append(list, f)
		}
	}
	return list
}

// Claims evaluates claims over the results of a run: the value of a claim is the
// mean over trials of what its metric came to in each. A trial without a result
// leaves the claim without a value: the mean of those that worked is another claim.
func Claims(claims []schemas.Claim, results []schemas.StageResult, plan schemas.Plan) []schemas.ClaimResult {
	list := []schemas.ClaimResult{}
	for _, c := range claims {
		cr := schemas.ClaimResult{Claim: c}
		stage, metric, _ := strings.Cut(c.Metric, ".")
		sum, n := 0.0, 0
		for _, node := range plan.Nodes {
			if node.Stage != stage {
				continue
			}
			v, err := claimed(results, node.ID, metric)
			if err != nil {
				cr.Reason = fmt.Sprintf("%s: %v", node.ID, err)
				break
			}
			sum += v
			n++
		}
		switch {
		case cr.Reason != "":
		case n == 0:
			cr.Reason = fmt.Sprintf("no result of a stage %q", stage)
		default:
			mean := sum / float64(n)
			cr.Value = &mean
			cr.Holds = mean >= c.Expect-c.Tolerance && mean <= c.Expect+c.Tolerance
		}
		list = append(list, cr)
	}
	return list
}

func claimed(results []schemas.StageResult, node, metric string) (float64, error) {
	for _, sr := range results {
		if sr.Node == node {
			v, _, err := report.Lookup(sr.Result, metric)
			return v, err
		}
	}
	return 0, errors.New("it gave no result")
}
