package compare

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"assay/internal/metrics"
	"assay/internal/report"
	"assay/schemas"
)

// Options say what to compare, and what may differ.
type Options struct {
	// By is the parameter compared by, or schemas.CompareStages or CompareRuns.
	By string
	// Metrics by name; none means those of DefaultMetrics that every result has.
	Metrics []string
	// Differ names conditions and parameters that may differ.
	Differ []string
	// SameOutput refuses pairs whose generated texts differ.
	SameOutput bool
	// Tolerance bounds every metric's mean difference, Limits that of one; nil for none.
	Tolerance *float64
	Limits    map[string]float64
	// OnlyWorse bounds changes for the worse alone, where a metric has a better direction.
	OnlyWorse bool
	Gate      bool
	// Missing are nodes that should have a result and have none: their pairs are.
	Missing []string
}

// Method is how differences and intervals are made, in words.
const Method = "difference = candidate - baseline, in per cent of the baseline or in points; mean over pairs with a t interval over pairs: the trial is the unit"

// CheckMetrics refuses names that no result could have.
func CheckMetrics(o Options) error {
	for _, m := range o.Metrics {
		if err := report.CheckMetric(m); err != nil {
			return err
		}
	}
	for _, m := range slices.Sorted(maps.Keys(o.Limits)) {
		if err := report.CheckMetric(m); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		if len(o.Metrics) > 0 && !slices.Contains(o.Metrics, m) {
			return fmt.Errorf("limits: %q is none of the metrics: %s", m, strings.Join(o.Metrics, ", "))
		}
	}
	return nil
}

// Compare checks every pair and, when all are alike, states the differences.
func Compare(ctx context.Context, groups []Group, o Options) (schemas.Comparison, error) {
	out := schemas.Comparison{Schema: schemas.CompareV1, By: o.By, Refusals: []schemas.Finding{}, Doubts: []string{}, Confidence: metrics.Confidence, Method: Method, Groups: []schemas.ComparisonGroup{}, Gate: o.Gate}
	if err := CheckMetrics(o); err != nil {
		return out, err
	}
	if len(o.Missing) > 0 {
		out.Refusals = append(out.Refusals, schemas.Finding{ID: IDUnpaired, Severity: schemas.SeverityError, Subject: "comparison", Message: "without a result: " + strings.Join(o.Missing, ", "),
			Remedy: "compare runs in which every trial passed: what is left would be a comparison of survivors"})
	}
	unknown := map[string]bool{}
	pairs := 0
	for i, label := range labels(groups) {
		g := groups[i]
		row := schemas.ComparisonGroup{Label: label, Stage: g.Stage, Baseline: g.Baseline, Candidate: g.Candidate, Point: g.Point, Pairs: []schemas.ComparisonPair{}, Metrics: []schemas.ComparisonMetric{}}
		if len(g.unpaired) > 0 {
			out.Refusals = append(out.Refusals, schemas.Finding{ID: IDUnpaired, Severity: schemas.SeverityError, Subject: g.title(), Message: "without a partner: " + strings.Join(g.unpaired, ", "),
				Remedy: "compare runs of one experiment in which every trial passed"})
		}
		for _, p := range g.Pairs {
			pairs++
			made, refusals, err := check(ctx, g, p, o, unknown)
			if err != nil {
				return out, err
			}
			row.Pairs = append(row.Pairs, made)
			out.Refusals = append(out.Refusals, refusals...)
			for _, t := range []*Trial{p.Baseline, p.Candidate} {
				if d := doubt(t); d != "" && !slices.Contains(out.Doubts, d) {
					out.Doubts = append(out.Doubts, d)
				}
				out.Emulated, out.Simulated = out.Emulated || t.Result.Emulated, out.Simulated || t.Result.Simulated
			}
		}
		out.Groups = append(out.Groups, row)
	}
	if pairs == 0 && len(out.Refusals) == 0 {
		out.Refusals = append(out.Refusals, schemas.Finding{ID: IDNothing, Severity: schemas.SeverityError, Subject: "comparison", Message: "there are no pairs of trials with results", Remedy: "compare stages of kind measure or simulate that passed"})
	}
	out.Comparable = len(out.Refusals) == 0
	out.Unknown = slices.Sorted(maps.Keys(unknown))
	if !out.Comparable {
		return out, nil
	}
	for i := range out.Groups {
		if err := measure(&out.Groups[i], groups[i], o); err != nil {
			return out, err
		}
	}
	judge(&out)
	return out, nil
}

// doubt is why a trial's numbers are to be believed less, "" for no reason.
func doubt(t *Trial) string {
	c := t.Result.Client
	if c == nil || len(c.Reasons) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: client_ok is %s: %s", t.Node, c.OK, strings.Join(c.Reasons, "; "))
}

func (g Group) title() string {
	s := g.Candidate + " against " + g.Baseline
	if g.Stage != "" {
		s = g.Stage + ": " + s
	}
	if p := pointText(g.Point); p != "" {
		s += " at " + p
	}
	return s
}

// check holds one pair against each other.
func check(ctx context.Context, g Group, p Pair, o Options, unknown map[string]bool) (schemas.ComparisonPair, []schemas.Finding, error) {
	made := schemas.ComparisonPair{Repetition: p.Repetition, Baseline: p.Baseline.Node, Candidate: p.Candidate.Node}
	c := &checker{opts: o, pair: p, unknown: unknown, subject: p.Candidate.Node + " against " + p.Baseline.Node}
	if p.Baseline.Run != "" {
		c.subject = fmt.Sprintf("%s: %s against %s", p.Candidate.Node, g.Candidate, g.Baseline)
		if p.Baseline.Run == p.Candidate.Run && p.Baseline.Node == p.Candidate.Node {
			c.refuse(IDSame, "name two runs", "both are %s of run %s", p.Baseline.Node, p.Baseline.Run)
			return made, c.list, nil
		}
		c.params()
	}
	c.kinds()
	a, errA := p.Baseline.Facts(ctx)
	b, errB := p.Candidate.Facts(ctx)
	if err := context.Cause(ctx); err != nil {
		return made, nil, err
	}
	for _, e := range []struct {
		node string
		err  error
	}{{p.Baseline.Node, errA}, {p.Candidate.Node, errB}} {
		if e.err != nil {
			c.refuse(IDFacts, "assay verify says whether the archive is whole", "%s: %v", e.node, e.err)
		}
	}
	if errA != nil || errB != nil {
		return made, c.list, nil
	}
	made.Requests = len(a.Requests)
	made.SameOutput, made.KnownOutput = c.requests(a.Requests, b.Requests)
	c.engines(a.Engines, b.Engines)
	c.conditions(a.Conditions, b.Conditions)
	return made, c.list, nil
}

// DefaultMetrics are what is compared when nothing else is asked for.
func DefaultMetrics(res schemas.Result) []string {
	ttft, e2e := "ttft_from_schedule_ms", "e2e_from_schedule_ms"
	if res.Headline == "ttft_ms" {
		ttft, e2e = "ttft_ms", "e2e_ms"
	}
	out := []string{ttft + ".mean", ttft + ".p50", ttft + ".p95", "tpot_ms.mean", e2e + ".mean", e2e + ".p50", e2e + ".p95", "requests_per_s", "output_tokens_per_s", "slo_attainment", "qos.mean"}
	if res.Switches != nil {
		out = nil
		for _, m := range report.SwitchMetrics {
			if _, ok := res.Switches.All[m]; ok && !strings.HasPrefix(m, "cost_") {
				out = append(out, "switch["+report.AnyPair+"]."+m+".mean")
			}
		}
	}
	return out
}

// measure states the differences of a group.
func measure(row *schemas.ComparisonGroup, g Group, o Options) error {
	asked, defaults := o.Metrics, false
	if len(asked) == 0 {
		asked, defaults = DefaultMetrics(g.Pairs[0].Baseline.Result), true
	}
	for _, name := range asked {
		names, err := report.EachPair(g.Pairs[0].Baseline.Result, name)
		if err != nil {
			return err
		}
		for _, n := range names {
			m := metric(n, g)
			if defaults && m.N == 0 {
				continue
			}
			bound(&m, name, o)
			row.Metrics = append(row.Metrics, m)
		}
	}
	return nil
}

// metric compares one number over the pairs.
func metric(name string, g Group) schemas.ComparisonMetric {
	m := schemas.ComparisonMetric{Metric: name, As: as(name), Better: better(name), Rows: []schemas.ComparisonRow{}}
	var base, cand, diffs []float64
	for _, p := range g.Pairs {
		row := schemas.ComparisonRow{Repetition: p.Repetition}
		a, unit, errA := report.Lookup(p.Baseline.Result, name)
		b, unitB, errB := report.Lookup(p.Candidate.Result, name)
		if m.Unit == "" {
			m.Unit = unit + strings.Repeat(unitB, boolInt(unit == ""))
		}
		if errA == nil {
			row.Baseline = &a
		}
		if errB == nil {
			row.Candidate = &b
		}
		switch {
		case errA != nil:
			row.Unknown = "baseline: " + errA.Error()
		case errB != nil:
			row.Unknown = "candidate: " + errB.Error()
		default:
			if d, ok := difference(m.As, a, b); ok {
				row.Difference = &d
				base, cand, diffs = append(base, a), append(cand, b), append(diffs, d)
			} else {
				row.Unknown = "the baseline is " + schemas.Decimal(a) + ": there is no percentage of it"
			}
		}
		m.Rows = append(m.Rows, row)
		m.Few = m.Few || few(p.Baseline.Result, name) || few(p.Candidate.Result, name)
	}
	m.N = len(diffs)
	if m.N < len(m.Rows) {
		for _, r := range m.Rows {
			if r.Difference == nil {
				m.Note = fmt.Sprintf("no mean: repetition %d has no difference: %s", r.Repetition, r.Unknown)
				return m
			}
		}
	}
	average(&m, base, cand, diffs)
	return m
}

// few says whether a name is a percentile that has too few samples in a result.
func few(res schemas.Result, name string) bool {
	summaries := res.Metrics
	if rest, ok := strings.CutPrefix(name, "steady."); ok && res.Steady != nil {
		summaries, name = res.Steady.Metrics, rest
	}
	metric, stat, _ := strings.Cut(name, ".")
	for _, p := range summaries[metric].Percentiles {
		if p.Few && stat == "p"+schemas.Decimal(p.P) {
			return true
		}
	}
	return false
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func average(m *schemas.ComparisonMetric, base, cand, diffs []float64) {
	if a, ok := metrics.Mean(base); ok {
		m.BaselineMean = &a
	}
	if b, ok := metrics.Mean(cand); ok {
		m.CandidateMean = &b
	}
	mean, low, high, ok := metrics.MeanInterval(diffs, metrics.Confidence)
	m.Mean = &mean
	if !ok {
		m.Note = "no interval: it takes two pairs or more"
		return
	}
	m.Low, m.High = &low, &high
}

// difference is candidate minus baseline; false where there is none.
func difference(as string, a, b float64) (float64, bool) {
	d := (b - a) * 100
	if as == schemas.DifferencePercent {
		if !(a > 0) {
			return 0, a == b && a == 0
		}
		d /= a
	}
	return d, !math.IsNaN(d) && !math.IsInf(d, 0)
}

// as says whether a metric is a share, whose differences are points.
func as(name string) string {
	base := strings.TrimPrefix(name, "steady.")
	if strings.HasPrefix(base, "qos.") || strings.HasSuffix(base, "_attainment") || base == "error_rate" {
		return schemas.DifferencePoints
	}
	return schemas.DifferencePercent
}

// better is the better direction of a metric, "" where there is none.
func better(name string) string {
	base := strings.TrimPrefix(name, "steady.")
	stat := base[strings.LastIndexByte(base, '.')+1:]
	switch {
	case base == "error_rate", base == "makespan_s":
		return "lower"
	case slices.Contains([]string{"n", "censored", "stddev"}, stat):
		return ""
	case strings.HasPrefix(base, "qos."), strings.HasSuffix(base, "_attainment"), strings.HasSuffix(base, "tokens_per_s"), base == "goodput_rps", base == "requests_per_s":
		return "higher"
	case strings.HasSuffix(base, "_ms."+stat):
		return "lower"
	}
	return ""
}

// bound holds a metric against its tolerance, if it has one. asked is its name as it
// was asked for.
func bound(m *schemas.ComparisonMetric, asked string, o Options) {
	limit, ok := o.Limits[asked]
	if !ok {
		limit, ok = o.Limits[m.Metric]
	}
	if !ok && o.Tolerance != nil {
		limit, ok = *o.Tolerance, true
	}
	if !ok {
		return
	}
	within := m.Mean != nil
	if within {
		d := *m.Mean
		switch {
		case o.OnlyWorse && m.Better == "lower":
			within = d <= limit
		case o.OnlyWorse && m.Better == "higher":
			within = d >= -limit
		default:
			within = math.Abs(d) <= limit
		}
	}
	m.Tolerance, m.Within = &limit, &within
}

// judge sums the tolerances up.
func judge(c *schemas.Comparison) {
	for _, g := range c.Groups {
		for _, m := range g.Metrics {
			if m.Within == nil {
				continue
			}
			if c.Within == nil {
				yes := true
				c.Within = &yes
			}
			*c.Within = *c.Within && *m.Within
		}
	}
}

// Outside are findings of what lies outside of its tolerance.
func Outside(c schemas.Comparison) []schemas.Finding {
	var out []schemas.Finding
	for _, g := range c.Groups {
		for _, m := range g.Metrics {
			if m.Within == nil || *m.Within {
				continue
			}
			text := m.Note
			if m.Mean != nil {
				text = fmt.Sprintf("the mean difference of %s is %s, more than %s", m.Metric, differenceText(m.As, *m.Mean), differenceText(m.As, *m.Tolerance))
			}
			out = append(out, schemas.Finding{ID: IDTolerance, Severity: schemas.SeverityWarning, Subject: groupTitle(g), Message: text, Remedy: "look at the pairs: assay show; raise the tolerance if the change is meant"})
		}
	}
	return out
}

func groupTitle(g schemas.ComparisonGroup) string {
	return Group{Stage: g.Stage, Baseline: g.Baseline, Candidate: g.Candidate, Point: g.Point}.title()
}
