package measure

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"assay/internal/durable"
	"assay/internal/loadgen"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// plan is everything that is decided before the first request.
type plan struct {
	header   schemas.Schedule
	requests []loadgen.Request
	models   []string           // the service's, in the order of the workload's
	mapping  []workload.Mapping // workload model -> service model
}

func makePlan(task *pipeline.Task, set schemas.Settings) (plan, error) {
	models, err := serviceModels(task, set)
	if err != nil {
		return plan{}, err
	}
	w, err := workload.ReadFile(set.Text("workload"), workload.Options{Name: baseName(set.Text("workload")), Unit: set.Text("timestamp_unit"), Models: models, Seed: task.Seed})
	if err != nil {
		return plan{}, err
	}
	// Models are assigned before the window is cut: two windows of one workload
	// send a model's requests to the same model.
	w, mapping, err := w.AssignModels(models, false)
	if err != nil {
		return plan{}, err
	}
	if w, err = cut(w, set); err != nil {
		return plan{}, err
	}
	p := plan{models: models, mapping: mapping, header: schemas.Schedule{
		Schema: schemas.ScheduleV1, Arrival: "trace", Speed: set.Float("speed"), ContentSeed: task.Seed,
		WorkloadDigest: w.Digest, WorkloadForm: string(w.Form), Requests: len(w.Requests),
	}}
	api := set.Text("api")
	for i, r := range w.Requests {
		p.requests = append(p.requests, loadgen.Request{ScheduledRequest: schemas.ScheduledRequest{
			Index: i, ID: r.ID, AtNs: r.AtNs, Model: r.Model, InputTokens: r.InputTokens, OutputTokens: r.OutputTokens,
			PromptDigest: loadgen.PromptDigest(api, task.Seed, i, r.InputTokens),
		}})
	}
	return p, nil
}

// baseName keeps the folder of the experiment out of errors, which are archived.
func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// serviceModels are the models asked for, or all that the service lists.
func serviceModels(task *pipeline.Task, set schemas.Settings) ([]string, error) {
	listed := slices.Clone(task.Service.Models)
	slices.Sort(listed)
	models := set.List("models")
	if len(models) == 0 {
		models = listed
	}
	if len(models) == 0 {
		return nil, fmt.Errorf("service %s lists no models: name them with models = [...]", task.Service.Name)
	}
	for _, m := range models {
		if len(listed) > 0 && !slices.Contains(listed, m) {
			return nil, fmt.Errorf("service %s does not list model %q; it lists %s", task.Service.Name, m, strings.Join(listed, ", "))
		}
	}
	return models, nil
}

// cut applies window and speed, in this order: the window is in the workload's
// own time.
func cut(w workload.Workload, set schemas.Settings) (workload.Workload, error) {
	if list := set.List("window"); len(list) > 0 {
		if len(list) != 2 {
			return w, fmt.Errorf("window: want two times, from and to, have %d", len(list))
		}
		from, err := schemas.ParseDuration(list[0])
		if err != nil {
			return w, fmt.Errorf("window: from: %w", err)
		}
		to, err := schemas.ParseDuration(list[1])
		if err != nil {
			return w, fmt.Errorf("window: to: %w", err)
		}
		if w, err = w.Window(from.Std(), to.Std()); err != nil {
			return w, err
		}
	}
	return w.Speed(set.Float("speed"))
}

// writeSchedule makes the schedule durable: one line of header, then one line
// for each request.
func writeSchedule(task *pipeline.Task, p plan) error {
	path, err := task.OutputFile(OutputSchedule, ScheduleFile)
	if err != nil {
		return err
	}
	f, err := durable.Create(path)
	if err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	defer f.Abort()
	buf := bufio.NewWriterSize(f, 256<<10)
	if err := writeLine(buf, p.header); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	for _, r := range p.requests {
		if err := writeLine(buf, r.ScheduledRequest); err != nil {
			return fmt.Errorf("schedule: request %s: %w", r.ID, err)
		}
	}
	if err := buf.Flush(); err != nil {
		return &pipeline.InfraError{Op: "write the schedule", Err: err}
	}
	if err := f.Commit(); err != nil {
		return &pipeline.InfraError{Op: "write the schedule", Err: err}
	}
	return nil
}

func writeLine(w io.Writer, v any) error {
	b, err := schemas.Encode(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
