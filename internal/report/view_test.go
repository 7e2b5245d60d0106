package report

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"assay/schemas"
)

// recorded is one log, small enough to calculate every tool's numbers by hand:
//
//	0: sent at 0 ms; a role-only event at 40, output at 100, 110 and 130, a finish of
//	   its own at 131, usage (4 tokens) at 135, [DONE] at 136.
//	1: due and queued at 900, sent at 1000; output at 1050, then an error event. Asked for 6 tokens.
//	2: sent at 1500, never answered, given up at 2000.
func recorded() []schemas.RequestRecord {
	at := func(ms int64) *int64 { return ptr(ms * 1e6) }
	base := schemas.RequestRecord{Schema: schemas.RequestRecordV1, Model: "m", API: "chat", AskedInputTokens: 10, AskedOutputTokens: 6, StampSource: "user", Chunks: []schemas.Chunk{}}
	a, b, c := base, base, base
	a.ID, a.Outcome, a.DispatchedNs, a.FirstEventNs, a.FirstTokenNs, a.FirstVisibleNs, a.LastTokenNs = "0", schemas.OutcomeOK, at(0), at(40), at(100), at(100), at(130)
	a.FinishNs, a.UsageNs, a.DoneNs, a.EndNs, a.OutputTokens, a.OutputTokensSource = at(131), at(135), at(136), 136e6, ptr(4), "usage"
	for _, ms := range []int64{100, 110, 130} {
		a.Chunks = append(a.Chunks, schemas.Chunk{AtNs: ms * 1e6, Bytes: 2})
	}
	b.ID, b.Index, b.Outcome, b.Error, b.ScheduledNs, b.QueuedNs, b.DispatchedNs = "1", 1, schemas.OutcomeSSEError, "out of memory", 900e6, at(900), at(1000)
	b.FirstEventNs, b.FirstTokenNs, b.FirstVisibleNs, b.LastTokenNs, b.EndNs = at(1050), at(1050), at(1050), at(1050), 1060e6
	b.Chunks = []schemas.Chunk{{AtNs: 1050e6, Bytes: 2}}
	c.ID, c.Index, c.Outcome, c.Error, c.ScheduledNs, c.DispatchedNs, c.EndNs = "2", 2, schemas.OutcomeTimeout, "request limit", 1500e6, at(1500), 2000e6
	return []schemas.RequestRecord{a, b, c}
}

func TestOneLogByEveryDefinition(t *testing.T) {
	type numbers struct {
		completed, tokens     int
		ttft, tpot, itl, e2el float64 // means
		nITL                  int
	}
	for tool, want := range map[string]numbers{
		"vllm":     {2, 4 + 1, (40 + 50) / 2.0, 91 / 3.0, (60 + 10 + 20 + 1) / 4.0, (131 + 50) / 2.0, 4},
		"sglang":   {2, 4 + 6, (100 + 50) / 2.0, (10 + 0) / 2.0, (10 + 20) / 2.0, (130 + 50) / 2.0, 2},
		"aiperf":   {1, 4, 100, 35 / 3.0, 35 / 3.0, 135, 1},
		"guidellm": {1, 4, 100, 32.5, 10, 136, 1},
	} {
		v, err := FoldView(tool, Records(recorded()), testSLO)
		if err != nil {
			t.Fatal(err)
		}
		got := numbers{v.Completed, int(v.OutputTokens), *v.Rows[0].Summary.Mean, *v.Rows[1].Summary.Mean, *v.Rows[2].Summary.Mean, *v.Rows[3].Summary.Mean, v.Rows[2].Summary.N}
		for _, pair := range [][2]float64{{got.ttft, want.ttft}, {got.tpot, want.tpot}, {got.itl, want.itl}, {got.e2el, want.e2el}} {
			if math.Abs(pair[0]-pair[1]) > 1e-9 {
				t.Errorf("%s: %+v, want %+v", tool, got, want)
				break
			}
		}
		if got.completed != want.completed || got.tokens != want.tokens || got.nITL != want.nITL || v.Failed != 3-want.completed {
			t.Errorf("%s: %+v, want %+v", tool, got, want)
		}
		if math.Abs(v.DurationS-2) > 1e-12 || math.Abs(v.RequestsPerS-float64(want.completed)/2) > 1e-12 || math.Abs(v.OutputPerS-float64(want.tokens)/2) > 1e-12 {
			t.Errorf("%s: rates %v %v over %v s", tool, v.RequestsPerS, v.OutputPerS, v.DurationS)
		}
	}
	// Ours, from the same records: one request ended properly; of its 4 tokens the
	// first event carried 2.
	res := mustFold(t, recorded(), FoldOptions{})
	checkNumbers(t, res, map[string]float64{"ttft_ms.mean": 75, "tpot_ms.mean": 15, "e2e_ms.mean": 136, "e2e_ms.censored": 2, "requests_per_s": 0.5, "queue_ms.mean": 100})
	if _, err := FoldView("nobody", Records(nil), nil); err == nil {
		t.Error("an unknown tool: no error")
	}
}

// Targets of 105 and 5 ms. Request 0, asked for 4 tokens: two at 100 ms (its first
// event), one at 110, one at 130, due at 105, 110, 115 and 120. The last is late: it
// credits 115 of 130. Requests 1 and 2 have other numbers of tokens than asked.
func TestAegaeonByHand(t *testing.T) {
	recs := recorded()
	recs[0].AskedOutputTokens = 4
	v, err := FoldView("aegaeon", Records(recs), &schemas.SLO{TTFTMs: 105, TPOTMs: 5})
	if err != nil {
		t.Fatal(err)
	}
	a := v.Aegaeon
	for name, pair := range map[string][2]float64{
		"mean qos": {*a.MeanQoS, 115 / 130.0 / 3}, "plotted qos": {*a.PlottedQoS, 115 / 130.0}, "within": {*a.TTFTWithinTarget, 1}, "p95": {*a.P95E2EMs, 130},
		"ttft": {*v.Rows[0].Summary.Mean, (100 + 105 + 105) / 3.0}, "per token": {*v.Rows[1].Summary.Mean, (100 + 0 + 10 + 20) / 4.0}, "e2e": {*v.Rows[2].Summary.Mean, 130},
		"demo ttft": {*v.Rows[3].Summary.Mean, (100 + 50) / 2.0}, "demo tokens": {float64(a.DemoTokens), 4}, "tokens/s": {v.OutputPerS, 2}, "req/s": {v.RequestsPerS, 0.5},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, pair[0], pair[1])
		}
	}
	if v.Completed != 1 || v.Failed != 2 || !strings.Contains(ViewText([]string{"m"}, []View{v}), "without them) 0.8846") {
		t.Errorf("%+v\n%s", v, ViewText([]string{"m"}, []View{v}))
	}
	// Without targets its defaults: everything that counts is on time.
	v, err = FoldView("aegaeon", Records(recs), nil)
	if err != nil || *v.Aegaeon.PlottedQoS != 1 || v.Aegaeon.SLO.TTFTMs != 10_000 {
		t.Errorf("%+v, %v", v.Aegaeon, err)
	}
	// No time from arrival to the last token, and nothing at all.
	at := recs[0].ScheduledNs
	recs[0].Chunks, recs[0].AskedOutputTokens, recs[0].OutputTokens = []schemas.Chunk{{AtNs: at}}, 1, nil
	recs[0].FirstEventNs, recs[0].FirstTokenNs, recs[0].FirstVisibleNs, recs[0].LastTokenNs = &at, &at, &at, &at
	v, err = FoldView("aegaeon", Records(recs[:1]), nil)
	if err != nil || v.Aegaeon.Undefined != 1 || v.Aegaeon.MeanQoS != nil || v.Aegaeon.P95E2EMs != nil {
		t.Errorf("%+v, %v", v.Aegaeon, err)
	}
}

func TestTheInterchangeFormatByHand(t *testing.T) {
	v, err := FoldView("vllm", Records(recorded()), &schemas.SLO{TTFTMs: 45, TPOTMs: 40})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := VLLMJSON(v, VLLMRun{Started: time.Date(2026, 5, 1, 2, 3, 4, 0, time.UTC), API: "chat", Models: []string{"m"}, MaxConcurrency: 1, Metadata: map[string]string{"run": "x", "completed": "no"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"date": "20260501-020304", "backend": "openai-chat", "num_prompts": 3.0, "request_rate": "inf", "max_concurrency": 1.0, "completed": 2.0, "failed": 1.0, "run": "x",
		"duration": 2.0, "total_input_tokens": 20.0, "total_output_tokens": 5.0, "request_throughput": 1.0, "output_throughput": 2.5, "total_token_throughput": 12.5,
		"request_goodput": 0.5, // request 0: 40 ms and 30.3 ms; request 1 is too slow
		// Events at 40, 100, 110, 130 and 131 ms in the first second, one at 1050 in the next.
		"max_output_tokens_per_s": 5.0, "max_concurrent_requests": 1.0,
		"mean_ttft_ms": 45.0, "median_ttft_ms": 45.0, "std_ttft_ms": 5.0, "p99_ttft_ms": 49.9, "p90_itl_ms": 20 + 0.7*40, "median_itl_ms": 15.0,
		"mean_client_queue_time_ms": 100.0, "mean_e2el_including_client_queue_ms": 150.0,
	} {
		w, isNumber := want.(float64)
		g, _ := got[name].(float64)
		if isNumber && math.Abs(g-w) > 1e-9 || !isNumber && got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
	if ttfts := got["ttfts"].([]any); len(ttfts) != 3 || ttfts[0] != 0.04 || ttfts[2] != 0.0 {
		t.Errorf("ttfts %v", ttfts)
	}
	if errs := got["errors"].([]any); errs[1] != "" || errs[2] != "request limit" {
		t.Errorf("errors %v", errs)
	}
	other, _ := FoldView("sglang", Records(recorded()), nil)
	if _, err := VLLMJSON(other, VLLMRun{}); err == nil {
		t.Error("another tool's view in vllm's form: no error")
	}
	if text := ViewText([]string{"measure t001"}, []View{v}); !strings.Contains(text, "by the definitions of vllm") || !strings.Contains(text, "completed 2, failed 1") {
		t.Error(text)
	}
}

// A forged record that claims to last for decades costs no more than another.
func TestALongRequestIsCheap(t *testing.T) {
	recs := recorded()[:1]
	late := int64(1) << 59
	recs[0].FinishNs, recs[0].DoneNs, recs[0].EndNs = &late, &late, late
	v, err := FoldView("vllm", Records(recs), nil)
	if err != nil || v.MaxConcurrent != 1 || v.MaxOutputPerS != 4 {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestCSV(t *testing.T) {
	var b strings.Builder
	w, err := NewCSVWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write("measure", "t001", Records(recorded())); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	get := func(row int, column string) string {
		for i, name := range rows[0] {
			if name == column {
				return rows[row][i]
			}
		}
		return "no column " + column
	}
	for _, c := range []struct {
		row          int
		column, want string
	}{{1, "ttft_ms", "100"}, {1, "e2e_ms", "136"}, {1, "output_tokens", "4"}, {2, "queue_ms", "100"}, {2, "outcome", "sse_error"}, {2, "e2e_ms", ""}, {3, "ttft_ms", ""}, {3, "error", "request limit"}, {3, "trial", "t001"}} {
		if got := get(c.row, c.column); got != c.want {
			t.Errorf("row %d, %s = %q, want %q", c.row, c.column, got, c.want)
		}
	}
}
