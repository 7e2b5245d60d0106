package report

import (
	"strings"
	"testing"

	"assay/schemas"

	"pgregory.net/rapid"
)

// mixed is one log, small enough to calculate by hand. All were asked for 4 tokens:
//
//	0: due at 0 ms, sent at 1, tokens at 100, 110, 120 and 130, end at 131
//	1: due at 10, sent at 11, one event with all tokens at 140, end at 141
//	2: due at 20, sent at 21, four events that one receive brought at 270, end at 271
//	3: due and sent at 30, no answer until its limit at 5030
func mixed() []schemas.RequestRecord {
	recs := []schemas.RequestRecord{okRecord(0, 4), okRecord(1, 4), okRecord(2, 4), failedRecord(3, schemas.OutcomeTimeout, 5000)}
	at := func(r *schemas.RequestRecord, ms int64, chunks ...schemas.Chunk) {
		ns := ms * 1e6
		for i := range chunks {
			chunks[i].AtNs = ns
		}
		r.Chunks, r.FirstTokenNs, r.FirstVisibleNs, r.LastTokenNs, r.DoneNs, r.EndNs = chunks, &ns, &ns, &ns, ptr(ns+1e6), ns+1e6
	}
	at(&recs[1], 140, schemas.Chunk{Bytes: 12, Tokens: ptr(4)})
	since := ptr(int64(200e6))
	one := schemas.Chunk{Bytes: 3, Tokens: ptr(1), SinceNs: since}
	at(&recs[2], 270, one, one, one, schemas.Chunk{Bytes: 3, Tokens: ptr(1)})
	return recs
}

func TestTokensAtOneTimeHaveNoPace(t *testing.T) {
	c := course(t, mixed(), LookOptions{})
	// Targets of 200 and 20 ms. Request 1 has its tokens 130 ms after it was due, all
	// before their deadlines; request 2 has its first at 250, late, and the others with
	// it: it credits nothing.
	res := mustFold(t, mixed(), FoldOptions{SLO: testSLO, OpenLoop: true, Expected: 4, Course: &c})
	checkNumbers(t, res, map[string]float64{
		"tpot_ms.mean": 10, "tpot_ms.n": 1, "tpot_ms.censored": 1, "itl_chunk_ms.n": 3, "itl_chunk_ms.mean": 10, "max_gap_ms.n": 1, "max_gap_ms.mean": 10,
		"ttft_from_schedule_ms.mean": (100 + 130 + 250) / 3.0, "ttft_ms.mean": (99 + 129 + 249) / 3.0, "e2e_from_schedule_ms.mean": (131 + 131 + 251) / 3.0,
		"qos.mean": (1 + 1 + 0 + 0) / 4.0, "qos.n": 4, "slo_attainment": 2 / 4.0, "goodput_rps": 2 / 5.03, "requests_per_s": 3 / 5.03, "error_rate": 1 / 4.0,
		// Deadlines of 200, 220, 240 and 260 ms: of request 2 the last token keeps its own.
		"token_slo_attainment": 9 / 16.0, "output_tokens_per_s": 12 / 5.03, "makespan_s": 5.03,
		// Little: the time in flight of all requests over the length of the run.
		"mean_in_flight": (0.130 + 0.130 + 0.250 + 5) / 5.03, "peak_in_flight": 4,
	})
	for name, want := range map[string]int{"tpot_ms": 2, "itl_chunk_ms": 1, "max_gap_ms": 1, "ttft_ms": 0, "e2e_ms": 0} {
		s := res.Metrics[name]
		if s.Unknown != want || want > 0 && !strings.Contains(s.Note, "came at one time: ") {
			t.Errorf("%s: %d left out, want %d; note %q", name, s.Unknown, want, s.Note)
		}
	}
	// Of the two samples of TPOT one is a failure, above every value.
	if _, _, err := Lookup(res, "tpot_ms.p50"); err == nil || !strings.Contains(err.Error(), "above 10 ms") {
		t.Errorf("p50 of TPOT: %v", err)
	}
	// Only requests without a pace: nothing is 0.
	res = mustFold(t, mixed()[1:3], FoldOptions{SLO: testSLO})
	for _, name := range []string{"tpot_ms", "itl_chunk_ms", "itl_token_ms", "max_gap_ms"} {
		s := res.Metrics[name]
		if s.N != 0 || s.Mean != nil || s.Min != nil || s.Percentiles[0].Value != nil || s.Note == "" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	var text strings.Builder
	if err := Table([]schemas.StageResult{{Stage: "load", Trial: "t001", Result: res}}, &text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "load t001: TPOT and the gaps leave out 2 of 2 requests") || !strings.Contains(text.String(), "TPOT             —") {
		t.Error(text.String())
	}
}

func TestViewsSayWhereTheyCountZeros(t *testing.T) {
	for tool, itl := range map[string]int{"vllm": 6, "sglang": 6, "aiperf": 3, "guidellm": 3, "aegaeon": 12} {
		v, err := FoldView(tool, Records(mixed()), testSLO)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range v.Rows {
			if (row.Name == "itl" || row.Name == "per_token") && (row.Summary.N != itl || *row.Summary.Min != 0) {
				t.Errorf("%s: %d gaps, the least %v; it has %d and zeros among them", tool, row.Summary.N, *row.Summary.Min, itl)
			}
		}
		if text := ViewText([]string{"load"}, []View{v}); v.AtOneTime != 2 || !strings.Contains(text, "at one time: 2") {
			t.Errorf("%s: %d\n%s", tool, v.AtOneTime, text)
		}
	}
}

// TestCountsAddUp folds any mix of requests: nothing is lost between outcomes,
// models, samples and what was left out, and time in flight obeys Little's law.
func TestCountsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var recs []schemas.RequestRecord
		inFlight := 0.0
		for i := range rapid.IntRange(1, 40).Draw(t, "n") {
			var r schemas.RequestRecord
			switch rapid.IntRange(0, 3).Draw(t, "sort") {
			case 0:
				r = failedRecord(i, schemas.OutcomeTimeout, rapid.Int64Range(1, 900).Draw(t, "waited"))
			case 1:
				r = mixed()[2]
				r.ID, r.Index = failedRecord(i, schemas.OutcomeReset, 1).ID, i
			default:
				r = okRecord(i, rapid.IntRange(1, 9).Draw(t, "tokens"))
			}
			inFlight += float64(r.EndNs-*r.DispatchedNs) / 1e9
			recs = append(recs, r)
		}
		c, err := Look(Records(recs), LookOptions{})
		if err != nil {
			t.Fatal(err)
		}
		res, err := Fold(Records(recs), FoldOptions{SLO: testSLO, OpenLoop: true, Course: &c})
		if err != nil {
			t.Fatal(err)
		}
		sum, several := 0, 0
		for _, n := range res.Counts.Outcomes {
			sum += n
		}
		for i := range recs {
			if recs[i].Outcome == schemas.OutcomeOK && *recs[i].OutputTokens > 1 || recs[i].Outcome != schemas.OutcomeOK {
				several++
			}
		}
		if s := res.Metrics["tpot_ms"]; s.N+s.Censored+s.Unknown != several {
			t.Fatalf("TPOT: %d values, %d censored, %d left out, of %d requests", s.N, s.Censored, s.Unknown, several)
		}
		if s := res.Metrics["e2e_ms"]; sum != len(recs) || s.N != res.Counts.OK || s.N+s.Censored != len(recs) {
			t.Fatalf("%d outcomes, %d E2E and %d censored of %d", sum, s.N, s.Censored, len(recs))
		}
		met, mean := *res.Values["slo_attainment"].Value, *res.Values["mean_in_flight"].Value
		if got, want := *res.Values["goodput_rps"].Value, met*float64(len(recs))/c.Full.Seconds(); got < want*(1-1e-9) || got > want*(1+1e-9) {
			t.Fatalf("goodput %v, want %v", got, want)
		}
		if want := inFlight / c.Full.Seconds(); mean < want*(1-1e-9) || mean > want*(1+1e-9) {
			t.Fatalf("mean in flight %v, by Little's law %v", mean, want)
		}
	})
}
