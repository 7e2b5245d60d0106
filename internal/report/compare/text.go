package compare

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"assay/schemas"
)

// differenceText is a difference with its sign and unit.
func differenceText(as string, d float64) string {
	sign := ""
	if d > 0 {
		sign = "+"
	}
	unit := " %"
	if as == schemas.DifferencePoints {
		unit = " points"
	}
	return sign + schemas.Rounded(d, 3) + unit
}

// Text writes a comparison for people: each group's means and differences, then its
// pairs one by one; or why there are none.
func Text(c schemas.Comparison) string {
	var b strings.Builder
	mark := ""
	if c.Emulated {
		mark = " (emulated: latencies are made up)"
	}
	if c.Simulated {
		mark = " (simulated: nothing was measured)"
	}
	fmt.Fprintf(&b, "compared by %s%s\n", c.By, mark)
	for _, r := range c.Runs {
		fmt.Fprintf(&b, "%s is run %s\n", r.Reference, r.Digest)
	}
	if !c.Comparable {
		b.WriteString("refused: the pairs are not alike\n")
		for _, f := range c.Refusals {
			fmt.Fprintf(&b, "  %s [%s]: %s\n    %s\n", f.Subject, f.ID, f.Message, f.Remedy)
		}
		return b.String()
	}
	for _, g := range c.Groups {
		fmt.Fprintf(&b, "%s: %d pairs, %d requests each\n", groupTitle(g), len(g.Pairs), g.Pairs[0].Requests)
		writeMeans(&b, c, g)
		writeRows(&b, g)
		writeOutputs(&b, g)
	}
	for _, d := range c.Doubts {
		fmt.Fprintf(&b, "doubt: %s\n", d)
	}
	if len(c.Unknown) > 0 {
		fmt.Fprintf(&b, "not known on either side, and so not compared: %s\n", strings.Join(c.Unknown, ", "))
	}
	return b.String()
}

func writeMeans(b *strings.Builder, c schemas.Comparison, g schemas.ComparisonGroup) {
	rows := [][]string{{"metric", g.Baseline, g.Candidate, "unit", "difference", fmt.Sprintf("%s %% interval", schemas.Rounded(c.Confidence*100, 3)), ""}}
	for _, m := range g.Metrics {
		diff, interval := "—", "—"
		if m.Mean != nil {
			diff = differenceText(m.As, *m.Mean)
		}
		if m.Low != nil && m.High != nil {
			interval = differenceText(m.As, *m.Low) + " to " + differenceText(m.As, *m.High)
		}
		rows = append(rows, []string{m.Metric, numberText(m.BaselineMean), numberText(m.CandidateMean), m.Unit, diff, interval, verdict(m)})
	}
	align(b, rows, "  ", 1, 7)
}

func verdict(m schemas.ComparisonMetric) string {
	var parts []string
	if m.Within != nil {
		word := "within"
		if !*m.Within {
			word = "OUTSIDE"
		}
		parts = append(parts, fmt.Sprintf("%s %s", word, strings.TrimPrefix(differenceText(m.As, *m.Tolerance), "+")))
	}
	if m.Few {
		parts = append(parts, "fewer samples than the percentile needs")
	}
	if m.Note != "" {
		parts = append(parts, m.Note)
	}
	return strings.Join(parts, "; ")
}

// writeRows lists the difference of each pair: a line a metric, a column a
// repetition, as many side by side as there is room for.
func writeRows(b *strings.Builder, g schemas.ComparisonGroup) {
	const columns = 10
	if len(g.Pairs) < 2 {
		return
	}
	for from := 0; from < len(g.Pairs); from += columns {
		to := min(from+columns, len(g.Pairs))
		head := []string{"difference in repetition"}
		for _, p := range g.Pairs[from:to] {
			head = append(head, fmt.Sprint(p.Repetition))
		}
		rows := [][]string{head}
		for _, m := range g.Metrics {
			row := []string{shortMetric(m.Metric)}
			for _, r := range m.Rows[from:to] {
				text := "—"
				if r.Difference != nil {
					text = differenceText(m.As, *r.Difference)
				}
				row = append(row, text)
			}
			rows = append(rows, row)
		}
		align(b, rows, "  ", 1)
	}
}

// shortMetric is a metric's name for people: of a pair of models the last parts of
// their names.
func shortMetric(name string) string {
	inner, ok := strings.CutPrefix(name, "switch[")
	end := strings.LastIndex(inner, "].")
	if !ok || end < 0 {
		return name
	}
	from, to, _ := strings.Cut(inner[:end], ">")
	last := func(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }
	return last(from) + " > " + last(to) + " " + inner[end+2:]
}

func writeOutputs(b *strings.Builder, g schemas.ComparisonGroup) {
	same, known := 0, 0
	for _, p := range g.Pairs {
		same, known = same+p.SameOutput, known+p.KnownOutput
	}
	if known > 0 {
		fmt.Fprintf(b, "  generated texts: %d of %d are the same\n", same, known)
	}
}

func numberText(v *float64) string {
	if v == nil {
		return "—"
	}
	return schemas.Rounded(*v, 4)
}

// align writes rows in columns: those named, from 1, to the left, the others to the
// right.
func align(b *strings.Builder, rows [][]string, indent string, left ...int) {
	var widths []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	isLeft := map[int]bool{}
	for _, l := range left {
		isLeft[l-1] = true
	}
	for _, r := range rows {
		line := indent
		for i, c := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i > 0 {
				line += "  "
			}
			if isLeft[i] {
				line += c + pad
			} else {
				line += pad + c
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
