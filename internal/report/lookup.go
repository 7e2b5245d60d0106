package report

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"assay/schemas"
)

// ErrUnknownMetric is in the chain of errors for a name that no result has, as
// opposed to one that has no value in this result.
var ErrUnknownMetric = errors.New("unknown metric")

var statNames = []string{"mean", "stddev", "min", "max", "p50", "p90", "p95", "p99", "n", "censored"}

// MetricNames lists every name that Lookup knows, in report order.
func MetricNames() []string {
	var out []string
	for _, d := range distributions {
		for _, s := range statNames {
			out = append(out, d.name+"."+s)
		}
	}
	return append(out, valueNames...)
}

// steadyPrefix before a name asks for it in the steady window.
const steadyPrefix = "steady."

// steadyNames lists the names that exist in a steady window, without the prefix.
func steadyNames() []string {
	return append(slices.DeleteFunc(MetricNames(), func(n string) bool { return slices.Contains(valueNames, n) }), windowNames...)
}

// CheckMetric says whether name is one that Lookup knows, and the nearest one if
// it is not.
func CheckMetric(name string) error {
	if isPanelName(name) {
		return nil
	}
	if isSwitchName(name) {
		return checkSwitchName(name)
	}
	names := MetricNames()
	if rest, ok := strings.CutPrefix(name, steadyPrefix); ok {
		names = steadyNames()
		if slices.Contains(names, rest) {
			return nil
		}
		if best := schemas.Nearest(rest, names); best != "" {
			return fmt.Errorf("%w %q: did you mean %q?", ErrUnknownMetric, name, steadyPrefix+best)
		}
	}
	if slices.Contains(names, name) {
		return nil
	}
	best := schemas.Nearest(name, names)
	if slices.ContainsFunc(distributions, func(d struct{ name, unit string }) bool { return d.name == name }) {
		best = name + ".mean"
	}
	if best == "" {
		return fmt.Errorf("%w %q: want METRIC.STATISTIC like qos.mean, or a single number like requests_per_s", ErrUnknownMetric, name)
	}
	return fmt.Errorf("%w %q: did you mean %q?", ErrUnknownMetric, name, best)
}

// Lookup returns the number that a claim or comparison names: "ttft_ms.p95",
// "qos.mean", "error_rate". The error says why there is none: an unknown name
// (ErrUnknownMetric), no samples, a percentile that falls among failures.
func Lookup(res schemas.Result, name string) (value float64, unit string, err error) {
	if err := CheckMetric(name); err != nil {
		return 0, "", err
	}
	if isSwitchName(name) {
		return switchNumber(res.Switches, name)
	}
	values, summaries := res.Values, res.Metrics
	if rest, ok := strings.CutPrefix(name, steadyPrefix); ok {
		switch {
		case res.Steady == nil:
			return 0, "", fmt.Errorf("metric %q: this result was not looked at for a steady window", name)
		case res.Steady.Unknown != "":
			return 0, "", fmt.Errorf("metric %q: no steady window: %s", name, res.Steady.Unknown)
		}
		values, summaries, name = res.Steady.Values, res.Steady.Metrics, rest
	}
	metric, stat, isStat := strings.Cut(name, ".")
	if isPanelName(name) {
		metric, isStat = name, false
	}
	if !isStat {
		v, ok := values[metric]
		if !ok {
			return 0, "", fmt.Errorf("metric %q: this result does not have it", name)
		}
		if v.Value == nil {
			return 0, v.Unit, fmt.Errorf("metric %q: %s", name, v.Reason)
		}
		return *v.Value, v.Unit, nil
	}
	s, ok := summaries[metric]
	if !ok {
		return 0, "", fmt.Errorf("metric %q: this result does not have it", name)
	}
	return statistic(s, name, stat)
}

func statistic(s schemas.Summary, name, stat string) (float64, string, error) {
	var v *float64
	switch stat {
	case "n":
		return float64(s.N), "", nil
	case "censored":
		return float64(s.Censored), "", nil
	case "mean":
		v = s.Mean
	case "stddev":
		v = s.StdDev
	case "min":
		v = s.Min
	case "max":
		v = s.Max
	default:
		p, _ := strconv.ParseFloat(stat[1:], 64)
		for _, row := range s.Percentiles {
			if row.P == p && row.Above != nil {
				return 0, s.Unit, fmt.Errorf("metric %q: the percentile falls among failed requests: it is above %s %s", name, schemas.Decimal(*row.Above), s.Unit)
			}
			if row.P == p {
				v = row.Value
			}
		}
	}
	if v == nil {
		why := "no samples"
		if s.Note != "" && s.N == 0 {
			why += ": " + s.Note
		}
		return 0, s.Unit, fmt.Errorf("metric %q: %s", name, why)
	}
	return *v, s.Unit, nil
}
