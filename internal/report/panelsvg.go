package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"

	"assay/schemas"
)

// Geometry of a panel, in pixels.
const (
	svgWidth, svgHeight     = 640, 400
	svgLeft, svgRight       = 60, 16
	svgTop, svgBottom       = 40, 84
	svgPlotW                = svgWidth - svgLeft - svgRight
	svgPlotH                = svgHeight - svgTop - svgBottom
	maxTicks                = 8
	svgLegendRow, svgLegend = 18, svgHeight - 34
)

// svgColors can be told apart by most people, on light and on dark ground. They are
// written out for each line, for viewers that know no variables.
var svgColors = [][2]string{{"#0b62c4", "#6cb0ff"}, {"#c2410c", "#fb923c"}, {"#15803d", "#4ade80"}, {"#7e22ce", "#c084fc"}, {"#b45309", "#fbbf24"}, {"#0e7490", "#22d3ee"}}

const svgStyle = `
svg{background:#fff;color:#1b1b1f;font:13px system-ui,sans-serif}
.line{fill:none;stroke-width:2}
.grid{stroke:currentColor;stroke-opacity:.15}.axis{stroke:currentColor}.target{stroke:currentColor;stroke-opacity:.6;stroke-dasharray:6 4}
text{fill:currentColor}.title{font-size:15px;font-weight:600}.note{font-size:11px;opacity:.75}
`

func svgStyles() string {
	light, dark := svgStyle, "svg{background:#16181d;color:#e6e6ea}\n"
	for i, c := range svgColors {
		light += fmt.Sprintf(".s%d .line{stroke:%s}.s%d .mark{fill:%s}\n", i, c[0], i, c[0])
		dark += fmt.Sprintf(".s%d .line{stroke:%s}.s%d .mark{fill:%s}\n", i, c[1], i, c[1])
	}
	return light + "@media (prefers-color-scheme:dark){" + dark + "}\n"
}

// PanelSVG draws the panel: its lines, the target, and a title and description for
// those who do not see it. Equal panels give equal bytes.
func PanelSVG(w io.Writer, p schemas.Panel) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`+"\n", svgWidth, svgHeight, svgWidth, svgHeight)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n<style>%s</style>\n", escape(p.Title), escape(panelDescription(p)), svgStyles())
	fmt.Fprintf(&b, `<text class="title" x="%d" y="24">%s</text>`+"\n", svgLeft, escape(p.Title))
	low, high := panelRange(p)
	x := func(v float64) float64 { return svgLeft + (v-low)/(high-low)*svgPlotW }
	y := func(v float64) float64 { return svgTop + (1-min(max(v, 0), 1))*svgPlotH }
	svgAxes(&b, p, x, y)
	for i, s := range p.Series {
		svgSeries(&b, i, s, x, y)
	}
	b.WriteString("</svg>\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}

func svgAxes(b *strings.Builder, p schemas.Panel, x, y func(float64) float64) {
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, svgLeft, svgWidth-svgRight, y(v), y(v))
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%.0f %%</text>`+"\n", svgLeft-6, y(v)+4, v*100)
	}
	low, high := panelRange(p)
	for _, v := range ticks(low, high) {
		fmt.Fprintf(b, `<line class="axis" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, x(v), x(v), svgTop+svgPlotH, svgTop+svgPlotH+4)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(v), svgTop+svgPlotH+18, axisText(v))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%d" x2="%d" y1="%d" y2="%d"/>`, svgLeft, svgWidth-svgRight, svgTop+svgPlotH, svgTop+svgPlotH)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", svgLeft+svgPlotW/2, svgTop+svgPlotH+34, escape(p.X))
	fmt.Fprintf(b, `<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", svgTop+svgPlotH/2, escape(p.Y))
	fmt.Fprintf(b, `<line class="target" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, svgLeft, svgWidth-svgRight, y(p.Target), y(p.Target))
	fmt.Fprintf(b, `<text class="note" x="%d" y="%.1f" text-anchor="end">%s %%</text>`+"\n", svgWidth-svgRight, y(p.Target)-4, schemas.Rounded(p.Target*100, 4))
	fmt.Fprintf(b, `<text class="note" x="%d" y="%d">simulated: nothing was measured</text>`+"\n", svgLeft, svgHeight-4)
}

func svgSeries(b *strings.Builder, i int, s schemas.PanelSeries, x, y func(float64) float64) {
	fmt.Fprintf(b, `<g class="s%d"><title>%s</title><polyline class="line" points="`, i%len(svgColors), escape(s.Name))
	for k, pt := range s.Points {
		if k > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(b, "%.1f,%.1f", x(pt.X), y(pt.Y))
	}
	b.WriteString(`"/>`)
	for _, pt := range s.Points {
		b.WriteString(svgMark(i, x(pt.X), y(pt.Y)))
	}
	slot := float64(svgPlotW) / 3
	lx, ly := svgLeft+slot*float64(i%3), float64(svgLegend+svgLegendRow*(i/3))
	fmt.Fprintf(b, `%s<text x="%.1f" y="%.1f">%s</text></g>`+"\n", svgMark(i, lx+5, ly-4), lx+16, ly, escape(s.Name))
}

// svgMark tells lines apart by shape as well as by colour.
func svgMark(i int, x, y float64) string {
	switch i % 3 {
	case 0:
		return fmt.Sprintf(`<circle class="mark" cx="%.1f" cy="%.1f" r="3.5"/>`, x, y)
	case 1:
		return fmt.Sprintf(`<rect class="mark" x="%.1f" y="%.1f" width="6" height="6"/>`, x-3, y-3)
	}
	return fmt.Sprintf(`<path class="mark" d="M%.1f %.1fl4 7h-8z"/>`, x, y-4)
}

// ticks are round numbers between two.
func ticks(low, high float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/maxTicks)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*f) <= maxTicks {
			step *= f
			break
		}
	}
	var out []float64
	for k := math.Ceil(low/step - 1e-9); k*step <= high+step*1e-9; k++ {
		out = append(out, k*step)
	}
	return out
}

// panelDescription tells in words what the chart shows.
func panelDescription(p schemas.Panel) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Simulated. %s over %s.", p.Y, p.X)
	for _, s := range p.Series {
		if len(s.Points) == 0 {
			continue
		}
		first, last := s.Points[0], s.Points[len(s.Points)-1]
		fmt.Fprintf(&b, " %s: %.3f at %s, %.3f at %s;", s.Name, first.Y, axisText(first.X), last.Y, axisText(last.X))
		if s.Load != nil {
			fmt.Fprintf(&b, " it falls below %s at %s.", axisText(p.Target), axisText3(*s.Load))
		} else {
			fmt.Fprintf(&b, " load at %s: %s.", axisText(p.Target), s.Note)
		}
	}
	return b.String()
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
