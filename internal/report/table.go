package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"assay/schemas"
)

// Marks of a percentile.
const (
	markFew   = "*"
	markAbove = ">"
)

// Unknown stands in tables for a number that there is not.
const Unknown = "—"

// Table writes results as aligned text, one block a stage: latencies, then rates,
// with units and a legend of the marks that were used. Blocks of the emulated
// engine say so.
func Table(results []schemas.StageResult, w io.Writer) error {
	var b strings.Builder
	marks := map[string]bool{}
	for i, stage := range stagesOf(results) {
		if i > 0 {
			b.WriteByte('\n')
		}
		writeStage(&b, stage, marks)
	}
	if len(results) == 0 {
		b.WriteString("no results\n")
	}
	writeLegend(&b, marks)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// stagesOf groups results by stage, in order of first appearance.
func stagesOf(results []schemas.StageResult) [][]schemas.StageResult {
	at := map[string]int{}
	var out [][]schemas.StageResult
	for _, r := range results {
		i, ok := at[r.Stage]
		if !ok {
			i = len(out)
			at[r.Stage] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

func writeStage(b *strings.Builder, results []schemas.StageResult, marks map[string]bool) {
	if results[0].Result.Panel != nil {
		for _, r := range results {
			fmt.Fprintf(b, "%s %s (simulated: nothing was measured)\n%s", r.Stage, trialLabel(r), PanelText(*r.Result.Panel))
		}
		return
	}
	title := results[0].Stage
	for _, r := range results {
		if r.Result.Emulated {
			title += " (emulated: latencies are made up)"
			break
		}
		if r.Result.Simulated {
			title += " (simulated: nothing was measured)"
			break
		}
	}
	fmt.Fprintf(b, "%s\n", title)
	latency := grid{left: 2}
	latency.row("trial", "latency, ms", "mean", "p50 ", "p95 ", "p99 ", "n", "failed")
	rates := grid{left: 1}
	rates.row("trial", "ok/issued", "qos", "slo met", "req/s", "out tok/s", "makespan s", "errors")
	for _, r := range results {
		label := trialLabel(r)
		rates.row(append([]string{label}, rateCells(r.Result, marks)...)...)
		if w := r.Result.Steady; w != nil && w.Unknown == "" {
			rates.row(append([]string{"  steady, " + w.Source}, windowCells(*w)...)...)
		}
		for _, m := range latencyRows(r.Result) {
			latency.row(append([]string{label, m.title}, summaryCells(r.Result.Metrics[m.name], marks)...)...)
			label = ""
		}
	}
	latency.write(b, "  ")
	b.WriteByte('\n')
	rates.write(b, "  ")
	b.WriteString(LeftOut(results))
	b.WriteString(SwitchesText(results))
	writeClient(b, results)
}

// LeftOut says of results how many requests have no pace between their tokens, "" if
// all have one. Each line ends with a line end.
func LeftOut(results []schemas.StageResult) string {
	var b strings.Builder
	for _, r := range results {
		if s := r.Result.Metrics["tpot_ms"]; s.Unknown > 0 {
			fmt.Fprintf(&b, "%s %s: TPOT and the gaps leave out %d of %d requests that ended properly: all their tokens came at one time\n", r.Stage, trialLabel(r), s.Unknown, r.Result.Counts.OK)
		}
	}
	return b.String()
}

func trialLabel(r schemas.StageResult) string {
	label := r.Trial
	if label == "" {
		label = "run"
	}
	for _, k := range sortedNames(r.Point) {
		label += fmt.Sprintf(" %s=%s", k, schemas.PlainText(r.Point[k]))
	}
	if r.Result.Emulated {
		label += " emulated"
	}
	if r.Result.Simulated {
		label += " simulated"
	}
	return label
}

type latencyRow struct{ title, name string }

func latencyRows(res schemas.Result) []latencyRow {
	ttft := latencyRow{"TTFT from schedule", "ttft_from_schedule_ms"}
	e2e := latencyRow{"E2E from schedule", "e2e_from_schedule_ms"}
	if res.Headline == "ttft_ms" {
		ttft, e2e = latencyRow{"TTFT", "ttft_ms"}, latencyRow{"E2E", "e2e_ms"}
	}
	return []latencyRow{ttft, {"TPOT", "tpot_ms"}, e2e}
}

func summaryCells(s schemas.Summary, marks map[string]bool) []string {
	cells := []string{number(s.Mean)}
	for _, p := range []float64{50, 95, 99} {
		cells = append(cells, percentileCell(s, p, marks))
	}
	return append(cells, strconv.Itoa(s.N), strconv.Itoa(s.Censored))
}

// percentileCell keeps the mark's place free, so that digits stand in line.
func percentileCell(s schemas.Summary, p float64, marks map[string]bool) string {
	for _, row := range s.Percentiles {
		if row.P != p {
			continue
		}
		text := number(row.Value)
		if row.Above != nil {
			text = markAbove + number(row.Above)
			marks[markAbove] = true
		}
		if row.Few && (row.Value != nil || row.Above != nil) {
			marks[markFew] = true
			return text + markFew
		}
		return text + " "
	}
	return Unknown + " "
}

func rateCells(res schemas.Result, marks map[string]bool) []string {
	qos := number(res.Metrics["qos"].Mean)
	if !res.Comparable && qos != Unknown {
		qos += "!"
		marks["!"] = true
	}
	cells := []string{fmt.Sprintf("%d/%d", res.Counts.OK, res.Counts.Issued), qos, share(res.Values["slo_attainment"])}
	for _, name := range []string{"requests_per_s", "output_tokens_per_s", "makespan_s"} {
		cells = append(cells, number(res.Values[name].Value))
	}
	return append(cells, share(res.Values["error_rate"]))
}

// windowCells stand under those of the full run.
func windowCells(w schemas.WindowResult) []string {
	cells := []string{fmt.Sprintf("%d/%d", w.Counts.OK, w.Counts.Issued), number(w.Metrics["qos"].Mean), share(w.Values["slo_attainment"])}
	for _, name := range []string{"requests_per_s", "output_tokens_per_s", "window_s"} {
		cells = append(cells, number(w.Values[name].Value))
	}
	return append(cells, share(w.Values["error_rate"]))
}

func share(v schemas.Value) string {
	if v.Value == nil {
		return Unknown
	}
	return strconv.FormatFloat(*v.Value*100, 'f', 1, 64) + "%"
}

// number prints a value with about four digits.
func number(v *float64) string {
	if v == nil {
		return Unknown
	}
	digits := 3
	switch a := math.Abs(*v); {
	case a >= 1000:
		digits = 0
	case a >= 100:
		digits = 1
	case a >= 10:
		digits = 2
	}
	return strconv.FormatFloat(*v, 'f', digits, 64)
}

func writeLegend(b *strings.Builder, marks map[string]bool) {
	legend := []struct{ mark, text string }{
		{markFew, "too few samples for this percentile at 99 % confidence"},
		{markAbove, "the percentile falls among failed requests: it lies above this"},
		{"!", "not at speed 1: not comparable with results of another speed"},
	}
	first := true
	for _, l := range legend {
		if !marks[l.mark] {
			continue
		}
		if first {
			b.WriteByte('\n')
			first = false
		}
		fmt.Fprintf(b, "%s %s\n", l.mark, l.text)
	}
}
