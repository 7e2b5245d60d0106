package measure

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"assay/internal/report"
	"assay/schemas"
)

// TestSwitchesOfAServingSystem: on devices that hold one model, a request that follows
// another model's takes longer by the time of a switch, for every ordered pair, and the
// steady ones after it do not.
func TestSwitchesOfAServingSystem(t *testing.T) {
	var models []any
	for _, m := range []string{"a", "b", "c"} {
		models = append(models, map[string]any{"name": m, "base": "qwen2.5-7b"})
	}
	e := startEngine(t, map[string]any{"personality": "aegaeon", "time_scale": 20.0, "models": models, "serving": map[string]any{"policy": "aegaeon", "workers": 2.0, "prefill_workers": 1.0}}, func() {})
	s := generated(t, e, "", map[string]any{"mode": "switch", "steady": 2.0, "rounds": 2.0, "observe": map[string]any{"snapshot": "on"}, "input": fixed(32), "output": fixed(4)})
	s.task.Experiment.Stage["warm"] = schemas.StageDef{Kind: "load", Service: s.task.Experiment.Stage[s.task.Node.Stage].Service}
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	res := s.result(t)
	m := res.Switches
	if m == nil || len(m.Cells) != 6 || len(s.records(t)) != 13*3 || m.Excluded["first"] != 1 {
		t.Fatalf("%+v, %d records", m, len(s.records(t)))
	}
	for _, c := range m.Cells {
		// 14 GB at 16 GB/s is 0.9 s, 20 times as fast 44 ms, on the prefill device before the
		// first token and on the decode device after it.
		cost, steady := c.Metrics["cost_ttft_ms"], c.Metrics["steady_ttft_ms"]
		if c.Visits != 2 || steady.N != 4 || cost.N != 2 || *cost.Mean < 35 || *c.Metrics["cost_e2e_ms"].Mean < 70 || *steady.P50 > *c.Metrics["ttft_ms"].Min {
			t.Errorf("%s to %s: cost %v ms, steady %v ms, %+v", c.From, c.To, *cost.Mean, *steady.Mean, c)
		}
	}
	if m.Counted == nil || *m.Counted != 13 || s.found("switch.not-counted") || s.found("switch.cache-changed") {
		t.Errorf("%v switches are counted, findings %+v", m.Counted, s.findings)
	}
	dir := filepath.Join(s.task.Dir, "outputs", OutputResult)
	text, err := os.ReadFile(filepath.Join(dir, SwitchTextFile))
	if err != nil || !strings.Contains(string(text), "switch TTFT, ms: from (row) to (column)") {
		t.Errorf("%v: %s", err, text)
	}
	for _, metric := range report.SwitchMetrics {
		name := "switch-" + strings.TrimSuffix(metric, "_ms") + ".svg"
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(b), "emulated") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func (s *stage) found(id string) bool {
	return slices.ContainsFunc(s.findings, func(f schemas.Finding) bool { return f.ID == id })
}

// TestSwitchesThatAreNone: with two engines that decode, some requests find their model
// where it was left, and the service's counter tells.
func TestSwitchesThatAreNone(t *testing.T) {
	e := startEngine(t, map[string]any{"personality": "aegaeon", "time_scale": 100.0, "models": []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}},
		"serving": map[string]any{"policy": "aegaeon", "workers": 6.0, "prefill_workers": 2.0, "nodes": 2.0, "replicas": 2.0}}, func() {})
	s := generated(t, e, "", map[string]any{"mode": "switch", "rounds": 6.0, "observe": map[string]any{"snapshot": "on"}, "input": fixed(8), "output": fixed(3)})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	if m := s.result(t).Switches; !s.found("switch.not-counted") || m.Counted == nil || *m.Counted >= 12 {
		t.Errorf("%+v, findings %+v", m, s.findings)
	}
}

func TestSteadyBelongsToSwitch(t *testing.T) {
	_, err := schemas.MeasureMode(map[string]any{"mode": "sequential", "requests": 2.0, "input": fixed(1), "output": fixed(1), "steady": 2.0})
	if err == nil || !strings.Contains(err.Error(), "steady belongs to mode switch") {
		t.Error(err)
	}
}
