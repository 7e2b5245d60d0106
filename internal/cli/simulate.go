package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/internal/durable"
	"assay/internal/serving"
	"assay/internal/workload"
	"assay/schemas"
)

func simulateCommand() *command {
	return &command{
		name: "simulate", args: "--workload FILE --policy NAME", summary: "simulate a multi-model serving system on a workload",
		details: "FILE is CSV: " + serving.RequestsHeader + ",\nor Aegaeon's published form of arrivals and models. No device is needed: what comes\nout is a model's, and is marked as simulated. Without --profiles, latencies fitted to\npublished ones are used.",
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
	in, err := serving.ReadInput(c.String("workload"), workload.Options{})
	if err != nil {
		return withCode(ExitUsage, fmt.Errorf("--workload: %w", err))
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
		SLO: slo, Stats: res.Stats, LatencySource: source, Latencies: fits,
	})
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
	var ms [3]float64
	for i, name := range []string{"switch-overhead", "slo-ttft", "slo-tpot"} {
		d, err := schemas.ParseDuration(c.String(name))
		if err != nil {
			return cfg, schemas.SLO{}, fmt.Errorf("--%s: %w", name, err)
		}
		ms[i] = float64(d.Std()) / 1e6
	}
	cfg.SwitchOverheadMs = int64(ms[0])
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
	t.row(doc.Policy, number(doc.MeanQoS), fmt.Sprint(s.Requests), fmt.Sprint(s.Finished), fmt.Sprint(s.FailedPatience+s.FailedCapacity),
		fmt.Sprint(s.ModelSwitches), fmt.Sprint(s.DecodeSteps), fmt.Sprint(s.Evictions))
	c.printf("%s\n%d models on %d %s, batch term %s; latencies %s\n", t.String(), doc.Models, doc.Workers, doc.Device, doc.BatchTerm, doc.LatencySource)
	return nil
}

func positiveNumber(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, errors.New("want a number above 0")
	}
	return v, nil
}
