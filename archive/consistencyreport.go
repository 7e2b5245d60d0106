package archive

import (
	"fmt"
	"strings"

	"assay/internal/report"
	"assay/schemas"
)

// report compares the head of the report with config, plan and experiment.
func (c *consistency) report() {
	w, r, cfg := where{topic: "report", doc: nameReport}, c.v.report, "the config"
	c.same(w, "run_id", r.RunID, cfg, c.run.ID)
	c.same(w, "status", r.Status, cfg, c.run.Status)
	c.same(w, "passed", r.Passed, "the status", r.Status == schemas.RunPassed)
	c.same(w, "started_at", r.StartedAt, cfg, c.run.StartedAt)
	c.same(w, "ended_at", r.EndedAt, cfg, c.run.EndedAt)
	c.same(w, "source_runs", r.Sources, cfg, c.run.Sources)
	c.same(w, "environment.tool", r.Environment.Tool, cfg, c.run.Tool)
	c.same(w, "trials", r.Trials, "the plan", c.run.Plan.Trials)
	c.same(w, "experiment.digest", r.Experiment.Digest, "the plan", c.run.Plan.Digest)
	c.same(w, "experiment.name", r.Experiment.Name, nameExperiment, c.exp.Name)
	c.same(w, "experiment.title", r.Experiment.Title, nameExperiment, c.exp.Title)
	c.same(w, "experiment.params", r.Experiment.Params, nameExperiment, c.exp.Params)
}

// stageTable compares the report's stage table with the records, row by row.
func (c *consistency) stageTable() {
	rows := c.v.report.Stages
	c.same(where{topic: "report", doc: nameReport}, "the number of stages", len(rows), "the config", len(c.run.Records))
	for i, r := range c.run.Records {
		if i >= len(rows) {
			return
		}
		n, row, rec := c.nodes[r.Node], rows[i], r.Record
		w, at := where{"report", nameReport, &n}, fmt.Sprintf("stages/%d/", i)
		if !c.same(w, at+"node", row.Node, "the config", r.Node) {
			continue
		}
		if row.Stage != n.Stage { // a reused record may be one of another stage
			c.same(w, at+"stage", row.Stage, "the record", rec.Stage)
		}
		c.same(w, at+"kind", row.Kind, "the record", rec.Kind)
		c.same(w, at+"trial", row.Trial, "the plan", n.Trial)
		c.same(w, at+"status", row.Status, "the record", rec.Status)
		c.same(w, at+"key", row.Key, "the record", rec.Key)
		c.same(w, at+"outputs", row.Outputs, "the record", rec.Outputs)
		c.same(w, at+"reused_from", row.ReusedFrom, "the config", r.ReusedFrom)
		c.same(w, at+"started_at", row.StartedAt, "the record", rec.StartedAt)
		c.same(w, at+"duration_ms", row.DurationMs, "the record", rec.DurationMs)
		c.same(w, at+"error", row.Error, "the record", rec.Error)
		c.same(w, at+"root_cause", row.RootCause, "the record", rec.RootCause)
	}
}

// findings asks that the report keeps every finding of the records but passes.
func (c *consistency) findings() {
	told := map[string]bool{}
	for _, f := range c.v.report.Findings {
		told[findingKey(f)] = true
	}
	for _, n := range c.run.Plan.Nodes {
		for _, f := range c.records[n.ID].Record.Findings {
			if f.Severity != schemas.SeverityPass && !told[findingKey(f)] {
				c.fail(where{"report", nameReport, &n}, "findings does not have %s %s, which the record has: %s", f.Severity, f.ID, f.Message)
			}
		}
	}
}

func findingKey(f schemas.Finding) string {
	b, err := schemas.Encode(f)
	if err != nil {
		return f.ID
	}
	return string(b)
}

// claims compares the report's claims with the experiment's, and their values
// with the results: the mean over all trials of the stage.
func (c *consistency) claims() {
	w, got := where{topic: "claim", doc: nameReport}, c.v.report.Claims
	c.same(w, "the number of claims", len(got), nameExperiment, len(c.exp.Claim))
	for i, claim := range c.exp.Claim {
		if i >= len(got) {
			return
		}
		at := fmt.Sprintf("claims/%d/", i)
		if !c.same(w, at+"claim", got[i].Claim, nameExperiment, claim) {
			continue
		}
		mean, lacking := c.claimed(claim)
		switch value := got[i].Value; {
		case value == nil && mean == nil:
			c.same(w, at+"holds", got[i].Holds, "a claim without a value", false)
		case value == nil:
			c.fail(w, "%svalue is absent (%q), the results give %s", at, got[i].Reason, schemas.Decimal(*mean))
		case mean == nil:
			c.fail(w, "%svalue is %s, the results give none: %s", at, schemas.Decimal(*value), lacking)
		default:
			c.same(w, at+"value", *value, "the results", *mean)
			c.same(w, at+"holds", got[i].Holds, "expect and tolerance", *mean >= claim.Expect-claim.Tolerance && *mean <= claim.Expect+claim.Tolerance)
		}
	}
}

// claimed is the mean of a claim's metric over every node of its stage, or why
// there is none: one trial without a value leaves the claim without one.
func (c *consistency) claimed(claim schemas.Claim) (mean *float64, lacking string) {
	stage, metric, _ := strings.Cut(claim.Metric, ".")
	results := map[string]schemas.Result{}
	for _, sr := range c.v.report.Results {
		results[sr.Node] = sr.Result
	}
	sum, values := 0.0, 0
	for _, n := range c.run.Plan.Nodes {
		if n.Stage != stage {
			continue
		}
		res, ok := results[n.ID]
		if !ok {
			return nil, n.ID + " has no result"
		}
		v, _, err := report.Lookup(res, metric)
		if err != nil {
			return nil, fmt.Sprintf("%s: %v", n.ID, err)
		}
		sum += v
		values++
	}
	if values == 0 {
		return nil, fmt.Sprintf("the plan has no stage %q", stage)
	}
	m := sum / float64(values)
	return &m, ""
}
