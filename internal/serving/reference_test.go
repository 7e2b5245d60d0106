package serving

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"assay/internal/metrics"
	"assay/internal/workload"
)

const shared = "../../../shared/data/aegaeon"

func needShared(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(shared); err != nil {
		t.Skipf("the published reference is not beside this checkout: %v", err)
	}
}

func fits(t testing.TB, in Input) []Served {
	t.Helper()
	bases, err := in.BaseModels()
	if err != nil {
		t.Fatal(err)
	}
	f, err := FitModels(filepath.Join(shared, "profiles"), "h100", bases)
	if err != nil {
		t.Fatal(err)
	}
	served, err := in.Served(f)
	if err != nil {
		t.Fatal(err)
	}
	return served
}

// outcome is an Outcome that outlives its call.
type outcome struct {
	Outcome
	first, last int64
	qos         float64
}

func simulate(t testing.TB, in Input, cfg Config) ([]outcome, Stats) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]outcome, len(in.Requests))
	seen := 0
	stats, err := s.Run(context.Background(), slices.Values(in.Requests), func(o Outcome) error {
		got := outcome{Outcome: o}
		got.TokensMs = slices.Clone(o.TokensMs)
		if o.Finished {
			got.first, got.last = o.TokensMs[0], o.TokensMs[len(o.TokensMs)-1]
			got.qos, err = metrics.QoS(o.AtMs, o.TokensMs, 10_000, 100)
			if err != nil {
				return err
			}
		}
		if out[o.Index].Request != (Request{}) {
			return fmt.Errorf("request %d ends twice", o.Index)
		}
		out[o.Index] = got
		seen++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen != len(in.Requests) {
		t.Fatalf("%d of %d requests have an end", seen, len(in.Requests))
	}
	return out, stats
}

func meanQoS(out []outcome) float64 {
	sum := 0.0
	for _, o := range out {
		sum += o.qos
	}
	return sum / float64(len(out))
}

type summaryRow struct {
	Workload string  `json:"workload"`
	Policy   string  `json:"policy"`
	Finished int     `json:"finished"`
	MeanQoS  float64 `json:"mean_qos"`
}

func TestReference(t *testing.T) {
	needShared(t)
	b, err := os.ReadFile(filepath.Join(shared, "sim-reference", "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []summaryRow
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) < 10 {
		t.Fatalf("only %d references", len(rows))
	}
	for _, row := range rows {
		t.Run(row.Workload+"/"+row.Policy, func(t *testing.T) {
			dir := filepath.Join(shared, "sim-reference", row.Workload)
			in, err := ReadInput(filepath.Join(dir, "requests.csv"), workload.Options{})
			if err != nil {
				t.Fatal(err)
			}
			device, _ := FindDevice("h100")
			cfg := Config{Device: device, Models: fits(t, in), Workers: 16, Policy: row.Policy, BatchTerm: BatchArtifact}
			tolerance := 5e-7
			if row.Policy == PolicyAegaeon {
				cfg.PrefillWorkers, tolerance = 6, 0.02
			}
			out, stats := simulate(t, in, cfg)
			if got := meanQoS(out); math.Abs(got-row.MeanQoS) > tolerance {
				t.Errorf("mean QoS %.7f, the reference has %.7f", got, row.MeanQoS)
			}
			if row.Policy == PolicyAegaeon {
				return
			}
			if stats.Finished != row.Finished {
				t.Errorf("%d finished, the reference has %d", stats.Finished, row.Finished)
			}
			compare(t, in, out, filepath.Join(dir, row.Policy+".csv"))
		})
	}
}

func compare(t *testing.T, in Input, out []outcome, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != len(out)+1 {
		t.Fatalf("%d rows for %d requests", len(want)-1, len(out))
	}
	wrong := 0
	for _, w := range want[1:] {
		i := slices.Index(in.IDs, w[0])
		if got := csvRow(in, out[i]); !slices.Equal(got, w) {
			wrong++
			if wrong <= 5 {
				t.Errorf("request %s (arrives %d): got %v, want %v", w[0], in.Requests[i].AtMs, got, w)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d requests differ", wrong, len(out))
	}
}

func csvRow(in Input, o outcome) []string {
	if !o.Finished {
		return []string{in.IDs[o.Index], "", "", "0"}
	}
	return []string{in.IDs[o.Index], strconv.FormatInt(o.first, 10), strconv.FormatInt(o.last, 10), strconv.Itoa(len(o.TokensMs))}
}
