package report

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// grid is rows of cells that are written in line: the first columns to the left,
// the others to the right.
type grid struct {
	left int
	rows [][]string
}

func (g *grid) row(cells ...string) { g.rows = append(g.rows, cells) }

func (g *grid) write(b *strings.Builder, indent string) {
	var widths []int
	for _, r := range g.rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range g.rows {
		line := indent
		for i, c := range r {
			if i > 0 {
				line += "  "
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i < g.left {
				line += c + pad
			} else {
				line += pad + c
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
