package report

import (
	"fmt"
	"strings"

	"assay/internal/metrics"
	"assay/schemas"
)

// Names of the values of a panel's result, each followed by a dot and a line's
// name, or two lines' names with a slash between them.
const (
	PanelLoad  = "load"       // x at which the line falls below the target
	PanelRatio = "load_ratio" // of the loads of two lines
	PanelQoS   = "qos_at"     // LINE@X: a point
)

var panelPrefixes = append([]string{PanelLoad + ".", PanelRatio + ".", PanelQoS + "."}, differencePrefixes()...)

func isPanelName(name string) bool {
	for _, p := range panelPrefixes {
		if rest, ok := strings.CutPrefix(name, p); ok && rest != "" {
			return true
		}
	}
	return false
}

// Crossing is the x at which a line through the points, which are in order of x,
// crosses the target for the first time: where it falls below, or where it rises to
// it if it begins below and ends above. Between points it is interpolated. The note
// says why there is none.
func Crossing(points []schemas.PanelPoint, target float64) (x float64, note string, ok bool) {
	if len(points) == 0 {
		return 0, "there are no points", false
	}
	first := points[0]
	rising := first.Y < target
	last := points[len(points)-1]
	if rising && last.Y < target {
		return 0, fmt.Sprintf("less than %s: it stands at %s there", axisText(first.X), axisText3(first.Y)), false
	}
	for i := 1; i < len(points); i++ {
		if a, b := points[i-1], points[i]; (b.Y < target) != rising {
			return a.X + (b.X-a.X)*(a.Y-target)/(a.Y-b.Y), "", true
		}
	}
	return 0, fmt.Sprintf("more than %s: it stands at %s there", axisText(last.X), axisText3(last.Y)), false
}

// ReadLoads fills in the loads of all lines.
func ReadLoads(p *schemas.Panel) {
	for i := range p.Series {
		s := &p.Series[i]
		s.Load, s.Note = nil, ""
		if x, note, ok := Crossing(s.Points, p.Target); ok {
			s.Load = &x
		} else {
			s.Note = note
		}
	}
}

// PanelResult is the result that a sweep publishes: the panel, and its numbers as
// values that a claim can name.
func PanelResult(p schemas.Panel, slo schemas.SLO) schemas.Result {
	res := schemas.Result{
		Schema: schemas.ResultV1, MetricsVersion: metrics.Version, Simulated: true, Headline: "ttft_from_schedule_ms", StampSource: schemas.StampSimulated,
		Counts:  schemas.Counts{Outcomes: map[schemas.Outcome]int{}, OutputTokenSources: map[string]int{}},
		Metrics: map[string]schemas.Summary{}, Values: map[string]schemas.Value{}, Models: []schemas.ModelResult{}, Panel: &p, SLO: &slo, Speed: 1, Comparable: true,
		Findings: []schemas.Finding{},
	}
	for _, s := range p.Series {
		res.Values[PanelLoad+"."+s.Name] = schemas.Value{Unit: p.X, Value: s.Load, Reason: s.Note}
		for _, pt := range s.Points {
			y := pt.Y
			res.Values[PanelQoS+"."+s.Name+"@"+axisText(pt.X)] = schemas.Value{Unit: "", Value: &y}
			res.Counts.Issued += pt.Requests
			res.Counts.OK += pt.Finished
		}
		for _, o := range p.Series {
			if o.Name != s.Name {
				res.Values[PanelRatio+"."+s.Name+"/"+o.Name] = loadRatio(s, o, p.Target)
			}
		}
	}
	res.Counts.Outcomes[schemas.OutcomeOK] = res.Counts.OK
	if failed := res.Counts.Issued - res.Counts.OK; failed > 0 {
		res.Counts.Outcomes[schemas.OutcomeTimeout] = failed
	}
	return res
}

func loadRatio(a, b schemas.PanelSeries, target float64) schemas.Value {
	if n := len(a.Points); a.Load == nil && b.Load != nil && n > 0 && a.Points[0].Y >= target {
		return schemas.Value{Reason: fmt.Sprintf("more than %s: %s still stands at %s at the last point", axisText3(a.Points[n-1].X / *b.Load), a.Name, axisText3(a.Points[n-1].Y))}
	}
	for _, s := range []schemas.PanelSeries{a, b} {
		if s.Load == nil {
			return schemas.Value{Reason: fmt.Sprintf("%s has no load: %s", s.Name, s.Note)}
		}
	}
	if *b.Load == 0 {
		return schemas.Value{Reason: fmt.Sprintf("the load of %s is 0", b.Name)}
	}
	r := *a.Load / *b.Load
	return schemas.Value{Value: &r}
}

// PanelText draws the panel for a terminal, with the loads below it.
func PanelText(p schemas.Panel) string {
	const width, height = 64, 16
	lowX, highX := panelRange(p)
	grid := make([][]byte, height+1)
	for i := range grid {
		grid[i] = []byte(strings.Repeat(" ", width+1))
	}
	row := func(y float64) int { return height - int(min(max(y, 0), 1)*height+0.5) }
	col := func(x float64) int { return int((x-lowX)/(highX-lowX)*width + 0.5) }
	for i := range grid[row(p.Target)] {
		grid[row(p.Target)][i] = '-'
	}
	for i := len(p.Series) - 1; i >= 0; i-- { // the first is drawn last, above the others
		for k, pt := range p.Series[i].Points {
			if k > 0 {
				join(grid, p.Series[i].Points[k-1], pt, col, row)
			}
			grid[row(pt.Y)][col(pt.X)] = seriesMark(i)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", p.Title)
	for i, line := range grid {
		label := "     "
		if i%4 == 0 {
			label = fmt.Sprintf("%4.2f ", 1-float64(i)/height)
		}
		fmt.Fprintf(&b, "  %s|%s\n", label, strings.TrimRight(string(line), " "))
	}
	low, high := axisText(lowX), axisText(highX)
	fmt.Fprintf(&b, "       +%s\n", strings.Repeat("-", width+1))
	fmt.Fprintf(&b, "        %s%s%s%s\n", low, center(p.X, width+1-len(low)-len(high)), high, "")
	for i, s := range p.Series {
		load := s.Note
		if s.Load != nil {
			load = axisText3(*s.Load)
		}
		fmt.Fprintf(&b, "  %c %-24s %s at %s: %s\n", seriesMark(i), s.Name, p.X, axisText(p.Target), load)
	}
	return b.String()
}

// join dots the way between two points.
func join(grid [][]byte, a, b schemas.PanelPoint, col, row func(float64) int) {
	from, to := col(a.X), col(b.X)
	for c := from + 1; c < to; c++ {
		y := a.Y + (b.Y-a.Y)*float64(c-from)/float64(to-from)
		if cell := &grid[row(y)][c]; *cell == ' ' || *cell == '-' {
			*cell = '.'
		}
	}
}

const seriesMarks = "o+x*#@%&"

func seriesMark(i int) byte { return seriesMarks[i%len(seriesMarks)] }

func center(s string, width int) string {
	left := max(1, (width-len(s))/2)
	return strings.Repeat(" ", left) + s + strings.Repeat(" ", max(1, width-left-len(s)))
}

// panelRange is the range of x, never empty.
func panelRange(p schemas.Panel) (low, high float64) {
	first := true
	for _, s := range p.Series {
		for _, pt := range s.Points {
			if first || pt.X < low {
				low = pt.X
			}
			if first || pt.X > high {
				high = pt.X
			}
			first = false
		}
	}
	if low == high {
		return low - 0.5, high + 0.5
	}
	return low, high
}

func axisText(v float64) string  { return schemas.Rounded(v, 6) }
func axisText3(v float64) string { return schemas.Rounded(v, 3) }
