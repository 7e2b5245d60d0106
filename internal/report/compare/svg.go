package compare

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"

	"assay/schemas"
)

// Geometry of the chart, in pixels.
const (
	chartLeft, chartPlot, chartRight = 360, 360, 130
	chartTop, chartRow, chartFoot    = 44, 24, 44
)

const chartStyle = `
svg{background:#fff;color:#1b1b1f;font:12px system-ui,sans-serif}
text{fill:currentColor}.title{font-size:15px;font-weight:600}.head{font-weight:600}.note{font-size:11px;opacity:.75}
.zero{stroke:currentColor;stroke-opacity:.6}.bar{stroke-width:2;stroke:#0b62c4}.dot{fill:#0b62c4}.pair{fill:currentColor;fill-opacity:.35}.limit{fill:currentColor;fill-opacity:.08}
@media (prefers-color-scheme:dark){svg{background:#16181d;color:#e6e6ea}.bar{stroke:#6cb0ff}.dot{fill:#6cb0ff}}
`

// SVG draws each metric's mean difference with its interval and its pairs, on a line
// of its own; shaded is its tolerance. Equal comparisons give equal bytes.
func SVG(w io.Writer, c schemas.Comparison) error {
	rows := 0
	for _, g := range c.Groups {
		rows += len(g.Metrics) + 1
	}
	width, height := chartLeft+chartPlot+chartRight, chartTop+rows*chartRow+chartFoot
	reach := reachOf(c)
	x := func(d float64) float64 { return chartLeft + (min(max(d, -reach), reach)/reach+1)/2*chartPlot }
	var b strings.Builder
	title := "Differences by " + c.By
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n<style>%s</style>\n", escape(title), escape(Text(c)), chartStyle)
	fmt.Fprintf(&b, `<text class="title" x="16" y="24">%s</text>`+"\n", escape(title))
	y := chartTop
	for _, g := range c.Groups {
		fmt.Fprintf(&b, `<text class="head" x="16" y="%d">%s</text>`+"\n", y+16, escape(groupTitle(g)))
		y += chartRow
		for _, m := range g.Metrics {
			chartMetric(&b, m, y, x)
			y += chartRow
		}
	}
	fmt.Fprintf(&b, `<line class="zero" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", x(0), x(0), chartTop, y)
	for _, at := range []float64{-reach, 0, reach} {
		fmt.Fprintf(&b, `<text class="note" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(at), y+14, schemas.Rounded(at, 3))
	}
	fmt.Fprintf(&b, `<text class="note" x="16" y="%d">per cent of the baseline, or points; line: %s %% interval of the mean; pale: pairs%s</text>`+"\n</svg>\n", height-10, schemas.Rounded(c.Confidence*100, 3), escape(sortOf(c)))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}

func sortOf(c schemas.Comparison) string {
	switch {
	case c.Emulated:
		return "; emulated: latencies are made up"
	case c.Simulated:
		return "; simulated: nothing was measured"
	}
	return ""
}

func chartMetric(b *strings.Builder, m schemas.ComparisonMetric, y int, x func(float64) float64) {
	middle := float64(y + chartRow/2)
	if m.Tolerance != nil {
		fmt.Fprintf(b, `<rect class="limit" x="%.1f" y="%d" width="%.1f" height="%d"/>`, x(-*m.Tolerance), y+2, x(*m.Tolerance)-x(-*m.Tolerance), chartRow-4)
	}
	fmt.Fprintf(b, `<text x="28" y="%.1f">%s</text>`, middle+4, escape(shorten(shortMetric(m.Metric), 50)))
	for _, r := range m.Rows {
		if r.Difference != nil {
			fmt.Fprintf(b, `<circle class="pair" cx="%.1f" cy="%.1f" r="3"/>`, x(*r.Difference), middle)
		}
	}
	text := "no mean"
	if m.Mean != nil {
		if m.Low != nil && m.High != nil {
			fmt.Fprintf(b, `<line class="bar" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x(*m.Low), x(*m.High), middle, middle) // cut at the ends of the axis
		}
		fmt.Fprintf(b, `<circle class="dot" cx="%.1f" cy="%.1f" r="4"/>`, x(*m.Mean), middle)
		text = differenceText(m.As, *m.Mean)
	}
	fmt.Fprintf(b, `<text x="%d" y="%.1f">%s</text>`+"\n", chartLeft+chartPlot+12, middle+4, escape(text))
}

// reachOf is how far the axis goes to each side: a round number that holds all means
// and pairs; intervals may go beyond.
func reachOf(c schemas.Comparison) float64 {
	most := 0.0
	take := func(v *float64) {
		if v != nil && !math.IsInf(*v, 0) && !math.IsNaN(*v) {
			most = max(most, math.Abs(*v))
		}
	}
	for _, g := range c.Groups {
		for _, m := range g.Metrics {
			take(m.Mean)
			take(m.Tolerance)
			for _, r := range m.Rows {
				take(r.Difference)
			}
		}
	}
	if most == 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{1, 2, 5, 10} {
		if unit*f >= most {
			return unit * f
		}
	}
	return most
}

func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
