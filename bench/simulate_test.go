package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"assay/internal/serving"
	"assay/internal/workload"
	"assay/schemas"
)

// simulated is a workload of this many models at 0.1 req/s each, with lengths like
// those of published chat traces, and a system for it.
func simulated(b testing.TB, models int, span time.Duration, policy string) (serving.Input, serving.Config) {
	return synthetic(b, workload.SynthSpec{Models: models, RatePerModel: 0.1, Duration: span, InputMean: 320, OutputMean: 240, MaxTokens: 4096, Seed: 1}, policy)
}

func synthetic(b testing.TB, spec workload.SynthSpec, policy string) (serving.Input, serving.Config) {
	b.Helper()
	w, err := workload.Synth(spec)
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

// figure is what a benchmark needs of the experiment file.
type figure struct {
	Stage map[string]struct {
		Kind     string
		Policies []string
		Models   []int
		Rates    []float64
		Duration string
		Input    []float64 `toml:"input_quantiles"`
		Output   []float64 `toml:"output_quantiles"`
	}
}

// BenchmarkFigure11 takes the time of all points of the three panels of figure 11 in
// the three policies, one after the other on one processor: to be under 3 s. Processor time stands beside
// that of the wall, which others on the machine move.
func BenchmarkFigure11(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var f figure
	if _, err := toml.DecodeFile("../experiments/aegaeon/figure-11.toml", &f); err != nil {
		b.Fatal(err)
	}
	type run struct {
		in  serving.Input
		cfg serving.Config
	}
	var runs []run
	for _, s := range f.Stage {
		if s.Kind != "sweep" {
			continue
		}
		span, err := time.ParseDuration(s.Duration)
		if err != nil {
			b.Fatal(err)
		}
		for _, policy := range s.Policies {
			for _, models := range s.Models {
				for _, rate := range s.Rates {
					in, cfg := synthetic(b, workload.SynthSpec{Models: models, RatePerModel: rate, Duration: span, InputMean: 1, OutputMean: 1, InputQuantiles: s.Input, OutputQuantiles: s.Output, MaxTokens: 4096, FixedCount: true, Seed: 11}, policy)
					runs = append(runs, run{in, cfg})
				}
			}
		}
	}
	if len(runs) < 100 {
		b.Fatalf("%d points", len(runs))
	}
	var used time.Duration
	for b.Loop() {
		start := processTime(b)
		for _, r := range runs {
			if _, err := serving.Simulate(context.Background(), r.in, r.cfg, schemas.SLO{TTFTMs: 10_000, TPOTMs: 100}, nil); err != nil {
				b.Fatal(err)
			}
		}
		used += processTime(b) - start
	}
	b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s/figure")
	b.ReportMetric(float64(len(runs)), "points")
}

// TestMillion simulates a million requests, and a quarter of them, at the load of
// ASSAY_BENCH_MILLION models at 0.1 req/s each on 16 devices: 40 are served, 80 are
// lasting overload to the request-level policies. It prints times and memory, and
// fails when the growth is far from n log n.
func TestMillion(t *testing.T) {
	models, err := strconv.Atoi(os.Getenv("ASSAY_BENCH_MILLION"))
	if err != nil {
		t.Skip("takes a minute: set ASSAY_BENCH_MILLION to a number of models")
	}
	for _, policy := range serving.Policies {
		var took []time.Duration
		for _, n := range []int{250_000, 1_000_000} {
			span := time.Duration(float64(n) / (0.1 * float64(models)) * 1e9)
			in, cfg := synthetic(t, workload.SynthSpec{Models: models, RatePerModel: 0.1, Duration: span, InputMean: 714, OutputMean: 303, MaxTokens: 4096, Seed: 1}, policy)
			start := processTime(t)
			res, err := serving.Simulate(context.Background(), in, cfg, schemas.SLO{TTFTMs: 10_000, TPOTMs: 100}, nil)
			if err != nil {
				t.Fatal(err)
			}
			took = append(took, processTime(t)-start)
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			t.Logf("%s: %d requests, mean QoS %.4f, %.1f s of processor time, %d MiB from the system so far", policy, res.Stats.Requests, res.MeanQoS, took[len(took)-1].Seconds(), m.Sys>>20)
			if m.Sys > 2<<30 {
				t.Errorf("%s: over 2 GiB", policy)
			}
		}
		if took[1] > 60*time.Second || took[1] > 8*took[0] { // n log n is 4.4 times
			t.Errorf("%s: a quarter takes %v, all of them %v", policy, took[0], took[1])
		}
	}
}

// processTime is what this process has used, which others on the machine do not
// move as much as the time on the wall.
func processTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
