package simulate

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"assay/internal/report"
	"assay/internal/serving"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// SweepKind returns the kind that simulates a grid of generated workloads.
func SweepKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "sweep", Version: 2,
		Pure:    func(map[string]any) bool { return true },
		Seed:    sweepSeed,
		Outputs: func(map[string]any) []string { return []string{OutputPoints, OutputChart, OutputResult} },
		Run:     runSweep,
	}
}

func sweepSeed(config map[string]any) pipeline.SeedUse {
	if v, ok := config["per_repetition"].(bool); ok && !v {
		return pipeline.SeedExperiment
	}
	return pipeline.SeedRepetition
}

func runSweep(ctx context.Context, task *pipeline.Task) error {
	set := schemas.Settings(task.Config)
	s, err := newSweep(set, task.Seed)
	if err != nil {
		return err
	}
	if err := s.simulate(ctx, task); err != nil {
		return err
	}
	panel := s.panel(func(p *cell) float64 { return p.sim.MeanQoS })
	res := report.PanelResult(panel, slo(set))
	f := schemas.Finding{ID: "result.simulated", Severity: schemas.SeverityInfo, Subject: "stage " + task.Node.Stage, Message: "simulated: a model of a serving system gave these times; nothing was measured"}
	res.Findings = append(res.Findings, f)
	task.Report(f)
	if err := s.write(task, panel); err != nil {
		return err
	}
	fmt.Fprint(task.Log, report.PanelText(panel))
	return writeResult(task, res, s.conditions(panel))
}

// sweep is a grid of points.
type sweep struct {
	set    schemas.Settings
	axis   string
	target float64
	title  string
	cells  []*cell
	loads  []*load
	tokens bool
}

// load is a generated workload, which all policies share.
type load struct {
	models                     int
	rate, inputScale, outScale float64
	in                         serving.Input
}

// cell is one point.
type cell struct {
	load     *load
	sys      system
	sloScale float64
	x        float64
	series   string
	p        point
	sim      serving.Result
	otherQoS float64 // with the other batch term
	tokens   []byte
}

const maxCells = 10_000

// values reads a list of numbers, or gives the default.
func values(set schemas.Settings, key string, otherwise ...float64) ([]float64, error) {
	list := set.List(key)
	if len(list) == 0 {
		return otherwise, nil
	}
	var out []float64
	for _, text := range list {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v > 0) || v > 1e9 {
			return nil, fmt.Errorf("%s: %q: want numbers above 0", key, text)
		}
		out = append(out, v)
	}
	return out, nil
}

func newSweep(set schemas.Settings, seed uint64) (*sweep, error) {
	s := &sweep{set: set, axis: set.Text("x"), target: set.Float("target"), title: set.Text("title"), tokens: set.Bool("tokens")}
	axes := map[string][]float64{}
	for name, key := range map[string]string{"models": "models", "rate": "rates", "input_scale": "input_scales", "output_scale": "output_scales", "slo_scale": "slo_scales", "workers": "workers"} {
		otherwise := 1.0
		if name == "workers" {
			otherwise = 16
		}
		var err error
		if axes[name], err = values(set, key, otherwise); err != nil {
			return nil, err
		}
		for _, v := range axes[name] {
			if (name == "models" || name == "workers") && v != float64(int(v)) {
				return nil, fmt.Errorf("%s: %s is not a whole number", key, schemas.Decimal(v))
			}
		}
	}
	devices := set.List("devices")
	if len(devices) == 0 {
		devices = []string{"h100"}
	}
	n := len(devices) * len(set.List("policies"))
	for _, list := range axes {
		n *= len(list)
	}
	if n > maxCells {
		return nil, fmt.Errorf("the sweep has %d points, the limit is %d: cross fewer values", n, maxCells)
	}
	if err := s.generate(axes, seed); err != nil {
		return nil, err
	}
	return s, s.cross(axes, devices)
}

// generate makes the workloads.
func (s *sweep) generate(axes map[string][]float64, seed uint64) error {
	input, err := values(s.set, "input_quantiles")
	if err != nil {
		return err
	}
	output, err := values(s.set, "output_quantiles")
	if err != nil {
		return err
	}
	for _, models := range axes["models"] {
		for _, rate := range axes["rate"] {
			for _, in := range axes["input_scale"] {
				for _, out := range axes["output_scale"] {
					l := &load{models: int(models), rate: rate, inputScale: in, outScale: out}
					w, err := workload.Synth(workload.SynthSpec{
						Models: l.models, RatePerModel: rate, Duration: s.set.Duration("duration"), InputMean: s.set.Int("input_mean"), OutputMean: s.set.Int("output_mean"),
						InputQuantiles: input, OutputQuantiles: output, InputScale: in, OutputScale: out, MaxTokens: s.set.Int("max_tokens"), Seed: seed,
						FixedCount: s.set.Text("arrivals") == "fixed-count",
					})
					if err != nil {
						return err
					}
					if l.in, err = serving.FromWorkload(w); err != nil {
						return err
					}
					s.loads = append(s.loads, l)
				}
			}
		}
	}
	return nil
}

// cross makes the points: the lines in order of the policies, each in order of x.
func (s *sweep) cross(axes map[string][]float64, devices []string) error {
	for _, policy := range s.set.List("policies") {
		for _, device := range devices {
			for _, workers := range axes["workers"] {
				for _, scale := range axes["slo_scale"] {
					for _, l := range s.loads {
						c := &cell{load: l, sys: system{policy: policy, device: device, workers: int(workers)}, sloScale: scale}
						at := map[string]float64{"models": float64(l.models), "rate": l.rate, "input_scale": l.inputScale, "output_scale": l.outScale, "slo_scale": scale, "workers": workers}
						c.x, c.series = at[s.axis], s.line(c, at, axes, len(devices) > 1)
						target := slo(s.set)
						target.TTFTMs, target.TPOTMs = target.TTFTMs*scale, target.TPOTMs*scale
						var err error
						if c.p, err = c.sys.point(s.set, l.in, target); err != nil {
							return err
						}
						s.cells = append(s.cells, c)
					}
				}
			}
		}
	}
	return nil
}

// line names the line that a point belongs to: its policy, and what else is varied
// beside the axis.
func (s *sweep) line(c *cell, at map[string]float64, axes map[string][]float64, manyDevices bool) string {
	name := c.sys.policy
	if manyDevices {
		name += " " + c.sys.device
	}
	for _, a := range schemas.SweepAxes {
		if a != s.axis && len(axes[a]) > 1 {
			name += " " + a + "=" + schemas.Decimal(at[a])
		}
	}
	return name
}

// simulate runs all points, as many at a time as there are processors. What comes
// out does not depend on that.
func (s *sweep) simulate(ctx context.Context, task *pipeline.Task) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, c := range s.cells {
		group.Go(func() error {
			if err := c.run(ctx, s.tokens); err != nil {
				return fmt.Errorf("%s at %s = %s: %w", c.series, s.axis, schemas.Decimal(c.x), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if task.Progress != nil {
		task.Progress(int64(len(s.cells)), int64(len(s.cells)), "points")
	}
	return nil
}

func (c *cell) run(ctx context.Context, tokens bool) error {
	var each func(serving.Outcome) error
	if tokens {
		prefix := c.name() + ","
		each = func(o serving.Outcome) error {
			c.tokens = appendTokens(c.tokens, prefix+c.load.in.IDs[o.Index], o)
			return nil
		}
	}
	var err error
	if c.sim, err = serving.Simulate(ctx, c.load.in, c.p.cfg, c.p.slo, each); err != nil {
		return err
	}
	other, err := serving.Simulate(ctx, c.load.in, c.p.otherTerm(), c.p.slo, nil)
	c.otherQoS = other.MeanQoS
	return err
}

// name tells a point apart in the files of a sweep.
func (c *cell) name() string {
	return strings.Join([]string{c.sys.policy, c.sys.device, strconv.Itoa(c.sys.workers), strconv.Itoa(c.load.models), num(c.load.rate), num(c.load.inputScale), num(c.load.outScale), num(c.sloScale)}, ",")
}

func num(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// panel draws what y gives for each point.
func (s *sweep) panel(y func(*cell) float64) schemas.Panel {
	p := schemas.Panel{Title: s.title, X: s.axis, Y: "mean QoS", Target: s.target}
	if p.Title == "" {
		p.Title = "Mean QoS over " + s.axis
	}
	for _, c := range s.cells {
		if n := len(p.Series); n == 0 || p.Series[n-1].Name != c.series {
			p.Series = appendSeries(p.Series, c.series)
		}
		at := seriesOf(p.Series, c.series)
		at.Points = append(at.Points, schemas.PanelPoint{X: c.x, Y: y(c), Requests: c.sim.Stats.Requests, Finished: c.sim.Stats.Finished})
	}
	for i := range p.Series {
		sortPoints(p.Series[i].Points)
	}
	report.ReadLoads(&p)
	return p
}
