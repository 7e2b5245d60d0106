package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/internal/durable"
	"assay/internal/report"
	"assay/internal/report/compare"
	"assay/pipeline"
	"assay/schemas"
)

// switched are the outputs of a measure stage in mode switch whose switches took so
// many milliseconds.
func switched(t *testing.T, stage string, trial schemas.Trial, ms float64) []pipeline.UpstreamOutput {
	t.Helper()
	dir := t.TempDir()
	var recs []schemas.RequestRecord
	models := []string{"", "a", "b", "a", "b", "a"}
	for i := 1; i < len(models); i++ {
		start := int64(i) * 1e9
		at := func(ms float64) *int64 { ns := start + int64(ms*1e6); return &ns }
		n := 2
		phase := schemas.PhaseSwitch
		if i == 1 {
			phase = schemas.PhaseCold
		}
		recs = append(recs, schemas.RequestRecord{
			Schema: schemas.RequestRecordV1, ID: fmt.Sprint(i), Index: i - 1, Model: models[i], API: "completions", AskedInputTokens: 1, AskedOutputTokens: n, Held: true, Outcome: schemas.OutcomeOK, StampSource: "user",
			SwitchFrom: models[i-1], Phase: phase, ScheduledNs: start, DispatchedNs: at(0), FirstTokenNs: at(ms), LastTokenNs: at(ms + 10), DoneNs: at(ms + 10), EndNs: *at(ms + 10),
			Chunks: []schemas.Chunk{{AtNs: *at(ms)}, {AtNs: *at(ms + 10)}}, OutputTokens: &n, OutputTokensSource: "usage", FinishReason: "length",
		})
	}
	res, err := report.Fold(report.Records(recs), report.FoldOptions{Emulated: true})
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	add := func(v any) {
		b, err := schemas.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(b, '\n'))
	}
	add(schemas.Schedule{Schema: schemas.ScheduleV1})
	for _, r := range recs {
		add(schemas.ScheduledRequest{Index: r.Index, ID: r.ID, Model: r.Model, InputTokens: 1, OutputTokens: 2})
	}
	f, err := durable.OpenAppend(filepath.Join(dir, "requests.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := report.NewRecordWriter(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := schemas.Encode(res)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"result.json": b, "conditions.json": []byte(`[{"name":"engine","value":"emulated"}]`), "schedule.jsonl": lines.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	up := func(name, path string) pipeline.UpstreamOutput {
		return pipeline.UpstreamOutput{Stage: stage, Kind: "measure", Trial: trial, Name: name, Path: func(context.Context) (string, error) { return path, nil }}
	}
	return []pipeline.UpstreamOutput{up("result", dir), up("requests", filepath.Join(dir, "requests.jsonl.zst")), up("schedule", filepath.Join(dir, "schedule.jsonl"))}
}

type stage struct {
	task     *pipeline.Task
	log      bytes.Buffer
	findings []schemas.Finding
}

// newStage compares switches with graphs off and on, twice: on takes a fifth less.
func newStage(t *testing.T, config map[string]any) *stage {
	t.Helper()
	s := &stage{}
	fields, _ := schemas.FieldsOf("compare")
	s.task = &pipeline.Task{Config: schemas.ApplyDefaults(fields, config), Dir: t.TempDir(), Log: &s.log, Experiment: schemas.Experiment{Matrix: map[string][]any{"graphs": {"off", "on"}}},
		Report: func(f schemas.Finding) { s.findings = append(s.findings, f) }}
	for rep := range 2 {
		for graphs, factor := range map[string]float64{"off": 1, "on": 0.8} {
			trial := schemas.Trial{ID: fmt.Sprint(graphs, rep), Repetition: rep, Point: map[string]any{"graphs": graphs}}
			s.task.Upstream = append(s.task.Upstream, switched(t, "switch", trial, factor*float64(100+10*rep))...)
		}
	}
	return s
}

func (s *stage) comparison(t *testing.T) schemas.Comparison {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.task.Dir, "outputs", OutputComparison, ComparisonFile))
	if err != nil {
		t.Fatal(err)
	}
	var c schemas.Comparison
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSwitchesPairByPair: every ordered pair of models is compared by itself, and heat
// maps of both sides are drawn.
func TestSwitchesPairByPair(t *testing.T) {
	s := newStage(t, map[string]any{"baseline": "off", "metrics": []any{"switch[*].ttft_ms.mean"}, "tolerance": 10.0})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	c := s.comparison(t)
	if c.By != "graphs" || !c.Comparable || c.Within == nil || *c.Within || len(c.Groups) != 1 || len(c.Groups[0].Metrics) != 2 {
		t.Fatalf("%+v", c)
	}
	for _, m := range c.Groups[0].Metrics {
		if m.N != 2 || *m.Mean > -19.999 || *m.Mean < -20.001 || m.Low == nil || !strings.HasPrefix(m.Metric, "switch[") {
			t.Errorf("%+v: %v", m, *m.Mean)
		}
	}
	if len(s.findings) != 2 || s.findings[0].ID != compare.IDTolerance {
		t.Errorf("%+v", s.findings)
	}
	dir := filepath.Join(s.task.Dir, "outputs", OutputComparison)
	svg, err := os.ReadFile(filepath.Join(dir, "switch-ttft.svg"))
	if err != nil || strings.Count(string(svg), "<rect") != 8 || !strings.Contains(string(svg), ">off<") || !strings.Contains(string(svg), ">on<") {
		t.Errorf("%v: %s", err, svg)
	}
	b, err := os.ReadFile(filepath.Join(s.task.Dir, "outputs", OutputResult, ResultFile))
	var res schemas.Result
	if err != nil || json.Unmarshal(b, &res) != nil {
		t.Fatal(err)
	}
	if v, _, err := report.Lookup(res, "difference.switch[a>b].ttft_ms.mean"); err != nil || v > -19.99 {
		t.Errorf("%v, %v", v, err)
	}
}

func TestRefusalFailsTheStage(t *testing.T) {
	s := newStage(t, map[string]any{"same_output": true})
	err := run(context.Background(), s.task)
	if err == nil || !strings.Contains(err.Error(), "refused") || len(s.findings) != 2 || s.findings[0].ID != compare.IDOutput || s.findings[0].Severity != schemas.SeverityError {
		t.Errorf("%v, %+v", err, s.findings)
	}
	if c := s.comparison(t); c.Comparable || len(c.Refusals) != 2 {
		t.Errorf("%+v", c)
	}
}

func TestWhatIsNoComparison(t *testing.T) {
	for text, change := range map[string]func(*stage){
		"name measure or simulate stages": func(s *stage) { s.task.Upstream = nil },
		`"size" is no parameter`:          func(s *stage) { s.task.Config["by"] = "size" },
		"by is missing":                   func(s *stage) { s.task.Experiment.Matrix["size"] = []any{1.0, 2.0} },
		`"half" is not a value of graphs`: func(s *stage) { s.task.Config["baseline"] = "half" },
		"unknown metric":                  func(s *stage) { s.task.Config["metrics"] = []any{"nothing"} },
		"nothing to compare":              func(s *stage) { s.task.Config["by"] = "stage" },
		"no such file": func(s *stage) {
			s.task.Upstream[0].Path = func(context.Context) (string, error) { return t.TempDir(), nil }
		},
	} {
		s := newStage(t, map[string]any{})
		change(s)
		if err := run(context.Background(), s.task); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestMissingFactsRefuse: a result whose records are gone is no reason to compare.
func TestMissingFactsRefuse(t *testing.T) {
	s := newStage(t, map[string]any{})
	s.task.Upstream = append(s.task.Upstream[:1], s.task.Upstream[2:]...)
	if err := run(context.Background(), s.task); err == nil || s.findings[0].ID != compare.IDFacts {
		t.Errorf("%v, %+v", err, s.findings)
	}
}
