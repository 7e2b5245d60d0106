package measure

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

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

func makePlan(ctx context.Context, task *pipeline.Task, set schemas.Settings) (plan, error) {
	mode, err := schemas.MeasureMode(set)
	if err != nil {
		return plan{}, err
	}
	models, err := serviceModels(task, set)
	if err != nil {
		return plan{}, err
	}
	seeds := seedsOf(task.Seed, set.Table("seeds"))
	if !set.Table("seeds").Has("content") {
		seeds.Content = ownContent(task)
	}
	p := plan{models: models, header: schemas.Schedule{
		FirstUse: task.Service.ReadyMs != nil && task.Service.Uses == 0,
		Schema:   schemas.ScheduleV1, Speed: set.Float("speed"), ContentSeed: seeds.Content, Mode: mode, Seeds: &seeds,
	}}
	switch {
	case set.Has("workload"):
		err = p.fromWorkload(set)
	case mode == schemas.ModeSwitch:
		err = p.switches(set, len(warmups(task)) > 0)
	case set.Has("prompts"):
		err = p.fromPrompts(set)
	default:
		err = p.generate(set)
	}
	if err != nil {
		return plan{}, err
	}
	if err := p.sizePrompts(ctx, task, set); err != nil {
		return plan{}, err
	}
	return p, p.seal(ctx, task, set)
}

// seedsOf are the four seeds: the stage's own unless one is held. Every use draws
// from a stream of its own, so one number for all makes nothing alike.
func seedsOf(own uint64, held schemas.Settings) schemas.Seeds {
	pick := func(key string) uint64 {
		if held.Has(key) {
			return uint64(held.Int(key))
		}
		return own
	}
	return schemas.Seeds{Arrival: pick("arrival"), Assignment: pick("assignment"), Content: pick("content"), Order: pick("order")}
}

// ownContent is the default seed of lengths and prompts. Stages that measure one
// service send different prompts: equal ones would measure its prefix cache. Stages
// of different services send equal ones, so that those can be compared.
func ownContent(task *pipeline.Task) uint64 {
	service := task.Experiment.Stage[task.Node.Stage].Service
	for name, def := range task.Experiment.Stage {
		if def.Kind == task.Node.Kind && def.Service == service && name < task.Node.Stage {
			return workload.SubSeed(task.Seed, "content/"+task.Node.Stage) >> 11 // 53 bits survive every JSON reader
		}
	}
	return task.Seed
}

// seal completes the header and hashes what is planned.
func (p *plan) seal(ctx context.Context, task *pipeline.Task, set schemas.Settings) error {
	h := &p.header
	h.Requests, h.MaxInFlight, h.Streams = len(p.requests), set.Int("max_in_flight"), p.streams(set)
	switch h.Mode {
	case schemas.ModeClosed:
		h.Concurrency = set.Int("concurrency")
	case schemas.ModeSequential, schemas.ModeSwitch:
		h.Concurrency = 1
	}
	if h.Mode != schemas.ModeOpen {
		h.Arrival = h.Mode
		if d := set.Duration("duration"); d > 0 {
			h.DurationMs, h.AtEnd = float64(d)/1e6, set.Text("at_end")
			if h.AtEnd == "" {
				h.AtEnd = atEndDrain
			}
		}
		if h.Speed != 1 {
			return fmt.Errorf("speed %s has no meaning in mode %s, where nothing arrives by itself: leave it out", schemas.Decimal(h.Speed), h.Mode)
		}
		for i := range p.requests {
			p.requests[i].AtNs = 0
		}
	}
	hash := sha256.New()
	told := newPace(task, "preparing prompts", len(p.requests))
	for i := range p.requests {
		if err := told.at(ctx, i); err != nil {
			return err
		}
		r := &p.requests[i]
		r.Index = i
		r.PromptDigest = loadgen.PromptDigest(set.Text("api"), h.ContentSeed, *r)
		if err := writeLine(hash, r.ScheduledRequest); err != nil {
			return fmt.Errorf("schedule: request %s: %w", r.ID, err)
		}
	}
	h.RequestsDigest = schemas.DigestFromSum(hash.Sum(nil))
	return nil
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

// window gives the two times of the key; both are 0 without it.
func window(set schemas.Settings) (from, to time.Duration, err error) {
	list := set.List("window")
	if len(list) == 0 {
		return 0, 0, nil
	}
	if len(list) != 2 {
		return 0, 0, fmt.Errorf("window: want two times, from and to, have %d", len(list))
	}
	a, err := schemas.ParseDuration(list[0])
	if err != nil {
		return 0, 0, fmt.Errorf("window: from: %w", err)
	}
	b, err := schemas.ParseDuration(list[1])
	if err != nil {
		return 0, 0, fmt.Errorf("window: to: %w", err)
	}
	return a.Std(), b.Std(), nil
}

// cut applies window and speed, in this order: the window is in the workload's
// own time.
func cut(w workload.Workload, set schemas.Settings) (workload.Workload, error) {
	if len(set.List("window")) > 0 {
		from, to, err := window(set)
		if err != nil {
			return w, err
		}
		if w, err = w.Window(from, to); err != nil {
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
