package report

import (
	"errors"
	"strings"
	"testing"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
)

func num(v float64) *float64 { return &v }

func tableResult(trial string, emulated bool) schemas.StageResult {
	sum := func(mean float64, few bool, above *float64) schemas.Summary {
		ps := []schemas.Percentile{{P: 50, Value: num(mean)}, {P: 95, Value: num(2 * mean)}, {P: 99, Value: num(3 * mean), Few: few}}
		if above != nil {
			ps[2] = schemas.Percentile{P: 99, Above: above, Few: few}
		}
		return schemas.Summary{Unit: "ms", N: 90, Censored: 2, Mean: num(mean), Percentiles: ps}
	}
	return schemas.StageResult{Node: "replay@" + trial, Stage: "replay", Trial: trial, Point: map[string]any{"rate": 2.0, "policy": "lru"}, Result: schemas.Result{
		Emulated: emulated, Headline: "ttft_from_schedule_ms", Comparable: !emulated, Counts: schemas.Counts{Issued: 92, OK: 90},
		Metrics: map[string]schemas.Summary{"ttft_from_schedule_ms": sum(12.345, true, nil), "tpot_ms": sum(1.5, false, nil), "e2e_from_schedule_ms": sum(1234.5, true, num(60000)), "qos": {Mean: num(0.9876)}},
		Values: map[string]schemas.Value{"requests_per_s": {Value: num(3.2)}, "output_tokens_per_s": {Value: num(4321.6)}, "makespan_s": {Value: num(28.1)},
			"error_rate": {Value: num(2.0 / 92)}, "slo_attainment": {Reason: "no slo was given"}},
	}}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := Table([]schemas.StageResult{tableResult("t001", true)}, &b); err != nil {
		t.Fatal(err)
	}
	want := `replay (emulated: latencies are made up)
  trial                            latency, ms          mean    p50     p95      p99    n  failed
  t001 policy=lru rate=2 emulated  TTFT from schedule  12.35  12.35   24.69    37.04*  90       2
                                   TPOT                1.500  1.500   3.000    4.500   90       2
                                   E2E from schedule    1234   1234    2469   >60000*  90       2

  trial                            ok/issued     qos  slo met  req/s  out tok/s  makespan s  errors
  t001 policy=lru rate=2 emulated      90/92  0.988!        —  3.200       4322       28.10    2.2%

* too few samples for this percentile at 99 % confidence
> the percentile falls among failed requests: it lies above this
! not at speed 1: not comparable with results of another speed
`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestTableGroupsByStageAndSaysEmulatedOnlyWhereItIs(t *testing.T) {
	other := tableResult("t002", false)
	other.Stage = "second"
	results := []schemas.StageResult{tableResult("t001", true), other, tableResult("t003", true)}
	var b strings.Builder
	if err := Table(results, &b); err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(b.String(), "\nsecond\n")
	if len(blocks) != 2 || !strings.Contains(blocks[0], "t001") || !strings.Contains(blocks[0], "t003") || strings.Contains(blocks[1], "emulated") {
		t.Errorf("blocks:\n%s", b.String())
	}
}

func TestTableOfNothing(t *testing.T) {
	var b strings.Builder
	if err := Table(nil, &b); err != nil || b.String() != "no results\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	b.Reset()
	if err := Table([]schemas.StageResult{{Stage: "s"}}, &b); err != nil || !strings.Contains(b.String(), "0/0") {
		t.Errorf("an empty result: %q, %v", b.String(), err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestTableReturnsTheWritersError(t *testing.T) {
	if err := Table(nil, full{}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
}
