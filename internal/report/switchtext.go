package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"assay/schemas"
)

// switchTitles say what the quantities of a matrix are.
var switchTitles = map[string]string{
	"ttft_ms": "switch TTFT, ms", "tpot_ms": "switch TPOT, ms", "e2e_ms": "switch E2E, ms",
	"steady_ttft_ms": "steady TTFT after a switch, ms", "steady_tpot_ms": "steady TPOT after a switch, ms", "steady_e2e_ms": "steady E2E after a switch, ms",
	"cost_ttft_ms": "switch TTFT beyond the steady one, ms", "cost_e2e_ms": "switch E2E beyond the steady one, ms",
}

// ShortNames are the last parts of models' names where those tell them apart, else
// the names.
func ShortNames(models []string) map[string]string {
	short, seen := map[string]string{}, map[string]int{}
	for _, m := range models {
		short[m] = m[strings.LastIndexByte(m, '/')+1:]
		seen[short[m]]++
	}
	for _, m := range models {
		if seen[short[m]] > 1 || short[m] == "" {
			short[m] = m
		}
	}
	return short
}

// SwitchText writes a matrix as tables, one a quantity: rows are the model before,
// columns the one after, each cell the mean with half its interval and the count.
func SwitchText(m *schemas.SwitchMatrix) string {
	var b strings.Builder
	short := ShortNames(m.Models)
	for _, metric := range SwitchMetrics {
		if _, ok := m.All[metric]; !ok {
			continue
		}
		fmt.Fprintf(&b, "%s: from (row) to (column), mean ± half of the %s %% interval (%s)\n", switchTitles[metric], schemas.Rounded(m.Confidence*100, 3), m.Over)
		g := grid{left: 1}
		head := []string{""}
		for _, to := range m.Models {
			head = append(head, short[to])
		}
		g.row(head...)
		for _, from := range m.Models {
			row := []string{short[from]}
			for _, to := range m.Models {
				row = append(row, switchCellText(SwitchCell(m, from, to), metric))
			}
			g.row(row...)
		}
		g.write(&b, "  ")
	}
	if text := excludedText(m); text != "" {
		b.WriteString(text + "\n")
	}
	return b.String()
}

func switchCellText(c *schemas.SwitchCell, metric string) string {
	if c == nil {
		return "·"
	}
	s, ok := c.Metrics[metric]
	if !ok || s.Mean == nil {
		return fmt.Sprintf("%s (0)", Unknown)
	}
	text := number(s.Mean)
	if s.Low != nil && s.High != nil {
		half := (*s.High - *s.Low) / 2
		text += " ± " + number(&half)
	}
	text += fmt.Sprintf(" (%d)", s.N)
	if s.Failed > 0 {
		text += fmt.Sprintf(", %d failed", s.Failed)
	}
	return text
}

// excludedWords say what visits met that are not in a matrix.
var excludedWords = map[string]string{
	schemas.PhaseStartup: "of a service that had just started", schemas.PhaseCold: "that met weights not in host memory or never used before",
	excludedFirst: "that followed no other model", excludedFailed: "that failed (they count in the cells as failed)",
}

func excludedText(m *schemas.SwitchMatrix) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(m.Excluded)) {
		words := excludedWords[what]
		if words == "" {
			words = "of phase " + what
		}
		parts = append(parts, fmt.Sprintf("%d %s", m.Excluded[what], words))
	}
	if len(parts) == 0 {
		return ""
	}
	return "left out: visits " + strings.Join(parts, ", ") + "; see phases"
}

// SwitchesText writes the matrices of results: of each stage and point of the matrix
// one, over its trials where there are several. "" where nothing was switched.
func SwitchesText(results []schemas.StageResult) string {
	var b strings.Builder
	for _, g := range SwitchGroups(results) {
		fmt.Fprintf(&b, "%s%s\n%s", g.Name, emulatedWords(g.Emulated), SwitchText(g.Matrix))
	}
	return b.String()
}

// SwitchGroup is the matrix of a stage at a point, over trials.
type SwitchGroup struct {
	NamedMatrix
	Emulated bool
}

// SwitchGroups are in order of first appearance.
func SwitchGroups(results []schemas.StageResult) []SwitchGroup {
	var out []SwitchGroup
	var lists [][]*schemas.SwitchMatrix
	at := map[string]int{}
	for _, r := range results {
		if r.Result.Switches == nil {
			continue
		}
		name := r.Stage
		for _, k := range sortedNames(r.Point) {
			name += fmt.Sprintf(" %s=%s", k, schemas.PlainText(r.Point[k]))
		}
		i, ok := at[name]
		if !ok {
			i = len(out)
			at[name] = i
			out, lists = append(out, SwitchGroup{NamedMatrix: NamedMatrix{Name: name}}), append(lists, nil)
		}
		out[i].Emulated = out[i].Emulated || r.Result.Emulated
		lists[i] = append(lists[i], r.Result.Switches)
	}
	kept := out[:0]
	for i, g := range out {
		if g.Matrix = MeanSwitches(lists[i]); g.Matrix != nil {
			kept = append(kept, g)
		}
	}
	return kept
}

func emulatedWords(emulated bool) string {
	if emulated {
		return " (emulated: latencies are made up)"
	}
	return ""
}
