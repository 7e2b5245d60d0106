package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/internal/report"
	"assay/pipeline"
	"assay/schemas"
)

// folded is the result of n requests that took e2e milliseconds each.
func folded(t *testing.T, n int, e2eMs int64, emulated bool) schemas.Result {
	t.Helper()
	var recs []schemas.RequestRecord
	at := func(ns int64) *int64 { return &ns }
	two := 2
	for i := range n {
		start := int64(i) * 1e6
		recs = append(recs, schemas.RequestRecord{
			Schema: schemas.RequestRecordV1, ID: "x", Index: i, Model: "m", API: "completions", AskedInputTokens: 1, AskedOutputTokens: 2, Held: true, Outcome: schemas.OutcomeOK, StampSource: "user",
			ScheduledNs: start, DispatchedNs: at(start), FirstTokenNs: at(start + 1e6), LastTokenNs: at(start + e2eMs*1e6), DoneNs: at(start + e2eMs*1e6), EndNs: start + e2eMs*1e6,
			Chunks: []schemas.Chunk{{AtNs: start + 1e6}, {AtNs: start + e2eMs*1e6}}, OutputTokens: &two, OutputTokensSource: "usage", FinishReason: "length",
		})
	}
	res, err := report.Fold(report.Records(recs), report.FoldOptions{OpenLoop: true, Emulated: emulated})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func upstream(t *testing.T, stage, trial string, point map[string]any, content []byte) pipeline.UpstreamOutput {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "result.json"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	return pipeline.UpstreamOutput{Stage: stage, Kind: "measure", Name: "result", Trial: schemas.Trial{ID: trial, Point: point}, Path: func(context.Context) (string, error) { return dir, nil }}
}

func encoded(t *testing.T, res schemas.Result) []byte {
	t.Helper()
	b, err := schemas.Encode(res)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFoldsTrialsOfEachPoint(t *testing.T) {
	slow, quick := map[string]any{"policy": "slow"}, map[string]any{"policy": "quick"}
	task := &pipeline.Task{Dir: t.TempDir(), Log: &bytes.Buffer{}, Upstream: []pipeline.UpstreamOutput{
		upstream(t, "replay", "t001", slow, encoded(t, folded(t, 20, 100, true))),
		upstream(t, "replay", "t002", quick, encoded(t, folded(t, 20, 10, true))),
		upstream(t, "replay", "t003", slow, encoded(t, folded(t, 20, 300, true))),
		{Stage: "replay", Kind: "measure", Name: "requests"}, // not a result
		{Stage: "warm", Kind: "warmup", Name: "result"},      // not measured
	}}
	if err := run(context.Background(), task); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(task.Dir, "outputs", OutputSummary, SummaryFile))
	if err != nil {
		t.Fatal(err)
	}
	var sum Summary
	if err := json.Unmarshal(b, &sum); err != nil {
		t.Fatal(err)
	}
	if len(sum.Groups) != 2 || !sum.Emulated || strings.Join(sum.Groups[0].Trials, " ") != "t001 t003" || strings.Join(sum.Groups[1].Trials, " ") != "t002" {
		t.Fatalf("groups: %+v", sum.Groups)
	}
	checked := 0
	for _, m := range sum.Groups[0].Metrics {
		switch m.Metric {
		case "e2e_ms.mean":
			checked++
			if m.Unit != "ms" || m.N != 2 || math.Abs(*m.Mean-200) > 1e-9 || math.Abs(*m.StdDev-100*math.Sqrt2) > 1e-9 || math.Abs(*m.Values[1].Value-300) > 1e-9 {
				t.Errorf("%+v, mean %v", m, *m.Mean)
			}
		case "qos.mean": // without a target there is none, and the summary says why
			checked++
			if m.N != 0 || m.Mean != nil || m.Values[0].Unknown == "" {
				t.Errorf("%+v", m)
			}
		}
	}
	if checked != 2 {
		t.Errorf("%d of 2 metrics are in the summary", checked)
	}
	table, err := os.ReadFile(filepath.Join(task.Dir, "outputs", OutputTable, TableFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"emulated", "t003 policy=slow", "too few samples", "ms"} {
		if !strings.Contains(string(table), want) {
			t.Errorf("table lacks %q:\n%s", want, table)
		}
	}
}

func TestRefusesWhatIsNoResult(t *testing.T) {
	for _, c := range []struct {
		name string
		up   []pipeline.UpstreamOutput
		want string
	}{
		{"nothing", nil, "no result to report"},
		{"not JSON", []pipeline.UpstreamOutput{upstream(t, "replay", "t001", nil, []byte("{"))}, "result of replay@t001"},
		{"another document", []pipeline.UpstreamOutput{upstream(t, "replay", "", nil, []byte(`{"schema":"assay/run/v1"}`))}, "result of replay: result document is invalid"},
		{"not there", []pipeline.UpstreamOutput{{Stage: "replay", Kind: "measure", Name: "result", Path: func(context.Context) (string, error) { return "", errors.New("damaged") }}}, "damaged"},
	} {
		task := &pipeline.Task{Dir: t.TempDir(), Log: &bytes.Buffer{}, Upstream: c.up}
		if err := run(context.Background(), task); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}
