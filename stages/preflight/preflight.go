package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"assay/internal/durable"
	"assay/pipeline"
	"assay/preflight"
	"assay/preflight/checkpoint"
	"assay/preflight/disk"
	"assay/preflight/paths"
	"assay/preflight/workload"
	"assay/schemas"
)

// Output is the name of the output, and FileName of the file in it.
const (
	Output   = "findings"
	FileName = "findings.json"
)

// Kind returns the kind.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "preflight", Version: 1, Early: true,
		Outputs: func(map[string]any) []string { return []string{Output} },
		Run:     run,
	}
}

func run(ctx context.Context, task *pipeline.Task) error {
	c := &collector{task: task, seen: map[string]bool{}, facts: map[string]checkpoint.Facts{}}
	c.ownSettings()
	for _, check := range []func(context.Context, *collector){checkParams, checkModels, checkServed, checkServices, checkHosts, checkEngines, checkStages} {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		check(ctx, c)
	}
	c.costs()
	if err := write(task, c.findings); err != nil {
		return err
	}
	fmt.Fprintf(task.Log, "%d checks, %d refuse\n", len(c.findings), len(preflight.Refuses(c.findings)))
	if len(preflight.Refuses(c.findings)) > 0 {
		return &pipeline.RefusedError{Findings: c.findings}
	}
	return nil
}

// collector gathers findings; each subject and value is looked at once, however
// many trials name it.
type collector struct {
	task     *pipeline.Task
	findings []schemas.Finding
	seen     map[string]bool
	// facts are of the checkpoints that were looked at, by path.
	facts map[string]checkpoint.Facts
}

func (c *collector) add(list ...schemas.Finding) {
	for _, f := range list {
		// A line of a file is wrong once, however many stages read it.
		if f.Line > 0 && !c.first(f.ID+" "+f.Message, fmt.Sprint(f.File, f.Line)) {
			continue
		}
		c.task.Report(f)
		c.findings = append(c.findings, f)
	}
}

// first says whether a check of this subject and value is new.
func (c *collector) first(subject, value string) bool {
	key := subject + "\x00" + value
	if c.seen[key] {
		return false
	}
	c.seen[key] = true
	return true
}

// ownSettings checks what the stage's own keys list.
func (c *collector) ownSettings() {
	set := schemas.Settings(c.task.Config)
	listed := set.Texts("paths")
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		c.at("path "+name, listed[name])
	}
	if w := set.Text("workload"); w != "" {
		// The unit is the measure stage's to say: every time that fits seconds fits
		// milliseconds.
		c.workload("workload", w, workload.Options{Unit: "ms"})
	}
	for _, p := range set.List("ports") {
		c.port("port "+p, p)
	}
	if need := set.Bytes("disk"); need > 0 {
		c.add(disk.Check("store", c.task.StoreDir, need, c.free()))
	}
}

// workload checks a file as a path first: one that is not there has no form.
func (c *collector) workload(subject, path string, opts workload.Options) {
	f := paths.Check(subject, path)
	c.add(f)
	if f.Severity == schemas.SeverityPass {
		c.add(workload.Check(subject, path, opts)...)
	}
}

// resolve gives text as a stage of the trial will see it. When that is not known
// now, a finding says why; an output that does not exist yet is deferred.
func (c *collector) resolve(subject, text string, trial schemas.Trial) (string, bool) {
	v, err := c.task.Resolve(text, trial)
	if err == nil {
		return v, true
	}
	if !c.first(subject, "unresolved "+text) {
		return "", false
	}
	f := schemas.Finding{ID: "reference.unresolved", Severity: schemas.SeverityError, Subject: subject, Message: err.Error(), Remedy: "define what it refers to"}
	if errors.Is(err, pipeline.ErrNotYet) {
		f.ID, f.Severity, f.Remedy = "reference.deferred", schemas.SeverityDeferred, ""
		f.Message = text + " does not exist before the run"
	}
	c.add(f)
	return "", false
}

func write(task *pipeline.Task, findings []schemas.Finding) error {
	b, err := schemas.Encode(schemas.Findings{Schema: schemas.FindingsV1, Findings: findings})
	if err != nil {
		return fmt.Errorf("findings: %w", err)
	}
	if err := schemas.Validate("findings", b); err != nil {
		return fmt.Errorf("findings: %w", err)
	}
	path, err := task.OutputFile(Output, FileName)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("findings: %w", err)
	}
	return nil
}
