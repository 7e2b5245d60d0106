package cli

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"assay/internal/report"
	"assay/internal/report/compare"
	"assay/schemas"
)

// emulatedMark stands wherever numbers of the emulated engine are printed.
const emulatedMark = "emulated"

// simulatedMark stands wherever numbers of a simulation are printed.
const simulatedMark = "simulated"

// fromSchedule is the headline TTFT of an open-loop measurement.
const fromSchedule = "ttft_from_schedule_ms"

// reportText is a run's report for people.
func reportText(rep schemas.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s of %s: %s", rep.RunID, rep.Experiment.Name, rep.Status)
	if rep.Emulated {
		fmt.Fprintf(&b, " (%s: latencies are made up)", emulatedMark)
	}
	if rep.Simulated {
		fmt.Fprintf(&b, " (%s: not all of it was measured)", simulatedMark)
	}
	fmt.Fprintf(&b, ", %s\n", short(rep.EndedAt.Sub(rep.StartedAt)))
	if len(rep.Experiment.Params) > 0 {
		fmt.Fprintf(&b, "parameters: %s\n", pointText(rep.Experiment.Params))
	}
	b.WriteString("\n" + stageTable(rep))
	if len(rep.Results) > 0 {
		b.WriteString(resultTable(rep) + panels(rep.Results))
	}
	if text := report.SwitchesText(rep.Results); text != "" {
		b.WriteString("\n" + text)
	}
	for _, r := range rep.Results {
		if c := r.Result.Comparison; c != nil {
			b.WriteString("\n" + r.Node + ": " + compare.Text(*c))
		}
	}
	if seen := report.ObservedText(rep.Results); seen != "" {
		b.WriteString("\n" + seen)
	}
	if len(rep.Claims) > 0 {
		b.WriteString("\n" + claimTable(rep.Claims))
	}
	if shown := notable(rep.Findings); len(shown) > 0 {
		b.WriteString("\nfindings\n" + findingsText(shown))
	}
	return b.String()
}

// notable leaves out what asks for nothing.
func notable(findings []schemas.Finding) []schemas.Finding {
	var list []schemas.Finding
	for _, f := range findings {
		if severityRank[f.Severity] <= severityRank[schemas.SeverityWarning] {
			list = append(list, f)
		}
	}
	return list
}

func stageTable(rep schemas.Report) string {
	t := newTable("stage", "kind", "trial", "status", "time", "reused from").right(4)
	var errs []string
	for _, s := range rep.Stages {
		t.row(s.Stage, s.Kind, s.Trial, string(s.Status), short(time.Duration(s.DurationMs*1e6)).String(), s.ReusedFrom)
		if s.Error != "" && s.Status != schemas.StageSkipped {
			errs = append(errs, fmt.Sprintf("%s: %s\n", s.Node, s.Error))
		}
	}
	out := t.String()
	if len(errs) > 0 {
		out += "\n" + strings.Join(errs, "")
	}
	return out
}

type latency struct{ heading, metric string }

// latencies are the distributions of the table. End-to-end time counts from
// where the headline TTFT does.
func latencies(r schemas.Result) []latency {
	e2e := "e2e_ms"
	if r.Headline == fromSchedule {
		e2e = "e2e_from_schedule_ms"
	}
	return []latency{{"TTFT", r.Headline}, {"TPOT", "tpot_ms"}, {"E2E", e2e}}
}

// panels are the charts of sweeps.
func panels(results []schemas.StageResult) string {
	var b strings.Builder
	for _, sr := range results {
		if p := sr.Result.Panel; p != nil {
			fmt.Fprintf(&b, "\n%s %s %s (%s)\n%s", sr.Stage, sr.Trial, pointText(sr.Point), simulatedMark, report.PanelText(*p))
		}
	}
	return b.String()
}

func withoutPanels(results []schemas.StageResult) []schemas.StageResult {
	return slices.DeleteFunc(slices.Clone(results), func(sr schemas.StageResult) bool { return sr.Result.Panel != nil || sr.Result.Comparison != nil })
}

func resultTable(rep schemas.Report) string {
	rep.Results = withoutPanels(rep.Results)
	if len(rep.Results) == 0 {
		return ""
	}
	t := newTable("measured", "trial", "point", "ok", "metric", "p50", "p95", "p99", "unit", "QoS", "req/s", "tokens/s", "").right(3, 5, 6, 7, 9, 10, 11)
	for _, sr := range rep.Results {
		res := sr.Result
		mark := marks(res)
		for i, l := range latencies(res) {
			m := res.Metrics[l.metric]
			cells := []string{"", "", "", "", l.heading, percentile(m, 50), percentile(m, 95), percentile(m, 99), m.Unit, "", "", "", ""}
			if i == 0 {
				cells[0], cells[1], cells[2] = sr.Stage, sr.Trial, pointText(sr.Point)
				cells[3] = fmt.Sprintf("%d/%d", res.Counts.OK, res.Counts.Issued)
				cells[9], cells[10], cells[11], cells[12] = mean(res.Metrics["qos"]), value(res.Values["requests_per_s"]), value(res.Values["output_tokens_per_s"]), mark
			}
			t.row(cells...)
			if i == 0 && m.Confidence > 0 {
				t.row("", "", "", "", "  within", interval(m, 50), interval(m, 95), interval(m, 99), m.Unit, "", "", "", "")
			}
		}
		for _, row := range partRows(res) {
			t.row(row...)
		}
	}
	return "\n" + t.String() + resultNotes(rep.Results)
}

// partRows are the parts of a result that stand below it: what a cap made requests
// wait, the steady window, and phases that are not mixed with the rest.
func partRows(res schemas.Result) [][]string {
	var out [][]string
	add := func(name string, counts schemas.Counts, heading string, m schemas.Summary, numbers ...string) {
		row := []string{"  " + name, "", "", fmt.Sprintf("%d/%d", counts.OK, counts.Issued), heading, percentile(m, 50), percentile(m, 95), percentile(m, 99), m.Unit}
		out = append(out, append(append(row, numbers...), make([]string, 4-len(numbers))...))
	}
	if q := res.Metrics["queue_ms"]; q.N > 0 {
		add("queued by the cap", res.Counts, "queue", q)
	}
	if w := res.Steady; w != nil && w.Unknown == "" {
		for i, l := range latencies(res) {
			name, numbers := "", []string(nil)
			if i == 0 {
				name = "steady, " + w.Source
				numbers = []string{mean(w.Metrics["qos"]), value(w.Values["requests_per_s"]), value(w.Values["output_tokens_per_s"])}
			}
			add(name, w.Counts, l.heading, w.Metrics[l.metric], numbers...)
		}
	}
	for _, p := range res.Phases {
		name := p.Phase
		if p.SwitchFrom != "" {
			name += " " + p.SwitchFrom + " > " + p.Model
		}
		add(name, p.Counts, "TTFT", p.Metrics[res.Headline])
	}
	return out
}

// interval is where a percentile lies, as far as so many samples tell.
func interval(m schemas.Summary, p float64) string {
	for _, x := range m.Percentiles {
		if x.P != p {
			continue
		}
		low, high := "?", "?"
		if x.Low != nil {
			low = number(*x.Low)
		}
		switch {
		case x.High != nil:
			high = number(*x.High)
		case x.HighAbove != nil:
			high = ">" + number(*x.HighAbove)
		}
		if low != "?" || high != "?" {
			return low + ".." + high
		}
	}
	return report.Unknown
}

func marks(res schemas.Result) string {
	var parts []string
	if res.Emulated {
		parts = append(parts, emulatedMark)
	}
	if res.Simulated {
		parts = append(parts, simulatedMark)
	}
	if !res.Comparable {
		parts = append(parts, fmt.Sprintf("speed %s: QoS not comparable", schemas.Decimal(res.Speed)))
	}
	return strings.Join(parts, ", ")
}

func resultNotes(results []schemas.StageResult) string {
	headlines := map[string]bool{}
	few, within := false, false
	for _, sr := range results {
		headlines[sr.Result.Headline] = true
		for _, l := range latencies(sr.Result) {
			within = within || sr.Result.Metrics[l.metric].Confidence > 0
			for _, p := range sr.Result.Metrics[l.metric].Percentiles {
				few = few || p.Few
			}
		}
	}
	var b strings.Builder
	if headlines[fromSchedule] {
		b.WriteString("TTFT and E2E count from the scheduled time of a request\n")
	}
	if within {
		b.WriteString("within: 95 % interval by order statistics; ? where there are too few samples for a bound\n")
	}
	b.WriteString(report.LeftOut(results))
	if few {
		b.WriteString("* fewer samples than the percentile needs\n")
	}
	return b.String()
}

// number prints four significant digits.
func number(f float64) string {
	switch a := math.Abs(f); {
	case a == 0:
		return "0"
	case a >= 1000:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(f, 'f', 1, 64)
	case a >= 10:
		return strconv.FormatFloat(f, 'f', 2, 64)
	}
	return strconv.FormatFloat(f, 'f', 3, 64)
}

func percentile(m schemas.Summary, p float64) string {
	for _, x := range m.Percentiles {
		if x.P != p {
			continue
		}
		mark := ""
		if x.Few {
			mark = "*"
		}
		switch {
		case x.Value != nil:
			return number(*x.Value) + mark
		case x.Above != nil:
			return ">" + number(*x.Above) + mark
		}
	}
	return report.Unknown
}

func mean(m schemas.Summary) string {
	if m.Mean == nil {
		return report.Unknown
	}
	return number(*m.Mean)
}

func value(v schemas.Value) string {
	if v.Value == nil {
		return report.Unknown
	}
	return number(*v.Value)
}

// pointText prints parameters, sorted by name.
func pointText(point map[string]any) string {
	names := make([]string, 0, len(point))
	for n := range point {
		names = append(names, n)
	}
	sort.Strings(names)
	parts := make([]string, len(names))
	for i, n := range names {
		v := point[n]
		if m, ok := v.(map[string]any); ok && m["path"] != nil {
			v = m["path"]
		}
		parts[i] = n + "=" + schemas.PlainText(v)
	}
	return strings.Join(parts, " ")
}

func claimTable(claims []schemas.ClaimResult) string {
	t := newTable("claim", "metric", "expected", "found", "")
	for _, c := range claims {
		found, verdict := report.Unknown, "holds"
		if c.Value != nil {
			found = number(*c.Value)
		}
		switch {
		case c.Value == nil:
			verdict = "no value: " + c.Reason
		case !c.Holds:
			verdict = "DOES NOT HOLD"
		}
		if !c.Gate {
			verdict += " (not gating)"
		}
		t.row(c.Name, c.Metric, fmt.Sprintf("%s ± %s", number(c.Expect), number(c.Tolerance)), found, verdict)
	}
	return t.String()
}
