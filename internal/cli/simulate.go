package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"assay/internal/durable"
	"assay/internal/serving"
	"assay/internal/workload"
	"assay/schemas"
)

func simulateCommand() *command {
	return &command{
		name: "simulate", args: "--workload FILE --policy NAME", summary: "simulate a multi-model serving system on a workload",
		details: "FILE is CSV: " + serving.RequestsHeader + ",\nor arrivals in any form that measure reads. No device is needed: what comes\nout is a model's, and is marked as simulated. Without --profiles, latencies fitted to\npublished ones are used.",
		example: "assay simulate --workload trace.csv --policy serverlessllm --requests-out times.csv",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "workload", Usage: "`FILE` of requests"},
			&cli.StringFlag{Name: "policy", Usage: "`NAME`: " + strings.Join(serving.Policies, ", ")},
			&cli.StringFlag{Name: "profiles", Usage: "`DIR` of latency profiles MODEL/DEVICE/i<input>b<batch>.json"},
			&cli.StringFlag{Name: "device", Value: "h100", Usage: "`NAME` of the accelerator"},
			&cli.IntFlag{Name: "workers", Value: 16, Usage: "`N` devices"},
			&cli.IntFlag{Name: "prefill-workers", Usage: "`N` of them prefill, under aegaeon (default: 6 of 16)"},
			&cli.StringFlag{Name: "batch-term", Value: string(serving.BatchActual), Usage: "batch size in the decode fit, `NAME`: actual, or artifact for the -1 that Aegaeon's has"},
			&cli.StringFlag{Name: "bandwidth", Value: "16", Usage: "`GB/S` from host to device"},
			&cli.StringFlag{Name: "switch-overhead", Value: "0s", Usage: "`TIME` added to every switch of models"},
			&cli.StringFlag{Name: "memory", Usage: "`GB` of a device (default: the accelerator's)"},
			&cli.StringFlag{Name: "patience", Value: "15s", Usage: "a request without a token fails after `TIME`"},
			&cli.BoolFlag{Name: "work-stealing", Usage: "idle decode workers take batches over, under aegaeon"},
			&cli.IntFlag{Name: "steal-min-gap", Value: serving.MinStealGap, Usage: "least difference of batches, `N`, between giver and taker"},
			&cli.IntFlag{Name: "nodes", Value: 1, Usage: "`N` nodes share the devices out evenly"},
			&cli.IntFlag{Name: "replicas", Value: 1, Usage: "`N` nodes have each model"},
			&cli.StringFlag{Name: "routing", Value: serving.RouteLeastOutstanding, Usage: "`NAME`: " + strings.Join(serving.RoutingPolicies, ", ")},
			&cli.StringFlag{Name: "placement", Value: serving.PlaceLeastLoaded, Usage: "`NAME`: " + strings.Join(serving.PlacementPolicies, ", ")},
			&cli.StringFlag{Name: "model-cache", Usage: "`GB` of a node's memory for weights (default: all models fit)"},
			&cli.IntFlag{Name: "models", Usage: "give requests of a form without models to `N` models, at random"},
			&cli.Uint64Flag{Name: "seed", Usage: "`N` from which those are drawn"},
			&cli.StringFlag{Name: "timestamp-unit", Usage: "`UNIT` of bare timestamps: s, ms, us (default: the form's own)"},
			&cli.StringFlag{Name: "window", Usage: "only arrivals in `FROM,TO` of the workload's own time, such as 10s,70s"},
			&cli.StringFlag{Name: "speed", Value: "1", Usage: "arrivals are `N` times faster than written"},
			&cli.StringFlag{Name: "slo-ttft", Value: "10s", Usage: "target `TIME` to first token"},
			&cli.StringFlag{Name: "slo-tpot", Value: "100ms", Usage: "target `TIME` per output token"},
			&cli.StringFlag{Name: "requests-out", Usage: "write first and last token time of every request to `FILE`, as CSV"},
		},
		run: runSimulate,
	}
}

type simulateDoc struct {
	Simulated      bool                   `json:"simulated"`
	MeanQoS        float64                `json:"mean_qos"`
	QoSUndefined   int                    `json:"qos_undefined"`
	Policy         string                 `json:"policy"`
	BatchTerm      serving.BatchTerm      `json:"batch_term"`
	Device         string                 `json:"device"`
	Workers        int                    `json:"workers"`
	PrefillWorkers int                    `json:"prefill_workers"`
	Models         int                    `json:"models"`
	BandwidthGBps  float64                `json:"bandwidth_gb_per_s"`
	SLO            schemas.SLO            `json:"slo"`
	Stats          serving.Stats          `json:"stats"`
	Cluster        serving.Cluster        `json:"cluster"`
	LatencySource  string                 `json:"latency_source"`
	Latencies      map[string]serving.Fit `json:"latencies"`
}

func runSimulate(c *call) error {
	for _, name := range []string{"workload", "policy"} {
		if c.String(name) == "" {
			return usagef("--%s is missing: want `assay simulate --workload FILE --policy NAME`", name)
		}
	}
	cfg, slo, err := simulateConfig(c)
	if err != nil {
		return withCode(ExitUsage, err)
	}
	in, err := c.simulateInput()
	if err != nil {
		return withCode(ExitUsage, err)
	}
	bases, err := in.BaseModels()
	if err != nil {
		return withCode(ExitUsage, err)
	}
	fits, source, err := serving.Latencies(c.String("profiles"), cfg.Device.Name, bases)
	if err != nil {
		return withCode(ExitUsage, err)
	}
	if cfg.Models, err = in.Served(fits); err != nil {
		return withCode(ExitUsage, err)
	}
	res, err := serving.Simulate(c.ctx, in, cfg, slo, nil)
	if err != nil {
		return err
	}
	if path := c.String("requests-out"); path != "" {
		if err := writeRows(path, in, res.Rows); err != nil {
			return err
		}
	}
	return c.printSimulation(simulateDoc{
		Simulated: true, MeanQoS: res.MeanQoS, QoSUndefined: res.QoSUndefined, Policy: cfg.Policy, BatchTerm: cfg.BatchTerm,
		Device: cfg.Device.Name, Workers: cfg.Workers, PrefillWorkers: cfg.PrefillWorkers, Models: len(cfg.Models), BandwidthGBps: cfg.BandwidthGBps,
		SLO: slo, Stats: res.Stats, Cluster: res.Cluster, LatencySource: source, Latencies: fits,
	})
}

func (c *call) simulateInput() (serving.Input, error) {
	opts := workload.Options{Unit: c.String("timestamp-unit"), Seed: c.Uint64("seed")}
	if n := c.Int("models"); n < 0 || n > 1000 {
		return serving.Input{}, fmt.Errorf("--models %d: want 1 to 1000", n)
	}
	for i := range c.Int("models") {
		opts.Models = append(opts.Models, fmt.Sprintf("model-%03d", i))
	}
	var window [2]time.Duration
	if text := c.String("window"); text != "" {
		from, to, ok := strings.Cut(text, ",")
		if !ok {
			return serving.Input{}, fmt.Errorf("--window %q: want FROM,TO such as 10s,70s", text)
		}
		for i, t := range []string{from, to} {
			d, err := schemas.ParseDuration(t)
			if err != nil {
				return serving.Input{}, fmt.Errorf("--window: %w", err)
			}
			window[i] = d.Std()
		}
		if window[1] <= window[0] {
			return serving.Input{}, fmt.Errorf("--window %q: want an end after the start", text)
		}
	}
	speed, err := positiveNumber(c.String("speed"))
	if err != nil {
		return serving.Input{}, fmt.Errorf("--speed %q: %w", c.String("speed"), err)
	}
	in, err := serving.ReadInput(c.String("workload"), opts)
	if err != nil {
		return in, fmt.Errorf("--workload: %w", err)
	}
	return in.Cut(window[0], window[1], speed)
}

func simulateConfig(c *call) (serving.Config, schemas.SLO, error) {
	cfg := serving.Config{Policy: c.String("policy"), Workers: c.Int("workers"), PrefillWorkers: c.Int("prefill-workers"), BatchTerm: serving.BatchTerm(c.String("batch-term"))}
	if cfg.Policy == serving.PolicyAegaeon && !c.IsSet("prefill-workers") {
		cfg.PrefillWorkers = serving.DefaultPrefillWorkers(cfg.Workers)
	}
	var err error
	if cfg.Device, err = serving.FindDevice(c.String("device")); err != nil {
		return cfg, schemas.SLO{}, fmt.Errorf("--device: %w", err)
	}
	if cfg.BandwidthGBps, err = positiveNumber(c.String("bandwidth")); err != nil {
		return cfg, schemas.SLO{}, fmt.Errorf("--bandwidth %q: %w", c.String("bandwidth"), err)
	}
	cfg.WorkStealing, cfg.StealMinGap = c.Bool("work-stealing"), c.Int("steal-min-gap")
	cfg.Nodes, cfg.Replicas, cfg.Routing, cfg.Placement = c.Int("nodes"), c.Int("replicas"), c.String("routing"), c.String("placement")
	for name, into := range map[string]*float64{"memory": &cfg.Device.MemoryGB, "model-cache": &cfg.ModelCacheGB} {
		if text := c.String(name); text != "" {
			if *into, err = positiveNumber(text); err != nil {
				return cfg, schemas.SLO{}, fmt.Errorf("--%s %q: %w", name, text, err)
			}
		}
	}
	var ms [4]float64
	for i, name := range []string{"switch-overhead", "slo-ttft", "slo-tpot", "patience"} {
		d, err := schemas.ParseDuration(c.String(name))
		if err != nil {
			return cfg, schemas.SLO{}, fmt.Errorf("--%s: %w", name, err)
		}
		ms[i] = float64(d.Std()) / 1e6
	}
	cfg.SwitchOverheadMs, cfg.PatienceMs = int64(ms[0]), int64(ms[3])
	if cfg.PatienceMs == 0 {
		return cfg, schemas.SLO{}, errors.New("--patience: want more than 0")
	}
	slo := schemas.SLO{TTFTMs: ms[1], TPOTMs: ms[2]}
	if cfg.TPOTTargetS = slo.TPOTMs / 1000; cfg.TPOTTargetS <= 0 {
		return cfg, slo, errors.New("--slo-tpot: want more than 0")
	}
	return cfg, slo, cfg.Check()
}

func writeRows(path string, in serving.Input, rows []serving.Row) error {
	f, err := durable.Create(path)
	if err != nil {
		return fmt.Errorf("--requests-out: %w", err)
	}
	defer f.Abort()
	if err := serving.WriteRows(f, in, rows); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return fmt.Errorf("--requests-out: %w", err)
	}
	return nil
}

func (c *call) printSimulation(doc simulateDoc) error {
	if c.asJSON {
		return c.printJSON(doc)
	}
	s := doc.Stats
	t := newTable("simulated", "mean QoS", "requests", "finished", "failed", "switches", "decode steps", "evictions").right(1, 2, 3, 4, 5, 6, 7)
	t.row(doc.Policy, number(doc.MeanQoS), fmt.Sprint(s.Requests), fmt.Sprint(s.Finished), fmt.Sprint(s.FailedPatience+s.FailedCapacity+s.FailedReplica),
		fmt.Sprint(s.ModelSwitches), fmt.Sprint(s.DecodeSteps), fmt.Sprint(s.Evictions))
	c.printf("%s\n%d models on %d %s, batch term %s; latencies %s\n", t.String(), doc.Models, doc.Workers, doc.Device, doc.BatchTerm, doc.LatencySource)
	if st := doc.Cluster.Stealing; st.Enabled {
		c.printf("work stealing: %d batches taken over in %d attempts; CV of decode tokens %s, of active time %s\n", st.Successes, st.Attempts, number(doc.Cluster.OutputTokensCV), number(doc.Cluster.ActiveCV))
	}
	return nil
}

func positiveNumber(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, errors.New("want a number above 0")
	}
	return v, nil
}
