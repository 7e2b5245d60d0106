package compare

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"assay/internal/report"
	"assay/schemas"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// records are n requests that took so many milliseconds each.
func records(n int, ms float64) []schemas.RequestRecord {
	var out []schemas.RequestRecord
	for i := range n {
		start := int64(i) * 1e9
		at := func(ms float64) *int64 { ns := start + int64(ms*1e6); return &ns }
		two := 2
		out = append(out, schemas.RequestRecord{
			Schema: schemas.RequestRecordV1, ID: fmt.Sprint("r", i), Index: i, Model: "m", API: "completions", AskedInputTokens: 5, AskedOutputTokens: 2, Held: true, Outcome: schemas.OutcomeOK, StampSource: "kernel",
			ScheduledNs: start, DispatchedNs: at(0), FirstTokenNs: at(ms / 2), LastTokenNs: at(ms), DoneNs: at(ms), EndNs: *at(ms), Chunks: []schemas.Chunk{{AtNs: *at(ms / 2)}, {AtNs: *at(ms)}},
			OutputTokens: &two, OutputTokensSource: "usage", FinishReason: "length", TextDigest: schemas.DigestOf([]byte(fmt.Sprint("text ", i))),
		})
	}
	return out
}

// schedule is what was planned for records.
func schedule(t testing.TB, recs []schemas.RequestRecord) []byte {
	t.Helper()
	var b bytes.Buffer
	line := func(v any) {
		text, err := schemas.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	line(schemas.Schedule{Schema: schemas.ScheduleV1, Requests: len(recs)})
	for _, r := range recs {
		line(schemas.ScheduledRequest{Index: r.Index, ID: r.ID, AtNs: r.ScheduledNs, Model: r.Model, InputTokens: r.AskedInputTokens, OutputTokens: r.AskedOutputTokens, PromptDigest: schemas.DigestOf([]byte(r.ID))})
	}
	return b.Bytes()
}

// trial is one of the stage replay under a policy.
func trial(t testing.TB, policy string, rep int, ms float64) Trial {
	t.Helper()
	recs := records(12, ms)
	res, err := report.Fold(report.Records(recs), report.FoldOptions{OpenLoop: true, SLO: &schemas.SLO{TTFTMs: 100, TPOTMs: 100}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := Requests(report.Records(recs), bytes.NewReader(schedule(t, recs)))
	if err != nil {
		t.Fatal(err)
	}
	facts := &Facts{Requests: list, Engines: []string{"node_0/decode/1"}, Conditions: []schemas.Condition{
		{Name: "engine", Value: "emulated"}, {Name: "started_at", Value: fmt.Sprint(policy, rep)}, {Name: "policy", Value: policy}, {Name: "device_ids", Unknown: "nobody says"},
		{Name: "warm_up", Value: map[string]any{"warm-" + policy: map[string]any{"count": 3.0}}},
	}}
	node := fmt.Sprintf("replay@%s%d", policy, rep)
	return Trial{Node: node, Stage: "replay", ID: node, Repetition: rep, Point: map[string]any{"policy": policy}, Result: res, Facts: func(context.Context) (*Facts, error) { return facts, nil }}
}

func factsOf(t testing.TB, tr *Trial) *Facts {
	t.Helper()
	f, err := tr.Facts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// three repetitions, in which the candidate takes 10, 20 and 30 per cent longer.
func three(t testing.TB) []Trial {
	return []Trial{trial(t, "old", 0, 100), trial(t, "new", 0, 110), trial(t, "old", 1, 100), trial(t, "new", 1, 120), trial(t, "new", 2, 260), trial(t, "old", 2, 200)}
}

func compared(t testing.TB, trials []Trial, o Options) schemas.Comparison {
	t.Helper()
	groups, err := ByParam(trials, "policy", "old", "")
	if err != nil {
		t.Fatal(err)
	}
	o.By = "policy"
	c, err := Compare(context.Background(), groups, o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := schemas.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := schemas.Validate("compare", b); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDifferencesOfPairs(t *testing.T) {
	c := compared(t, three(t), Options{Metrics: []string{"e2e_ms.mean", "qos.mean", "requests_per_s"}})
	if !c.Comparable || len(c.Groups) != 1 || c.Groups[0].Label != "" || len(c.Groups[0].Pairs) != 3 || c.Within != nil || strings.Join(c.Unknown, " ") != "device_ids" {
		t.Fatalf("%+v", c)
	}
	m := c.Groups[0].Metrics[0]
	var got []float64
	for _, r := range m.Rows {
		got = append(got, *r.Difference)
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })
	if d := cmp.Diff([]float64{10, 20, 30}, got, near); d != "" {
		t.Error(d)
	}
	// 10, 20, 30: a standard error of 5.7735, 4.30265 times.
	if m.N != 3 || m.As != schemas.DifferencePercent || m.Better != "lower" || math.Abs(*m.Mean-20) > 1e-6 || math.Abs(*m.Low-(20-24.8414)) > 1e-3 || math.Abs(*m.High-(20+24.8414)) > 1e-3 {
		t.Errorf("%+v: %v in [%v, %v]", m, *m.Mean, *m.Low, *m.High)
	}
	q := c.Groups[0].Metrics[1]
	if q.As != schemas.DifferencePoints || q.Better != "higher" || *q.BaselineMean > 1 {
		t.Errorf("%+v", q)
	}
	if p := c.Groups[0].Pairs[2]; p.Repetition != 2 || p.Requests != 12 || p.SameOutput != 12 || p.KnownOutput != 12 {
		t.Errorf("%+v", p)
	}
	text := Text(c)
	for _, want := range []string{"replay: new against old: 3 pairs, 12 requests each", "+20 %", "generated texts: 36 of 36", "device_ids"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	v := Result(c).Values["difference.e2e_ms.mean"]
	if v.Unit != "%" || math.Abs(*v.Value-20) > 1e-6 {
		t.Errorf("%+v", v)
	}
	if got, unit, err := report.Lookup(Result(c), "difference_low.e2e_ms.mean"); err != nil || unit != "%" || math.Abs(got+4.8414) > 1e-3 {
		t.Errorf("%v %s, %v", got, unit, err)
	}
}

// TestDoubts: a percentile of too few samples and a client that did not keep up are
// told beside the numbers.
func TestDoubts(t *testing.T) {
	trials := three(t)
	trials[1].Result.Client = &schemas.ClientVerdict{OK: "no", Reasons: []string{"it was late"}}
	c := compared(t, trials, Options{Metrics: []string{"e2e_ms.p99", "e2e_ms.mean"}})
	if len(c.Doubts) != 1 || c.Doubts[0] != "replay@new0: client_ok is no: it was late" || !c.Groups[0].Metrics[0].Few || c.Groups[0].Metrics[1].Few {
		t.Errorf("%v, %+v", c.Doubts, c.Groups[0].Metrics)
	}
	if text := Text(c); !strings.Contains(text, "doubt: replay@new0") || !strings.Contains(text, "fewer samples than the percentile needs") {
		t.Error(text)
	}
}

func TestOnePairHasNoInterval(t *testing.T) {
	c := compared(t, three(t)[:2], Options{})
	for _, m := range c.Groups[0].Metrics {
		if m.Mean == nil || m.Low != nil || !strings.Contains(m.Note, "two pairs or more") {
			t.Errorf("%+v", m)
		}
	}
	if len(c.Groups[0].Metrics) < 8 {
		t.Errorf("%d metrics by default", len(c.Groups[0].Metrics))
	}
}

func TestTolerances(t *testing.T) {
	limit := 25.0
	for name, o := range map[string]struct {
		o      Options
		within bool
	}{
		"within":              {Options{Metrics: []string{"e2e_ms.mean"}, Tolerance: &limit}, true},
		"outside":             {Options{Metrics: []string{"e2e_ms.mean"}, Limits: map[string]float64{"e2e_ms.mean": 19.9}}, false},
		"one of two":          {Options{Metrics: []string{"e2e_ms.mean", "makespan_s"}, Limits: map[string]float64{"makespan_s": 50}}, true},
		"worse only, slower":  {Options{Metrics: []string{"e2e_ms.mean"}, Limits: map[string]float64{"e2e_ms.mean": 1}, OnlyWorse: true}, false},
		"better is no change": {Options{Metrics: []string{"requests_per_s"}, Limits: map[string]float64{"requests_per_s": 1e-9}, OnlyWorse: true}, false},
	} {
		c := compared(t, three(t), o.o)
		if c.Within == nil || *c.Within != o.within || (len(Outside(c)) == 0) != o.within {
			t.Errorf("%s: %+v, %v", name, c.Groups[0].Metrics, Outside(c))
		}
	}
	// What got faster is within, when only what is worse counts.
	trials := []Trial{trial(t, "old", 0, 100), trial(t, "new", 0, 50), trial(t, "old", 1, 100), trial(t, "new", 1, 60)}
	zero := 0.0
	if c := compared(t, trials, Options{Metrics: []string{"e2e_ms.mean"}, Tolerance: &zero, OnlyWorse: true}); !*c.Within {
		t.Error("an improvement is outside of its tolerance")
	}
}

// TestRefusals changes one thing at a time of the candidate's last trial: each is
// refused, with its own reason, and no difference is stated.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Trial, *Facts)
		opts   Options
		id     string
		text   string
	}{
		"one request less":  {func(_ *Trial, f *Facts) { f.Requests = f.Requests[1:] }, Options{}, IDRequests, "12 requests and 11"},
		"another id":        {func(_ *Trial, f *Facts) { f.Requests[3].ID = "x" }, Options{}, IDRequests, "request r3 (index 3) stands against x"},
		"another model":     {func(_ *Trial, f *Facts) { f.Requests[3].Model = "n" }, Options{}, IDModels, "request r3: m and n"},
		"another prompt":    {func(_ *Trial, f *Facts) { f.Requests[3].Prompt = schemas.DigestOf([]byte("?")) }, Options{}, IDPrompts, "request r3"},
		"another length":    {func(_ *Trial, f *Facts) { f.Requests[3].Output, f.Requests[5].Output = 3, 4 }, Options{}, IDLengths, "asked for 5 + 2 tokens and for 5 + 3 (and 1 more of 12 requests)"},
		"another time":      {func(_ *Trial, f *Facts) { f.Requests[3].AtNs += 1e6 }, Options{}, IDTimes, "due after 3000 ms and 3001 ms"},
		"another answer":    {func(_ *Trial, f *Facts) { f.Requests[3].Generated = 1 }, Options{}, IDGenerated, "2 tokens and 1"},
		"an unknown answer": {func(_ *Trial, f *Facts) { f.Requests[3].Generated = -1 }, Options{}, IDGenerated, "an unknown number of"},
		"a failure":         {func(_ *Trial, f *Facts) { f.Requests[3].Outcome = schemas.OutcomeTimeout }, Options{}, IDFailed, "request r3 of the candidate ended with timeout"},
		"another text":      {func(_ *Trial, f *Facts) { f.Requests[3].Text = schemas.DigestOf([]byte("?")) }, Options{SameOutput: true}, IDOutput, "texts differ"},
		"an unknown text":   {func(_ *Trial, f *Facts) { f.Requests[3].Text = "" }, Options{SameOutput: true}, IDOutput, "not known"},
		"another engine":    {func(_ *Trial, f *Facts) { f.Engines = append(f.Engines, "node_0/decode/2") }, Options{}, IDEngines, "node_0/decode/1 node_0/decode/2"},
		"unknown engines":   {func(_ *Trial, f *Facts) { f.Engines = nil }, Options{}, IDEngines, "node_0/decode/1 and unknown"},
		"a condition":       {func(_ *Trial, f *Facts) { f.Conditions[0].Value = "aegaeon" }, Options{}, IDConditions, `engine: "emulated" and "aegaeon"`},
		"a condition less":  {func(_ *Trial, f *Facts) { f.Conditions = f.Conditions[1:] }, Options{}, IDConditions, `engine: "emulated" and not stated`},
		"known on one side": {func(_ *Trial, f *Facts) { f.Conditions[3] = schemas.Condition{Name: "device_ids", Value: "0"} }, Options{}, IDConditions, "device_ids: unknown (nobody says)"},
		"another rule":      {func(_ *Trial, f *Facts) { f.Conditions[4].Value = map[string]any{"w": map[string]any{"count": 4.0}} }, Options{}, IDConditions, "warm_up"},
		"not emulated":      {func(tr *Trial, _ *Facts) { tr.Result.Emulated = true }, Options{}, IDKind, "emulated: false and true"},
		"another target":    {func(tr *Trial, _ *Facts) { tr.Result.SLO = &schemas.SLO{TTFTMs: 1, TPOTMs: 100} }, Options{}, IDKind, "TTFT 100 ms"},
		"another speed":     {func(tr *Trial, _ *Facts) { tr.Result.Speed = 2 }, Options{}, IDKind, "speed: 1 and 2"},
		"unreadable": {func(tr *Trial, _ *Facts) {
			tr.Facts = func(context.Context) (*Facts, error) { return nil, errors.New("torn") }
		}, Options{}, IDFacts, "torn"},
	} {
		t.Run(name, func(t *testing.T) {
			trials := three(t)
			c.change(&trials[4], factsOf(t, &trials[4]))
			got := compared(t, trials, c.opts)
			if got.Comparable || len(got.Refusals) != 1 || got.Refusals[0].ID != c.id || !strings.Contains(got.Refusals[0].Message, c.text) || got.Refusals[0].Remedy == "" {
				t.Fatalf("%+v", got.Refusals)
			}
			if len(got.Groups[0].Metrics) > 0 || !strings.Contains(Text(got), "refused") || !strings.Contains(got.Refusals[0].Subject, "replay@new2 against replay@old2") {
				t.Errorf("%s", Text(got))
			}
		})
	}
}

// TestWhatMayDiffer: the compared parameter differs by right, and what is named.
func TestWhatMayDiffer(t *testing.T) {
	trials := three(t)
	f := factsOf(t, &trials[4])
	f.Conditions[0].Value, f.Engines = "aegaeon", nil
	if c := compared(t, trials, Options{Differ: []string{"engine", "engines"}}); !c.Comparable {
		t.Errorf("%+v", c.Refusals)
	}
}

func TestUnpairedAndNothing(t *testing.T) {
	c := compared(t, three(t)[:5], Options{})
	if c.Comparable || c.Refusals[0].ID != IDUnpaired || !strings.Contains(c.Refusals[0].Message, "replay@new2") {
		t.Errorf("%+v", c.Refusals)
	}
	c, err := Compare(context.Background(), nil, Options{})
	if err != nil || c.Comparable || c.Refusals[0].ID != IDNothing {
		t.Errorf("%+v, %v", c, err)
	}
	for _, by := range [][3]string{{"nothing", "", ""}, {"policy", "x", ""}, {"policy", "old", "old"}} {
		if _, err := ByParam(three(t), by[0], by[1], by[2]); err == nil {
			t.Errorf("%v is taken", by)
		}
	}
	if _, err := ByParam(three(t)[:1], "policy", "", ""); err == nil || !strings.Contains(err.Error(), "there is old") {
		t.Error(err)
	}
	if _, err := Compare(context.Background(), nil, Options{Metrics: []string{"ttft_ms.p59"}}); !errors.Is(err, report.ErrUnknownMetric) {
		t.Error(err)
	}
	if _, err := Compare(context.Background(), nil, Options{Metrics: []string{"qos.mean"}, Limits: map[string]float64{"e2e_ms.mean": 1}}); err == nil {
		t.Error("a limit of what is not compared is taken")
	}
}

// TestByRun: two runs are paired by stage, point and repetition; a run is not compared
// with itself, and other parameters than the compared one must be equal.
func TestByRun(t *testing.T) {
	side := func(run string, factor float64, params map[string]any) []Trial {
		var out []Trial
		for rep := range 2 {
			tr := trial(t, "old", rep, 100*factor)
			tr.Run, tr.Params = run, params
			out = append(out, tr)
		}
		return out
	}
	a, b := side("sha256:a", 1, map[string]any{"rate": 1.0, "size": 2.0}), side("sha256:b", 1.1, map[string]any{"rate": 2.0, "size": 2.0})
	run := func(a, b []Trial, o Options) schemas.Comparison {
		c, err := Compare(context.Background(), ByRun(a, b, "A", "B"), o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := run(a, b, Options{By: schemas.CompareRuns}); c.Comparable || c.Refusals[0].ID != IDParameters || c.Refusals[0].Message != "rate: 1 and 2" {
		t.Errorf("%+v", c.Refusals)
	}
	c := run(a, b, Options{By: "rate", Metrics: []string{"e2e_ms.mean"}})
	if !c.Comparable || math.Abs(*c.Groups[0].Metrics[0].Mean-10) > 1e-6 || c.Groups[0].Candidate != "B" {
		t.Errorf("%+v", c)
	}
	if c := run(a, a, Options{}); c.Comparable || c.Refusals[0].ID != IDSame {
		t.Errorf("%+v", c.Refusals)
	}
}

func TestByStageAndLabels(t *testing.T) {
	var trials []Trial
	for _, stage := range []string{"off", "on", "half"} {
		for _, size := range []float64{1, 2} {
			tr := trial(t, "old", 0, 100)
			tr.Stage, tr.Point, tr.Node = stage, map[string]any{"size": size}, fmt.Sprint(stage, size)
			trials = append(trials, tr)
		}
	}
	groups, err := ByStage(trials, "off", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(labels(groups), " | "); got != "on,size=1 | half,size=1 | on,size=2 | half,size=2" {
		t.Error(got)
	}
	c, err := Compare(context.Background(), groups, Options{By: schemas.CompareStages, Metrics: []string{"e2e_ms.mean"}})
	if err != nil || !c.Comparable {
		t.Fatalf("%+v, %v", c.Refusals, err)
	}
	if _, _, err := report.Lookup(Result(c), "difference[half,size=2].e2e_ms.mean"); err != nil {
		t.Error(err)
	}
}

func TestSVG(t *testing.T) {
	limit := 5.0
	c := compared(t, three(t), Options{Tolerance: &limit})
	var a, b bytes.Buffer
	if err := errors.Join(SVG(&a, c), SVG(&b, c)); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Fatalf("%v, or equal comparisons give different charts", err)
	}
	dec := xml.NewDecoder(&a)
	pairs := 0
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && slices.ContainsFunc(e.Attr, func(a xml.Attr) bool { return a.Name.Local == "class" && a.Value == "pair" }) {
			pairs++
		}
	}
	if want := 3 * len(c.Groups[0].Metrics); pairs != want {
		t.Errorf("%d pairs are drawn, want %d", pairs, want)
	}
}

// TestDifferenceProperties: a thing differs from itself by nothing, and swapping the
// sides turns the sign.
func TestDifferenceProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := rapid.Float64Range(1e-6, 1e6).Draw(rt, "a"), rapid.Float64Range(1e-6, 1e6).Draw(rt, "b")
		for _, as := range []string{schemas.DifferencePercent, schemas.DifferencePoints} {
			if d, ok := difference(as, a, a); !ok || d != 0 {
				rt.Errorf("%s: %v against itself is %v", as, a, d)
			}
			d, _ := difference(as, a, b)
			e, _ := difference(as, b, a)
			if (d > 0) != (b > a) || (d > 0 && e >= 0) {
				rt.Errorf("%s: %v, and the other way round %v", as, d, e)
			}
		}
		if d, _ := difference(schemas.DifferencePercent, a, b); math.Abs(a*(1+d/100)-b) > 1e-6*b+1e-9 {
			rt.Errorf("%v and %v per cent are not %v", a, d, b)
		}
	})
	if _, ok := difference(schemas.DifferencePercent, 0, 1); ok {
		t.Error("a percentage of nothing is stated")
	}
}

// FuzzSchedule: whatever stands in a schedule is read without a panic and within a
// bound.
func FuzzSchedule(f *testing.F) {
	recs := records(2, 1)
	f.Add(schedule(f, recs))
	f.Add([]byte("{}\n"))
	f.Add([]byte("request_id,first_token_ms,last_token_ms,tokens\na,b,10,20,5\nc,,,0\n"))
	f.Add([]byte(`{"schema":"assay/schedule/v1"}` + "\n" + `{"index":0,"at_ns":1e400}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := Requests(report.Records(recs), bytes.NewReader(b))
		if err == nil && len(list) != len(recs) {
			t.Fatalf("%d requests", len(list))
		}
		_ = Engines(b)
		rows, err := simulatedRows(bytes.NewReader(b))
		if err == nil && len(rows) > bytes.Count(b, []byte("\n")) {
			t.Fatalf("%d rows of %q", len(rows), b)
		}
	})
}

func TestSimulatedRows(t *testing.T) {
	rows, err := simulatedRows(strings.NewReader("request_id,first_token_ms,last_token_ms,tokens\na,b,10,20,5\nc,,,0\n"))
	if err != nil || len(rows) != 2 || rows[0].ID != "a,b" || rows[0].Generated != 5 || rows[0].Outcome != schemas.OutcomeOK || rows[1].Outcome == schemas.OutcomeOK {
		t.Errorf("%+v, %v", rows, err)
	}
	for _, bad := range []string{"", "x\n", "request_id,first_token_ms,last_token_ms,tokens\na,1,2\n", "request_id,first_token_ms,last_token_ms,tokens\na,1,2,x\n"} {
		if _, err := simulatedRows(strings.NewReader(bad)); err == nil && bad != "" {
			t.Errorf("%q is read", bad)
		}
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for text, want := range map[string]int{"": 0, "a": 1, "a\n": 1, "a\n\nb": 3, long + "\nb\n": 2} {
		n := 0
		for line, err := range lines(strings.NewReader(text), 1<<20) {
			if err != nil || strings.Contains(string(line), "\n") {
				t.Errorf("%v", err)
			}
			n++
		}
		if n != want {
			t.Errorf("%d lines, want %d", n, want)
		}
	}
	for _, err := range lines(strings.NewReader("ok\n"+long), 1000) {
		if err != nil {
			return
		}
	}
	t.Error("a line over the limit is read")
}

func TestEngines(t *testing.T) {
	for text, want := range map[string]string{
		`{"engines":[{"engine":1,"node_id":"node_0","type":"decode","busy":true},{"engine":0,"node_id":"node_0","type":"prefill"}]}`: "node_0/decode/1 node_0/prefill/0",
		`{"engines":{"b":1,"a":2}}`: "a b", `{}`: "", `null`: "", `{"engines":3}`: "",
	} {
		if got := strings.Join(Engines([]byte(text)), " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
