package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"assay/internal/metrics"
	"assay/schemas"
)

// SwitchMetrics are the quantities of a switch matrix, in order. The first three are
// of the request that follows another model, the next of those after it, and the
// last are differences within a visit: what the switch itself took.
var SwitchMetrics = []string{"ttft_ms", "tpot_ms", "e2e_ms", "steady_ttft_ms", "steady_tpot_ms", "steady_e2e_ms", "cost_ttft_ms", "cost_e2e_ms"}

// What a visit met that is not in a matrix.
const (
	excludedFirst  = "first"  // of the run: it follows no other model
	excludedFailed = "failed" // the request was not answered properly
)

// visitRow is one request in mode switch.
type visitRow struct {
	index           int
	phase           string
	from, to        string
	ok              bool
	ttft, tpot, e2e *float64
}

// switchRows collects the requests of a run in mode switch. The zero value is ready.
type switchRows struct {
	rows []visitRow
	seen bool // a request of the phase switch
}

// add takes a record, with the phase it is counted in.
func (s *switchRows) add(r *schemas.RequestRecord, phase string) {
	s.seen = s.seen || phase == schemas.PhaseSwitch
	row := visitRow{index: r.Index, phase: phase, from: r.SwitchFrom, to: r.Model, ok: r.Outcome == schemas.OutcomeOK}
	for _, m := range []struct {
		of   func(*schemas.RequestRecord) (float64, bool)
		into **float64
	}{{metrics.TTFTMs, &row.ttft}, {metrics.TPOTMs, &row.tpot}, {metrics.E2EMs, &row.e2e}} {
		if v, ok := m.of(r); ok && row.ok {
			*m.into = &v
		}
	}
	s.rows = append(s.rows, row)
}

// switchVisit is a request that follows another model with the steady ones after it.
type switchVisit struct {
	first  visitRow
	steady []visitRow
}

// visits groups the rows, in order of sending.
func (s *switchRows) visits() []switchVisit {
	slices.SortFunc(s.rows, func(a, b visitRow) int { return cmp.Compare(a.index, b.index) })
	var out []switchVisit
	for _, r := range s.rows {
		if n := len(out); r.phase == schemas.PhaseSteady && n > 0 && out[n-1].first.to == r.to {
			out[n-1].steady = append(out[n-1].steady, r)
			continue
		}
		if r.phase == schemas.PhaseSteady { // after the first request of all, which has no phase
			out = append(out, switchVisit{first: visitRow{index: r.index, to: r.to}, steady: []visitRow{r}})
			continue
		}
		out = append(out, switchVisit{first: r})
	}
	return out
}

// pairValues are the samples of one pair.
type pairValues struct {
	visits int
	values map[string][]float64
	failed map[string]int
}

func newPairValues() *pairValues {
	return &pairValues{values: map[string][]float64{}, failed: map[string]int{}}
}

func (p *pairValues) add(name string, v *float64, ok bool) {
	switch {
	case v != nil:
		p.values[name] = append(p.values[name], *v)
	case !ok:
		p.failed[name]++
	}
}

func (p *pairValues) visit(v switchVisit) {
	p.visits++
	p.add("ttft_ms", v.first.ttft, v.first.ok)
	p.add("tpot_ms", v.first.tpot, v.first.ok)
	p.add("e2e_ms", v.first.e2e, v.first.ok)
	var ttft, e2e []float64
	for _, r := range v.steady {
		p.add("steady_ttft_ms", r.ttft, r.ok)
		p.add("steady_tpot_ms", r.tpot, r.ok)
		p.add("steady_e2e_ms", r.e2e, r.ok)
		if r.ttft != nil && r.e2e != nil {
			ttft, e2e = append(ttft, *r.ttft), append(e2e, *r.e2e)
		}
	}
	for _, c := range []struct {
		name   string
		first  *float64
		steady []float64
	}{{"cost_ttft_ms", v.first.ttft, ttft}, {"cost_e2e_ms", v.first.e2e, e2e}} {
		if mean, ok := metrics.Mean(c.steady); ok && c.first != nil {
			d := *c.first - mean
			p.add(c.name, &d, true)
		}
	}
}

// matrix is nil for a run that switched nothing.
func (s *switchRows) matrix() *schemas.SwitchMatrix {
	if !s.seen {
		return nil
	}
	m := &schemas.SwitchMatrix{Over: schemas.SwitchOverVisits, Models: []string{}, Confidence: metrics.Confidence, Cells: []schemas.SwitchCell{}, Excluded: map[string]int{}}
	type pair struct{ from, to string }
	pairs, all := map[pair]*pairValues{}, newPairValues()
	for _, v := range s.visits() {
		for _, name := range []string{v.first.from, v.first.to} {
			if name != "" && !slices.Contains(m.Models, name) {
				m.Models = append(m.Models, name)
			}
		}
		if v.first.phase != schemas.PhaseSwitch || v.first.from == "" {
			m.Excluded[cmp.Or(v.first.phase, excludedFirst)]++
			continue
		}
		if !v.first.ok {
			m.Excluded[excludedFailed]++
		}
		at := pair{v.first.from, v.first.to}
		if pairs[at] == nil {
			pairs[at] = newPairValues()
		}
		pairs[at].visit(v)
		all.visit(v)
	}
	slices.Sort(m.Models)
	for _, at := range slices.SortedFunc(maps.Keys(pairs), func(a, b pair) int { return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to)) }) {
		m.Cells = append(m.Cells, schemas.SwitchCell{From: at.from, To: at.to, Visits: pairs[at].visits, Metrics: pairs[at].stats()})
	}
	m.All = all.stats()
	return m
}

func (p *pairValues) stats() map[string]schemas.SwitchStat {
	out := map[string]schemas.SwitchStat{}
	for _, name := range SwitchMetrics {
		if len(p.values[name]) == 0 && p.failed[name] == 0 {
			continue
		}
		out[name] = SwitchStatOf(p.values[name], p.failed[name])
	}
	return out
}

// SwitchStatOf describes values in milliseconds.
func SwitchStatOf(values []float64, failed int) schemas.SwitchStat {
	out := schemas.SwitchStat{Unit: "ms", N: len(values), Failed: failed}
	if len(values) == 0 {
		return out
	}
	mean, low, high, ok := metrics.MeanInterval(values, metrics.Confidence)
	out.Mean = &mean
	if ok {
		out.Low, out.High = &low, &high
	}
	s := metrics.Samples{Values: slices.Clone(values)}
	if p50, censored, ok := s.Percentile(50); ok && !censored {
		out.P50 = &p50
	}
	lo, hi := slices.Min(values), slices.Max(values)
	out.Min, out.Max = &lo, &hi
	return out
}

// SwitchCell is the cell of a pair, nil for none.
func SwitchCell(m *schemas.SwitchMatrix, from, to string) *schemas.SwitchCell {
	for i := range m.Cells {
		if m.Cells[i].From == from && m.Cells[i].To == to {
			return &m.Cells[i]
		}
	}
	return nil
}

// Names of the numbers of a switch matrix: switch.METRIC.STATISTIC is over all
// pairs, switch[FROM>TO].METRIC.STATISTIC of one. * stands for each pair where a
// list of metrics is asked for.
const (
	switchAll  = "switch."
	switchPair = "switch["
)

// AnyPair is what stands for the pair in the name of a number of every pair.
const AnyPair = "*"

var switchStats = []string{"mean", "p50", "min", "max", "n"}

// SwitchName is the name of a pair's number.
func SwitchName(from, to, rest string) string { return switchPair + from + ">" + to + "]." + rest }

// parseSwitch takes a name apart; ok is false for one that is none of a matrix.
func parseSwitch(name string) (pair, metric, stat string, ok bool) {
	rest, all := strings.CutPrefix(name, switchAll)
	if !all {
		inner, one := strings.CutPrefix(name, switchPair)
		end := strings.LastIndex(inner, "].")
		if !one || end < 1 {
			return "", "", "", false
		}
		pair, rest = inner[:end], inner[end+2:]
	}
	metric, stat, ok = strings.Cut(rest, ".")
	return pair, metric, stat, ok && slices.Contains(SwitchMetrics, metric) && slices.Contains(switchStats, stat)
}

// isSwitchName says whether a name is meant to be one of a switch matrix.
func isSwitchName(name string) bool {
	return strings.HasPrefix(name, switchAll) || strings.HasPrefix(name, switchPair)
}

// checkSwitchName refuses a name that no matrix could have.
func checkSwitchName(name string) error {
	pair, _, _, ok := parseSwitch(name)
	if ok && (pair == "" || pair == AnyPair || strings.Contains(pair, ">")) {
		return nil
	}
	return fmt.Errorf("%w %q: want switch.METRIC.STATISTIC or switch[FROM>TO].METRIC.STATISTIC with a metric of %s and a statistic of %s",
		ErrUnknownMetric, name, strings.Join(SwitchMetrics, ", "), strings.Join(switchStats, ", "))
}

// switchNumber is the number that a name asks for.
func switchNumber(m *schemas.SwitchMatrix, name string) (float64, string, error) {
	pair, metric, stat, _ := parseSwitch(name)
	if m == nil {
		return 0, "", fmt.Errorf("metric %q: this result has no switches: they are of mode switch", name)
	}
	stats := m.All
	if pair != "" {
		stats = nil
		for _, c := range m.Cells {
			if c.From+">"+c.To == pair {
				stats = c.Metrics
			}
		}
		if stats == nil {
			return 0, "", fmt.Errorf("metric %q: this pair was not switched: the models are %s", name, strings.Join(m.Models, ", "))
		}
	}
	s, ok := stats[metric]
	var v *float64
	switch stat {
	case "mean":
		v = s.Mean
	case "p50":
		v = s.P50
	case "min":
		v = s.Min
	case "max":
		v = s.Max
	default:
		n := float64(s.N)
		return n, "", nil
	}
	if !ok || v == nil {
		return 0, "ms", fmt.Errorf("metric %q: no visit has a value%s", name, steadyHint(metric))
	}
	return *v, s.Unit, nil
}

func steadyHint(metric string) string {
	if strings.HasPrefix(metric, "steady_") || strings.HasPrefix(metric, "cost_") {
		return ": steady = N sends requests after each switch"
	}
	return ""
}

// EachPair replaces a name of every pair by those of the pairs that a result has.
func EachPair(res schemas.Result, name string) ([]string, error) {
	pair, metric, stat, ok := parseSwitch(name)
	if !ok || pair != AnyPair {
		return []string{name}, nil
	}
	if res.Switches == nil || len(res.Switches.Cells) == 0 {
		return nil, errors.New("metric " + name + ": this result has no switches: they are of mode switch")
	}
	var out []string
	for _, c := range res.Switches.Cells {
		out = append(out, SwitchName(c.From, c.To, metric+"."+stat))
	}
	return out, nil
}
