package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"assay/internal/serving"
	"assay/internal/workload"
	"assay/schemas"
)

// simulated is a workload of this many models at 0.1 req/s each, with lengths like
// those of published chat traces, and a system for it.
func simulated(b *testing.B, models int, span time.Duration, policy string) (serving.Input, serving.Config) {
	b.Helper()
	w, err := workload.Synth(workload.SynthSpec{Models: models, RatePerModel: 0.1, Duration: span, InputMean: 320, OutputMean: 240, MaxTokens: 4096, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	in, err := serving.FromWorkload(w)
	if err != nil {
		b.Fatal(err)
	}
	cfg := serving.Config{Workers: 16, Policy: policy}
	if policy == serving.PolicyAegaeon {
		cfg.PrefillWorkers = serving.DefaultPrefillWorkers(cfg.Workers)
	}
	if cfg.Device, err = serving.FindDevice("h100"); err != nil {
		b.Fatal(err)
	}
	fits, err := serving.Published("h100", serving.BaseModels)
	if err != nil {
		b.Fatal(err)
	}
	if cfg.Models, err = in.Served(fits); err != nil {
		b.Fatal(err)
	}
	return in, cfg
}

// BenchmarkSimulate takes the time of one point: 80 models for two minutes, the
// largest of the published sweep, and ten and a hundred times as long.
func BenchmarkSimulate(b *testing.B) {
	for _, policy := range serving.Policies {
		for _, times := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("%s/x%d", policy, times), func(b *testing.B) {
				in, cfg := simulated(b, 80, time.Duration(times)*2*time.Minute, policy)
				slo := schemas.SLO{TTFTMs: 10_000, TPOTMs: 100}
				b.ReportAllocs()
				for b.Loop() {
					res, err := serving.Simulate(context.Background(), in, cfg, slo, nil)
					if err != nil || res.Stats.Requests != len(in.Requests) {
						b.Fatalf("%v, %d of %d requests", err, res.Stats.Requests, len(in.Requests))
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(in.Requests)), "ns/request")
			})
		}
	}
}
