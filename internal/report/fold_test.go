package report

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var testSLO = &schemas.SLO{TTFTMs: 200, TPOTMs: 20}

func mustFold(t testing.TB, recs []schemas.RequestRecord, opts FoldOptions) schemas.Result {
	t.Helper()
	res, err := Fold(Records(recs), opts)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func checkNumbers(t *testing.T, res schemas.Result, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		got, _, err := Lookup(res, name)
		if err != nil || math.Abs(got-v) > 1e-9 {
			t.Errorf("%s = %v, %v; want %v", name, got, err, v)
		}
	}
}

func TestFold(t *testing.T) {
	// Three requests, at 0, 10 and 20 ms, of 4 tokens: first after 100 ms, last
	// after 130 ms, end after 131 ms; m0 has two of them.
	recs := []schemas.RequestRecord{okRecord(0, 4), okRecord(1, 4), okRecord(2, 4)}
	res := mustFold(t, recs, FoldOptions{SLO: testSLO, OpenLoop: true, Expected: 3})
	checkNumbers(t, res, map[string]float64{
		"ttft_ms.mean": 99, "ttft_from_schedule_ms.p50": 100, "ttft_visible_ms.max": 99, "tpot_ms.mean": 10,
		"itl_chunk_ms.n": 9, "itl_token_ms.p99": 10, "max_gap_ms.mean": 10, "e2e_ms.mean": 130, "e2e_from_schedule_ms.mean": 131,
		"send_lag_ms.mean": 1, "qos.mean": 1, "error_rate": 0, "slo_attainment": 1, "token_slo_attainment": 1,
		"makespan_s": 0.151, "requests_per_s": 3 / 0.151, "goodput_rps": 3 / 0.151, "output_tokens_per_s": 12 / 0.151,
		"input_tokens_per_s": 24 / 0.151, "total_tokens_per_s": 36 / 0.151, "offered_rps": 100, "achieved_rps": 100,
		"cv_requests_over_models": 1.0 / 3, "cv_output_tokens_over_models": 1.0 / 3,
	})
	if res.Headline != "ttft_from_schedule_ms" || !res.Comparable || res.StampSource != "user" || len(res.Findings) != 0 {
		t.Errorf("headline %s comparable %v stamps %s findings %v", res.Headline, res.Comparable, res.StampSource, res.Findings)
	}
	if len(res.Models) != 2 || res.Models[0].Model != "m0" || res.Models[0].Counts.OK != 2 || res.Models[1].Metrics["qos"].N != 1 {
		t.Errorf("models: %+v", res.Models)
	}
	doc, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	if err := schemas.Validate("result", doc); err != nil {
		t.Error(err)
	}
}

func TestFoldFailuresAreCensored(t *testing.T) {
	recs := []schemas.RequestRecord{okRecord(0, 4), failedRecord(1, schemas.OutcomeTimeout, 5000), failedRecord(2, schemas.OutcomeRefused, 1)}
	res := mustFold(t, recs, FoldOptions{SLO: testSLO, OpenLoop: true})
	checkNumbers(t, res, map[string]float64{
		"error_rate": 2.0 / 3, "qos.mean": 1.0 / 3, "qos.n": 3, "ttft_ms.mean": 99, "ttft_ms.n": 1, "ttft_ms.censored": 2,
		"e2e_ms.censored": 2, "tpot_ms.censored": 2, "slo_attainment": 1.0 / 3, "token_slo_attainment": 4.0 / 12,
	})
	for name, above := range map[string]string{"ttft_ms.p50": "above 99 ms", "e2e_ms.p99": "above 130 ms"} {
		if _, _, err := Lookup(res, name); err == nil || !strings.Contains(err.Error(), above) {
			t.Errorf("%s: %v, want %q", name, err, above)
		}
	}
	// At p100 of the limits the bound is the longest wait.
	one := mustFold(t, recs[1:2], FoldOptions{})
	if p := one.Metrics["ttft_ms"].Percentiles[0]; p.Above == nil || *p.Above != 5000 || p.Value != nil {
		t.Errorf("only a timeout: %+v", p)
	}
	text := findingText(res, "result.failures")
	if !strings.Contains(text, "2 of 3 requests failed: refused 1, timeout 1") || !strings.Contains(text, "0.3333, and would be 1.0000") {
		t.Errorf("finding: %q", text)
	}
	if res.Counts.Outcomes[schemas.OutcomeTimeout] != 1 || res.Counts.OutputTokenSources["none"] != 2 {
		t.Errorf("counts %+v", res.Counts)
	}
}

func TestFoldHangIsACensoredGap(t *testing.T) {
	r := okRecord(0, 2)
	r.Outcome, r.DoneNs, r.EndNs = schemas.OutcomeTimeout, nil, *r.LastTokenNs+3000e6
	res := mustFold(t, []schemas.RequestRecord{r}, FoldOptions{})
	gaps := res.Metrics["itl_chunk_ms"]
	if gaps.N != 1 || gaps.Censored != 1 || *res.Metrics["max_gap_ms"].Percentiles[0].Above != 3000 {
		t.Errorf("gaps %+v, largest %+v", gaps, res.Metrics["max_gap_ms"])
	}
	if got := res.Metrics["ttft_ms"]; got.N != 1 || got.Censored != 0 {
		t.Errorf("its first token was seen: %+v", got)
	}
}

func findingText(res schemas.Result, id string) string {
	for _, f := range res.Findings {
		if f.ID == id {
			return f.Message
		}
	}
	return ""
}

func TestFoldFindings(t *testing.T) {
	est := okRecord(0, 4)
	for i := range est.Chunks {
		est.Chunks[i].Tokens = nil
	}
	est.OutputTokens, est.AskedOutputTokens = ptr(9), 9
	late := okRecord(1, 4)
	late.ScheduledNs -= 50e6
	other := okRecord(2, 4)
	other.TokenIDs, other.InputTokens, other.Held, other.AskedOutputTokens = []int{1, 2}, ptr(9), false, 5
	other.Reconnects = 1
	same := okRecord(3, 1)
	same.ScheduledNs = *same.LastTokenNs
	res := mustFold(t, []schemas.RequestRecord{est, late, other, same}, FoldOptions{SLO: testSLO, Speed: 20, Emulated: true, Expected: 5, Subject: "replay"})
	for _, id := range []string{"result.emulated", "result.speed", "result.records", "result.qos-undefined", "result.tokens-estimated",
		"result.tokens-disagree", "result.input-length", "result.output-length", "client.send-lag", "client.reconnects"} {
		if findingText(res, id) == "" {
			t.Errorf("no finding %s", id)
		}
	}
	if res.Comparable || res.Headline != "ttft_ms" || res.Metrics["qos"].N != 3 {
		t.Errorf("comparable %v headline %s qos %+v", res.Comparable, res.Headline, res.Metrics["qos"])
	}
}

func TestFoldEmpty(t *testing.T) {
	res := mustFold(t, nil, FoldOptions{SLO: testSLO})
	for _, name := range valueNames {
		if v, ok := res.Values[name]; !ok || (v.Value == nil && v.Reason == "") {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if findingText(res, "result.empty") == "" || res.Counts.Issued != 0 || res.StampSource != "unknown" {
		t.Errorf("%+v", res)
	}
	if cv := res.Values["cv_output_tokens_over_models"]; cv.Value == nil || *cv.Value != 0 || !strings.Contains(cv.Set, "by convention") {
		t.Errorf("cv of nothing: %+v", cv)
	}
}

func TestFoldWithoutSLO(t *testing.T) {
	res := mustFold(t, []schemas.RequestRecord{okRecord(0, 2)}, FoldOptions{})
	for _, name := range []string{"qos.mean", "slo_attainment", "goodput_rps", "token_slo_attainment"} {
		if v, _, err := Lookup(res, name); err == nil || !strings.Contains(err.Error(), "no slo was given") {
			t.Errorf("%s = %v, %v", name, v, err)
		}
	}
}

func TestFoldRefuses(t *testing.T) {
	twice := []schemas.RequestRecord{okRecord(0, 1), okRecord(0, 1)}
	if _, err := Fold(Records(twice), FoldOptions{}); err == nil || !strings.Contains(err.Error(), "appears twice") {
		t.Errorf("got %v", err)
	}
	early := okRecord(0, 2)
	early.DispatchedNs = ptr(*early.LastTokenNs + 1)
	if _, err := Fold(Records([]schemas.RequestRecord{early}), FoldOptions{}); err == nil {
		t.Error("a token before its request was accepted")
	}
	if _, err := Fold(Records(nil), FoldOptions{Speed: math.NaN()}); err == nil {
		t.Error("speed NaN was accepted")
	}
	if _, err := Fold(Records(nil), FoldOptions{SLO: &schemas.SLO{TTFTMs: math.Inf(1)}}); err == nil {
		t.Error("an infinite target was accepted")
	}
	broken := errors.New("broken")
	seq := func(yield func(schemas.RequestRecord, error) bool) { yield(schemas.RequestRecord{}, broken) }
	if _, err := Fold(seq, FoldOptions{}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestFoldIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var recs []schemas.RequestRecord
		for i := range rapid.IntRange(0, 30).Draw(t, "n") {
			if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
				o := rapid.SampledFrom(schemas.Outcomes[1:]).Draw(t, "outcome")
				recs = append(recs, failedRecord(i, o, rapid.Int64Range(0, 900).Draw(t, "waited")))
				continue
			}
			r := okRecord(i, rapid.IntRange(1, 12).Draw(t, "tokens"))
			r.ScheduledNs -= rapid.Int64Range(0, 300e6).Draw(t, "early")
			recs = append(recs, r)
		}
		opts := FoldOptions{SLO: testSLO, OpenLoop: true}
		want, err := Fold(Records(recs), opts)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rng.Shuffle(len(recs), func(i, j int) { recs[i], recs[j] = recs[j], recs[i] })
		got, err := Fold(Records(recs), opts)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
		if q := got.Metrics["qos"]; q.N > 0 && (*q.Min < 0 || *q.Max > 1 || q.N != len(recs)) {
			t.Fatalf("qos %+v of %d", q, len(recs))
		}
	})
}

func TestLookupNames(t *testing.T) {
	res := mustFold(t, []schemas.RequestRecord{okRecord(0, 2), okRecord(1, 2)}, FoldOptions{SLO: testSLO})
	for _, name := range MetricNames() {
		if _, _, err := Lookup(res, name); errors.Is(err, ErrUnknownMetric) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"qos.maen": `"qos.mean"`, "ttft_ms": `"ttft_ms.mean"`, "requests_per_sec": `"requests_per_s"`, "ttft_ms.p96": `"ttft_ms.p9`,
		"": "want METRIC.STATISTIC", "zzzzzzzzzzz": "want METRIC.STATISTIC",
	} {
		_, _, err := Lookup(res, name)
		if !errors.Is(err, ErrUnknownMetric) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	if _, unit, err := Lookup(res, "ttft_ms.p95"); err != nil || unit != "ms" {
		t.Errorf("%v %q", err, unit)
	}
}
