package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"assay/schemas"
)

// NamedMatrix is one heat map of a chart.
type NamedMatrix struct {
	Name   string
	Matrix *schemas.SwitchMatrix
}

// Geometry of a heat map, in pixels.
const (
	heatCellW, heatCellH = 112, 64
	heatLeft, heatTop    = 130, 92
	heatGap, heatFoot    = 40, 40
)

const heatStyle = `
svg{background:#fff;color:#1b1b1f;font:13px system-ui,sans-serif}
text{fill:currentColor}.title{font-size:15px;font-weight:600}.note{font-size:11px;opacity:.75}
.none{fill:currentColor;fill-opacity:.06}.d{fill:#1b1b1f}.l{fill:#fff}.small{font-size:11px}
@media (prefers-color-scheme:dark){svg{background:#16181d;color:#e6e6ea}}
`

// SwitchSVG draws one quantity of switch matrices as heat maps beside each other, on
// one scale: rows are the model before, columns the one after. note stands below,
// such as that the numbers are emulated. Equal matrices give equal bytes.
func SwitchSVG(w io.Writer, title, metric, note string, list []NamedMatrix) error {
	low, high := heatRange(list, metric)
	width, height := heatGap/2, 0
	for _, n := range list {
		k := len(n.Matrix.Models)
		width += heatLeft + k*heatCellW + heatGap/2
		height = max(height, heatTop+k*heatCellH+heatFoot)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n<style>%s</style>\n", escape(title), escape(heatDescription(list, metric, note)), heatStyle)
	fmt.Fprintf(&b, `<text class="title" x="16" y="24">%s: %s</text>`+"\n", escape(title), escape(switchTitles[metric]))
	x := heatGap / 2
	for _, n := range list {
		heatMap(&b, n, metric, x, low, high)
		x += heatLeft + len(n.Matrix.Models)*heatCellW + heatGap/2
	}
	fmt.Fprintf(&b, `<text class="note" x="16" y="%d">mean, its interval, and the number of samples; rows: model before; columns: model after%s</text>`+"\n</svg>\n", height-12, escape(suffix(note)))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}

func suffix(note string) string {
	if note == "" {
		return ""
	}
	return "; " + note
}

// heatRange is the range of the means, never empty.
func heatRange(list []NamedMatrix, metric string) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, n := range list {
		for _, c := range n.Matrix.Cells {
			if s := c.Metrics[metric]; s.Mean != nil {
				low, high = min(low, *s.Mean), max(high, *s.Mean)
			}
		}
	}
	if !(low < high) {
		return low - 0.5, low + 0.5
	}
	return low, high
}

func heatMap(b *strings.Builder, n NamedMatrix, metric string, left int, low, high float64) {
	short := ShortNames(n.Matrix.Models)
	fmt.Fprintf(b, `<text x="%d" y="48">%s</text>`+"\n", left+heatLeft, escape(n.Name))
	for i, m := range n.Matrix.Models {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" class="small">%s</text>`, left+heatLeft+i*heatCellW+heatCellW/2, heatTop-8, escape(clip(short[m], 17)))
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" class="small">%s</text>`+"\n", left+heatLeft-8, heatTop+i*heatCellH+heatCellH/2+4, escape(clip(short[m], 19)))
	}
	for r, from := range n.Matrix.Models {
		for c, to := range n.Matrix.Models {
			x, y := left+heatLeft+c*heatCellW, heatTop+r*heatCellH
			cell := SwitchCell(n.Matrix, from, to)
			if cell == nil || cell.Metrics[metric].Mean == nil {
				fmt.Fprintf(b, `<rect class="none" x="%d" y="%d" width="%d" height="%d"/>`+"\n", x, y, heatCellW-2, heatCellH-2)
				continue
			}
			heatCell(b, *cell, metric, x, y, low, high)
		}
	}
}

func heatCell(b *strings.Builder, c schemas.SwitchCell, metric string, x, y int, low, high float64) {
	s := c.Metrics[metric]
	share := (*s.Mean - low) / (high - low)
	color, ink := heatColor(share)
	fmt.Fprintf(b, `<g class="%s"><title>%s to %s: %s ms</title><rect fill="%s" x="%d" y="%d" width="%d" height="%d"/>`, ink, escape(c.From), escape(c.To), number(s.Mean), color, x, y, heatCellW-2, heatCellH-2)
	middle := x + heatCellW/2 - 1
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" text-anchor="middle">%s</text>`, ink, middle, y+23, number(s.Mean))
	if s.Low != nil && s.High != nil {
		fmt.Fprintf(b, `<text class="small %s" x="%d" y="%d" text-anchor="middle">%s to %s</text>`, ink, middle, y+39, number(s.Low), number(s.High))
	}
	fmt.Fprintf(b, `<text class="small %s" x="%d" y="%d" text-anchor="middle">n = %d</text></g>`+"\n", ink, middle, y+54, s.N)
}

// heatColor goes from pale to dark blue, which also a reader who sees no colours
// tells apart, and says which ink is read on it.
func heatColor(share float64) (fill, ink string) {
	from, to := [3]float64{0xe3, 0xee, 0xfb}, [3]float64{0x0b, 0x3d, 0x7a}
	share = min(max(share, 0), 1)
	var c [3]int
	for i := range c {
		c[i] = int(math.Round(from[i] + share*(to[i]-from[i])))
	}
	ink = "d"
	if share > 0.5 {
		ink = "l"
	}
	return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2]), ink
}

func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// heatDescription tells in words what the chart shows.
func heatDescription(list []NamedMatrix, metric, note string) string {
	var b strings.Builder
	for _, n := range list {
		fmt.Fprintf(&b, "%s, %s.", n.Name, switchTitles[metric])
		for _, c := range n.Matrix.Cells {
			if s := c.Metrics[metric]; s.Mean != nil {
				fmt.Fprintf(&b, " %s to %s: %s;", c.From, c.To, number(s.Mean))
			}
		}
		b.WriteString(" ")
	}
	return b.String() + note
}
