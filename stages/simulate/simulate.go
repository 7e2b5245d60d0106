package simulate

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"assay/internal/durable"
	"assay/internal/report"
	"assay/internal/serving"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// The outputs, and the files in them.
const (
	OutputRequests = "requests"
	OutputResult   = "result"

	RequestsFile   = "requests.csv"
	TokensFile     = "tokens.csv"
	FitsFile       = "fits.json"
	ResultFile     = "result.json"
	ConditionsFile = "conditions.json"
)

// Kind returns the kind.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "simulate", Version: 3,
		Pure:    func(map[string]any) bool { return true },
		Seed:    seed,
		Outputs: func(map[string]any) []string { return []string{OutputRequests, OutputResult} },
		Run:     run,
	}
}

// seed: only models that the workload does not name are drawn.
func seed(config map[string]any) pipeline.SeedUse {
	if _, draws := config["models"]; draws {
		return pipeline.SeedRepetition
	}
	return pipeline.SeedNone
}

func run(ctx context.Context, task *pipeline.Task) error {
	set := schemas.Settings(task.Config)
	in, err := readInput(set, task.Seed)
	if err != nil {
		return err
	}
	p, err := makePoint(set, in)
	if err != nil {
		return err
	}
	dir, err := task.OutputDir(OutputRequests)
	if err != nil {
		return err
	}
	res, sim, err := p.fold(ctx, task, dir)
	if err != nil {
		return err
	}
	if err := writeRows(filepath.Join(dir, RequestsFile), in, sim.Rows); err != nil {
		return err
	}
	if err := p.writeFits(dir); err != nil {
		return err
	}
	conds, err := p.conditions(ctx, set, sim)
	if err != nil {
		return err
	}
	for _, f := range res.Findings {
		task.Report(f)
	}
	fmt.Fprintf(task.Log, "%d requests simulated, %d finished, mean qos %.6f\n", sim.Stats.Requests, sim.Stats.Finished, sim.MeanQoS)
	return writeResult(task, res, conds)
}

func readInput(set schemas.Settings, seed uint64) (serving.Input, error) {
	path := set.Text("workload")
	opts := workload.Options{
		Name: filepath.Base(path), Seed: seed, Form: workload.Form(set.Text("workload_form")), Unit: set.Text("timestamp_unit"),
		MaxInput: set.Int("max_input"), MaxOutput: set.Int("max_output"), MaxTotal: set.Int("max_total"), Over: set.Text("over_length"),
	}
	for i := range set.Int("models") {
		opts.Models = append(opts.Models, fmt.Sprintf("model-%03d", i))
	}
	in, err := serving.ReadInput(path, opts)
	if err != nil {
		return in, err
	}
	from, to, err := window(set)
	if err != nil {
		return in, err
	}
	return in.Cut(from, to, set.Float("speed"))
}

// window is the part of the workload that is simulated; zeros for all of it.
func window(set schemas.Settings) (from, to time.Duration, err error) {
	w := set.List("window")
	if len(w) == 0 {
		return 0, 0, nil
	}
	if len(w) != 2 {
		return 0, 0, fmt.Errorf("window: want two times, from and to, got %d", len(w))
	}
	var at [2]time.Duration
	for i, text := range w {
		d, err := schemas.ParseDuration(text)
		if err != nil {
			return 0, 0, fmt.Errorf("window: %w", err)
		}
		at[i] = d.Std()
	}
	return at[0], at[1], nil
}

// point is one system and one workload.
type point struct {
	in     serving.Input
	cfg    serving.Config
	slo    schemas.SLO
	fits   map[string]serving.Fit
	source string
}

func makePoint(set schemas.Settings, in serving.Input) (point, error) {
	sys := system{policy: set.Text("policy"), device: set.Text("device"), workers: set.Int("workers"), prefill: set.Int("prefill_workers")}
	return sys.point(set, in, slo(set))
}

// system is what a sweep varies of a serving system.
type system struct {
	policy, device   string
	workers, prefill int
}

func (y system) point(set schemas.Settings, in serving.Input, slo schemas.SLO) (point, error) {
	p := point{in: in, slo: slo}
	bases, err := in.BaseModels()
	if err != nil {
		return p, err
	}
	c := serving.ConfigOf(set, y.policy, y.workers, y.prefill)
	c.TPOTTargetS = p.slo.TPOTMs / 1000
	if c.Device, err = serving.DeviceOf(set, y.device); err != nil {
		return p, err
	}
	if p.fits, p.source, err = serving.LatenciesOf(set, c.Device.Name, bases); err != nil {
		return p, err
	}
	if c.Models, err = in.Served(p.fits); err != nil {
		return p, err
	}
	p.cfg = c
	return p, c.Check()
}

// writeFits archives the coefficients that were used as a file of its own.
func (p point) writeFits(dir string) error {
	b, err := schemas.Encode(map[string]any{"device": p.cfg.Device.Name, "source": p.source, "fits": p.fits})
	if err != nil {
		return fmt.Errorf("fits: %w", err)
	}
	return put(filepath.Join(dir, FitsFile), append(b, '\n'))
}

func slo(set schemas.Settings) schemas.SLO {
	t := set.Table("slo")
	if t == nil {
		return schemas.SLO{TTFTMs: 10_000, TPOTMs: 100}
	}
	return schemas.SLO{TTFTMs: float64(t.Duration("ttft")) / 1e6, TPOTMs: float64(t.Duration("tpot")) / 1e6}
}

// fold simulates and folds what comes out, a record at a time. The token times of
// each request go to a file in dir on the way.
func (p point) fold(ctx context.Context, task *pipeline.Task, dir string) (schemas.Result, serving.Result, error) {
	var tokens *tokenWriter
	if schemas.Settings(task.Config).Bool("tokens") {
		var err error
		if tokens, err = newTokenWriter(filepath.Join(dir, TokensFile), tokensHeader); err != nil {
			return schemas.Result{}, serving.Result{}, err
		}
		defer tokens.file.Abort()
	}
	var sim serving.Result
	records := func(yield func(schemas.RequestRecord, error) bool) {
		stopped := false
		var err error
		sim, err = serving.Simulate(ctx, p.in, p.cfg, p.slo, func(o serving.Outcome) error {
			if err := tokens.write(p.in.IDs[o.Index], o); err != nil {
				return err
			}
			if stopped = !yield(record(p.in, o), nil); stopped {
				return errStopped
			}
			return nil
		})
		if err != nil && !stopped {
			yield(schemas.RequestRecord{}, err)
		}
	}
	res, err := report.Fold(records, report.FoldOptions{SLO: &p.slo, OpenLoop: true, Simulated: true, Speed: schemas.Settings(task.Config).Float("speed"), Expected: len(p.in.Requests), Subject: "stage " + task.Node.Stage}) // not the trial: equal points give equal bytes
	if err == nil && tokens != nil {
		err = tokens.close()
	}
	return res, sim, err
}

func writeRows(path string, in serving.Input, rows []serving.Row) error {
	f, err := durable.Create(path)
	if err != nil {
		return &pipeline.InfraError{Op: "write the requests", Err: err}
	}
	defer f.Abort()
	if err := serving.WriteRows(f, in, rows); err != nil {
		return &pipeline.InfraError{Op: "write the requests", Err: err}
	}
	if err := f.Commit(); err != nil {
		return &pipeline.InfraError{Op: "write the requests", Err: err}
	}
	return nil
}

func writeResult(task *pipeline.Task, res schemas.Result, conds []schemas.Condition) error {
	b, err := schemas.Encode(res)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if err := schemas.Validate("result", b); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	c, err := schemas.Encode(conds)
	if err != nil {
		return fmt.Errorf("conditions: %w", err)
	}
	dir, err := task.OutputDir(OutputResult)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{ConditionsFile: c, ResultFile: b} {
		if err := durable.WriteFile(filepath.Join(dir, name), append(data, '\n'), 0o644); err != nil {
			return &pipeline.InfraError{Op: "write the result", Err: err}
		}
	}
	return nil
}
