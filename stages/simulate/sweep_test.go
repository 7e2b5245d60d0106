package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"assay/internal/report"
	"assay/pipeline"
	"assay/schemas"

	"github.com/google/go-cmp/cmp"
)

// sweepRun runs the kind and returns its outputs by path.
func sweepRun(t *testing.T, seed uint64, config map[string]any) (map[string]string, error) {
	t.Helper()
	fields, ok := schemas.FieldsOf("sweep")
	if !ok {
		t.Fatal("the kind is not described")
	}
	task := &pipeline.Task{
		Node: schemas.Node{ID: "panel@t001", Stage: "panel", Trial: "t001"}, Config: schemas.ApplyDefaults(fields, config), Seed: seed, Dir: t.TempDir(), Log: &bytes.Buffer{},
		Report: func(schemas.Finding) {},
	}
	err := runSweep(context.Background(), task)
	out := map[string]string{}
	root := filepath.Join(task.Dir, "outputs")
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // a stage that failed has no outputs
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	})
	return out, err
}

func small() map[string]any {
	return map[string]any{
		"policies": []any{"serverlessllm", "aegaeon"}, "models": []any{2.0, 6.0, 12.0}, "rates": []any{0.2}, "workers": []any{3.0}, "duration": "20s",
		"input_quantiles": []any{10.0, 100.0, 2000.0}, "output_quantiles": []any{16.0, 90.0, 500.0}, "arrivals": "fixed-count",
	}
}

// TestSweepIsTheSameOnOneProcessor: every byte of every output.
func TestSweepIsTheSameOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one, err := sweepRun(t, 5, small())
	if err != nil {
		t.Fatal(err)
	}
	runtime.GOMAXPROCS(2)
	two, err := sweepRun(t, 5, small())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("two processors give something else:\n%s", diff)
	}
	if len(one) != 8 {
		t.Errorf("%d files, want points, requests, tokens, fits, two charts, result and conditions", len(one))
	}
	other, err := sweepRun(t, 6, small())
	if err != nil || cmp.Equal(one["points/requests.csv"], other["points/requests.csv"]) {
		t.Errorf("another seed gives the same requests: %v", err)
	}
}

// TestSweepAgreesWithSimulate: a point of a sweep is what simulate makes of its
// workload, and all its files tell the same.
func TestSweepAgreesWithSimulate(t *testing.T) {
	config := small()
	config["models"], config["policies"] = []any{12.0}, []any{"aegaeon"}
	out, err := sweepRun(t, 5, config)
	if err != nil {
		t.Fatal(err)
	}
	var res schemas.Result
	if err := json.Unmarshal([]byte(out["result/result.json"]), &res); err != nil {
		t.Fatal(err)
	}
	qos, _, err := report.Lookup(res, "qos_at.aegaeon@12")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSweep(schemas.Settings(schemas.ApplyDefaults(mustFields(t, "sweep"), config)), 5)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "w.csv")
	text := "request_id,model,base_model,arrival_ms,input_tokens,output_tokens\n"
	in := s.loads[0].in
	for _, r := range in.Requests {
		text += strings.Join([]string{in.IDs[r.Index], in.Models[r.Model].Name, in.Models[r.Model].Base, num(float64(r.AtMs)), num(float64(r.InputTokens)), num(float64(r.OutputTokens))}, ",") + "\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	alone, _, err := stage(t, "t001", 1, map[string]any{"workload": path, "policy": "aegaeon", "workers": 3.0})
	if err != nil {
		t.Fatal(err)
	}
	if mean := result(t, alone).Metrics["qos"].Mean; mean == nil || *mean != qos || res.Counts.Issued != len(in.Requests) {
		t.Errorf("the sweep has %v over %d requests, simulate %v over %d", qos, res.Counts.Issued, *mean, len(in.Requests))
	}
	rows := strings.ReplaceAll(out["points/requests.csv"], "aegaeon,h100,3,12,0.2,1,1,1,", "")
	_, rows, _ = strings.Cut(rows, "\n")
	if _, want, _ := strings.Cut(alone["requests/requests.csv"], "\n"); rows != want {
		t.Errorf("requests of the sweep:\n%.300s\nof simulate:\n%.300s", rows, want)
	}
}

func mustFields(t *testing.T, kind string) []schemas.Field {
	t.Helper()
	fields, ok := schemas.FieldsOf(kind)
	if !ok {
		t.Fatalf("%s is not described", kind)
	}
	return fields
}

// TestSweepLines: what is varied beside the axis makes lines of its own.
func TestSweepLines(t *testing.T) {
	config := small()
	config["x"], config["slo_scales"], config["rates"], config["models"] = "slo_scale", []any{1.0, 0.2}, []any{0.1, 0.3}, []any{6.0}
	out, err := sweepRun(t, 5, config)
	if err != nil {
		t.Fatal(err)
	}
	var res schemas.Result
	if err := json.Unmarshal([]byte(out["result/result.json"]), &res); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range res.Panel.Series {
		names = append(names, s.Name)
		if len(s.Points) != 2 || s.Points[0].X != 0.2 || s.Points[0].Y > s.Points[1].Y {
			t.Errorf("%s: %+v", s.Name, s.Points)
		}
	}
	want := []string{"serverlessllm rate=0.1", "serverlessllm rate=0.3", "aegaeon rate=0.1", "aegaeon rate=0.3"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestSweepErrors(t *testing.T) {
	for want, change := range map[string]func(map[string]any){
		"numbers above 0":      func(c map[string]any) { c["rates"] = []any{0.0} },
		"not a whole number":   func(c map[string]any) { c["models"] = []any{2.5} },
		"models = 200":         func(c map[string]any) { c["models"] = []any{200.0} },
		`policy "fcfs"`:        func(c map[string]any) { c["policies"] = []any{"fcfs"} },
		"input_quantiles":      func(c map[string]any) { c["input_quantiles"] = []any{10.0, 5.0} },
		"is not known":         func(c map[string]any) { c["devices"] = []any{"tpu"} },
		"3 coefficients":       nil,
		"there are none of yi": nil,
	} {
		config := small()
		if change == nil {
			c := []any{0.01, 0.0, 0.0}
			if strings.HasPrefix(want, "3") {
				want, c = "2 coefficients: want 3", c[:2]
			}
			config["latencies"] = []any{map[string]any{"model": "qwen2.5-7b", "prefill": c, "decode": []any{0.01, 0.0, 0.0}, "source": "x"}}
		} else {
			change(config)
		}
		if out, err := sweepRun(t, 1, config); err == nil || !strings.Contains(err.Error(), want) || len(out) != 0 {
			t.Errorf("want an error with %q and no output, got %v, %d files", want, err, len(out))
		}
	}
}

// TestWindowAndSpeed: a part of a workload, faster.
func TestWindowAndSpeed(t *testing.T) {
	all, _, err := stage(t, "t001", 1, map[string]any{"workload": crowded, "policy": "serverlessllm"})
	if err != nil {
		t.Fatal(err)
	}
	part, _, err := stage(t, "t001", 1, map[string]any{"workload": crowded, "policy": "serverlessllm", "window": []any{"2s", "6s"}, "speed": 2.0})
	if err != nil {
		t.Fatal(err)
	}
	whole, cut := result(t, all), result(t, part)
	if cut.Counts.Issued == 0 || cut.Counts.Issued >= whole.Counts.Issued || cut.Speed != 2 || cut.Comparable {
		t.Errorf("%d of %d requests at speed %v, comparable %v", cut.Counts.Issued, whole.Counts.Issued, cut.Speed, cut.Comparable)
	}
	for _, w := range [][]any{{"6s", "2s"}, {"2s"}, {"x", "2s"}, {"50000s", "50001s"}} {
		if _, _, err := stage(t, "t001", 1, map[string]any{"workload": crowded, "policy": "serverlessllm", "window": w}); err == nil {
			t.Errorf("window %v is taken", w)
		}
	}
}

// TestStealingIsTold: the conditions of a stage with work stealing have its account.
func TestStealingIsTold(t *testing.T) {
	out, _, err := stage(t, "t001", 1, map[string]any{"workload": crowded, "policy": "aegaeon", "workers": 4.0, "prefill_workers": 1.0, "work_stealing": true})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out["result/conditions.json"], `"work_stealing":{"affine":`) || !strings.Contains(out["result/conditions.json"], `"output_tokens_cv":`) {
		t.Errorf("conditions: %s", out["result/conditions.json"])
	}
}
