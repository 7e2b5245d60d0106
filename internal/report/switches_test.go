package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"assay/schemas"

	"pgregory.net/rapid"
)

// visited is a record of mode switch: it was sent after another model's, took ttft
// milliseconds to its first token and 10 to each of the three after it.
func visited(index int, phase, from, to string, ttft float64) schemas.RequestRecord {
	start := int64(index) * 1e9
	at := func(ms float64) *int64 { ns := start + int64(ms*1e6); return &ns }
	n := 4
	return schemas.RequestRecord{
		Schema: schemas.RequestRecordV1, ID: fmt.Sprint(index), Index: index, Model: to, API: "completions", AskedInputTokens: 1, AskedOutputTokens: n, Held: true, Outcome: schemas.OutcomeOK,
		StampSource: "user", SwitchFrom: from, Phase: phase, ScheduledNs: start, DispatchedNs: at(0), FirstTokenNs: at(ttft), LastTokenNs: at(ttft + 30), DoneNs: at(ttft + 30), EndNs: *at(ttft + 30),
		Chunks: []schemas.Chunk{{AtNs: *at(ttft)}, {AtNs: *at(ttft + 10)}, {AtNs: *at(ttft + 20)}, {AtNs: *at(ttft + 30)}}, OutputTokens: &n, OutputTokensSource: "usage", FinishReason: "length",
	}
}

// walk visits b, a, b, a, b with a steady request after each; the first meets weights
// that nothing warmed.
func walk() []schemas.RequestRecord {
	return []schemas.RequestRecord{
		visited(0, schemas.PhaseCold, "", "b", 5000), visited(1, schemas.PhaseSteady, "", "b", 21),
		visited(2, schemas.PhaseSwitch, "b", "a", 110), visited(3, schemas.PhaseSteady, "", "a", 10),
		visited(4, schemas.PhaseSwitch, "a", "b", 220), visited(5, schemas.PhaseSteady, "", "b", 20),
		visited(6, schemas.PhaseSwitch, "b", "a", 130), visited(7, schemas.PhaseSteady, "", "a", 10),
		visited(8, schemas.PhaseSwitch, "a", "b", 240), visited(9, schemas.PhaseSteady, "", "b", 20),
	}
}

func folded(t testing.TB, recs []schemas.RequestRecord) schemas.Result {
	t.Helper()
	res, err := Fold(Records(recs), FoldOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestSwitchMatrix(t *testing.T) {
	res := folded(t, walk())
	m := res.Switches
	if m == nil || strings.Join(m.Models, " ") != "a b" || len(m.Cells) != 2 || m.Excluded[schemas.PhaseCold] != 1 || m.Over != schemas.SwitchOverVisits {
		t.Fatalf("%+v", m)
	}
	for name, want := range map[string]float64{
		"switch[b>a].ttft_ms.mean": 120, "switch[b>a].ttft_ms.n": 2, "switch[b>a].ttft_ms.min": 110, "switch[a>b].ttft_ms.p50": 230, "switch[a>b].steady_ttft_ms.mean": 20,
		"switch[b>a].cost_ttft_ms.mean": 110, "switch[a>b].tpot_ms.mean": 10, "switch[a>b].e2e_ms.mean": 260, "switch.ttft_ms.mean": 175, "switch.cost_e2e_ms.max": 220, "switch.steady_e2e_ms.n": 4,
	} {
		if got, _, err := Lookup(res, name); err != nil || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v: %v", name, got, want, err)
		}
	}
	// Two visits, 110 and 130: 12.706 times their standard error of 10.
	if s := m.Cells[1].Metrics["ttft_ms"]; math.Abs(*s.Low-(120-127.062)) > 0.01 || math.Abs(*s.High-(120+127.062)) > 0.01 {
		t.Errorf("interval %v to %v", *s.Low, *s.High)
	}
	names, err := EachPair(res, "switch[*].cost_ttft_ms.mean")
	if err != nil || strings.Join(names, " ") != "switch[a>b].cost_ttft_ms.mean switch[b>a].cost_ttft_ms.mean" {
		t.Errorf("%v, %v", names, err)
	}
}

func TestSwitchNamesThatAreNone(t *testing.T) {
	res := folded(t, walk())
	for _, name := range []string{"switch.ttft_ms", "switch.nothing.mean", "switch[a>b].ttft_ms.p95", "switch[ab].ttft_ms.mean", "switch[a>b]ttft_ms.mean"} {
		if _, _, err := Lookup(res, name); !errors.Is(err, ErrUnknownMetric) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := Lookup(res, "switch[a>c].ttft_ms.mean"); err == nil || !strings.Contains(err.Error(), "this pair was not switched: the models are a, b") {
		t.Error(err)
	}
	plain := folded(t, []schemas.RequestRecord{visited(0, "", "", "a", 1)})
	if _, _, err := Lookup(plain, "switch.ttft_ms.mean"); plain.Switches != nil || err == nil || !strings.Contains(err.Error(), "no switches") {
		t.Error(err)
	}
	alone := folded(t, []schemas.RequestRecord{visited(0, schemas.PhaseSwitch, "b", "a", 1)})
	if _, _, err := Lookup(alone, "switch.steady_ttft_ms.mean"); err == nil || !strings.Contains(err.Error(), "steady = N") {
		t.Error(err)
	}
}

// TestSwitchMatrixCountsFailures: a request that failed is no zero, and is told of.
func TestSwitchMatrixCountsFailures(t *testing.T) {
	recs := walk()
	failed := &recs[6]
	failed.Outcome, failed.Error, failed.FirstTokenNs, failed.LastTokenNs, failed.DoneNs, failed.Chunks, failed.OutputTokens, failed.OutputTokensSource, failed.FinishReason = schemas.OutcomeTimeout, "request limit", nil, nil, nil, []schemas.Chunk{}, nil, "", ""
	m := folded(t, recs).Switches
	s := SwitchCell(m, "b", "a").Metrics["ttft_ms"]
	if s.N != 1 || s.Failed != 1 || *s.Mean != 110 || s.Low != nil || m.Excluded["failed"] != 1 {
		t.Errorf("%+v, %v", s, m.Excluded)
	}
	if text := SwitchText(m); !strings.Contains(text, "110.0 (1), 1 failed") || !strings.Contains(text, "1 that failed") || !strings.Contains(text, "not in host memory") {
		t.Error(text)
	}
}

func TestMeanSwitches(t *testing.T) {
	slow := walk()
	for i := range slow {
		if slow[i].Phase == schemas.PhaseSwitch {
			slow[i] = visited(i, schemas.PhaseSwitch, slow[i].SwitchFrom, slow[i].Model, 320)
		}
	}
	one, two := folded(t, walk()).Switches, folded(t, slow).Switches
	m := MeanSwitches([]*schemas.SwitchMatrix{one, nil, two})
	s := SwitchCell(m, "b", "a").Metrics["ttft_ms"]
	if m.Over != schemas.SwitchOverTrials || s.N != 2 || *s.Mean != 220 || m.Excluded[schemas.PhaseCold] != 2 || SwitchCell(m, "b", "a").Visits != 4 {
		t.Errorf("%+v", m)
	}
	two.Models = []string{"a", "c"}
	if MeanSwitches([]*schemas.SwitchMatrix{one, two}) != nil || MeanSwitches(nil) != nil || MeanSwitches([]*schemas.SwitchMatrix{one}) != one {
		t.Error("trials of other models are averaged")
	}
}

func TestSwitchSVG(t *testing.T) {
	m := folded(t, walk()).Switches
	list := []NamedMatrix{{"graphs <off>", m}, {"graphs on", m}}
	var a, b bytes.Buffer
	if err := errors.Join(SwitchSVG(&a, "Switch & steady", "ttft_ms", "emulated", list), SwitchSVG(&b, "Switch & steady", "ttft_ms", "emulated", list)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("equal matrices give different charts")
	}
	dec := xml.NewDecoder(&a)
	rects, text := 0, ""
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.StartElement:
			if x.Name.Local == "rect" {
				rects++
			}
		case xml.CharData:
			text += string(x) + "|"
		}
	}
	for _, want := range []string{"graphs <off>", "|120.0|", "|n = 2|", "emulated", "a to b: 230.0;"} {
		if !strings.Contains(text, want) {
			t.Errorf("the chart lacks %q:\n%s", want, text)
		}
	}
	if rects != 8 {
		t.Errorf("%d cells, want 8", rects)
	}
}

// TestSwitchProperties: every visit is in one cell or excluded, and a mean lies within
// its range and interval.
func TestSwitchProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var recs []schemas.RequestRecord
		before, visits := "", 0
		for range rapid.IntRange(1, 30).Draw(rt, "visits") {
			to := rapid.SampledFrom([]string{"a", "b", "c/d", "e>f"}).Filter(func(s string) bool { return s != before }).Draw(rt, "to")
			phase := rapid.SampledFrom([]string{schemas.PhaseSwitch, schemas.PhaseSwitch, schemas.PhaseCold}).Draw(rt, "phase")
			if before == "" {
				phase = schemas.PhaseCold
			}
			recs = append(recs, visited(len(recs), phase, before, to, rapid.Float64Range(0.1, 500).Draw(rt, "ttft")))
			for range rapid.IntRange(0, 2).Draw(rt, "steady") {
				recs = append(recs, visited(len(recs), schemas.PhaseSteady, "", to, rapid.Float64Range(0.1, 50).Draw(rt, "steady ttft")))
			}
			before, visits = to, visits+1
		}
		order := rapid.Permutation(recs).Draw(rt, "order")
		res, err := Fold(Records(order), FoldOptions{})
		if err != nil {
			rt.Fatal(err)
		}
		if res.Switches == nil {
			return
		}
		n := 0
		for _, k := range res.Switches.Excluded {
			n += k
		}
		for _, c := range res.Switches.Cells {
			n += c.Visits
			for name, s := range c.Metrics {
				if s.Mean == nil || *s.Mean < *s.Min-1e-9 || *s.Mean > *s.Max+1e-9 || (s.Low != nil && (*s.Low > *s.Mean || *s.High < *s.Mean)) {
					rt.Errorf("%s of %s to %s: %+v", name, c.From, c.To, s)
				}
				got, _, err := Lookup(res, SwitchName(c.From, c.To, name+".mean"))
				if err != nil || got != *s.Mean {
					rt.Errorf("%s: %v, %v", SwitchName(c.From, c.To, name), got, err)
				}
			}
		}
		if n != visits {
			rt.Errorf("%d visits are accounted for, of %d", n, visits)
		}
	})
}
