package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"assay/schemas"
)

// wholeObserved is up to how many results are told with every series.
const wholeObserved = 1

// ObservedText says what was seen of the services while results were measured, ""
// if nothing was: every series of a few results, a line for each of many.
func ObservedText(results []schemas.StageResult) string {
	results = slices.DeleteFunc(slices.Clone(results), func(r schemas.StageResult) bool { return r.Result.Observed == nil || !tells(r.Result.Observed) })
	var b strings.Builder
	for _, r := range results {
		o := r.Result.Observed
		if len(results) > wholeObserved {
			fmt.Fprintf(&b, "%s: %s\n", observedTitle(r), shortObserved(o))
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", observedTitle(r), sourcesText(o))
		writeSeries(&b, o)
		writeChecks(&b, o)
	}
	return b.String()
}

// shortObserved is one line of the figures that explain most.
func shortObserved(o *schemas.Observed) string {
	var parts []string
	for _, s := range o.Series {
		switch {
		case s.Mean == nil || s.Max == nil || s.Subject != "":
		case s.Name == "running_requests":
			parts = append(parts, fmt.Sprintf("%s running (at most %s)", number(s.Mean), number(s.Max)))
		case s.Name == "waiting_requests":
			parts = append(parts, fmt.Sprintf("%s waiting (at most %s)", number(s.Mean), number(s.Max)))
		case s.Name == "kv_cache_use":
			parts = append(parts, fmt.Sprintf("KV cache %s full (at most %s)", number(s.Mean), number(s.Max)))
		case s.Name == "service_cpu_cores":
			parts = append(parts, number(s.Mean)+" processors")
		case s.Name == "service_rss_bytes":
			parts = append(parts, amount(s.Max, s.Unit)+" resident")
		}
	}
	if v := o.Values["energy_j"]; v.Value != nil {
		parts = append(parts, number(v.Value)+" J")
	}
	verdicts := map[string][]string{}
	for _, c := range o.Checks {
		verdicts[c.Agrees] = append(verdicts[c.Agrees], c.Name)
	}
	switch wrong := verdicts["false"]; {
	case len(wrong) > 0:
		parts = append(parts, "COUNTS DISAGREE: "+strings.Join(wrong, ", "))
	case len(verdicts["true"]) > 0:
		parts = append(parts, fmt.Sprintf("%d of %d counts agree", len(verdicts["true"]), len(o.Checks)))
	}
	for _, s := range o.Sources {
		if s.Errors > 0 {
			parts = append(parts, fmt.Sprintf("%s failed %d times", s.Name, s.Errors))
		}
	}
	if len(parts) == 0 {
		return sourcesText(o)
	}
	return strings.Join(parts, ", ")
}

// bareAmount is a number whose unit stands beside it already.
func bareAmount(v *float64, unit string) string {
	if unit == "bytes" {
		return amount(v, unit)
	}
	return number(v)
}

// amount is a number with its unit.
func amount(v *float64, unit string) string {
	if v != nil && unit == "bytes" && math.Abs(*v) < 1<<62 {
		return schemas.Size(int64(*v)).String()
	}
	return number(v) + " " + unit
}

func observedTitle(r schemas.StageResult) string {
	title := "observed during " + r.Stage
	if r.Trial != "" {
		title += " in " + r.Trial
	}
	if r.Result.Emulated {
		title += " (emulated)"
	}
	return title
}

// tells leaves out what was looked for and not there.
func tells(o *schemas.Observed) bool {
	for _, s := range o.Sources {
		if s.Status == schemas.ObservedSeen || s.Errors > 0 && s.Name != "metrics" {
			return true
		}
	}
	return false
}

func sourcesText(o *schemas.Observed) string {
	var parts []string
	for _, s := range o.Sources {
		switch {
		case s.Status == schemas.ObservedSeen && s.Errors+s.Skipped+s.Bad == 0:
			parts = append(parts, fmt.Sprintf("%s (%d looks)", s.Name, s.Looks))
		case s.Status == schemas.ObservedSeen:
			parts = append(parts, fmt.Sprintf("%s (%d looks, %d failed, %d left out, %d lines unreadable)", s.Name, s.Looks, s.Errors, s.Skipped, s.Bad))
		case s.Status == schemas.ObservedUnknown:
			parts = append(parts, fmt.Sprintf("%s (unknown: %s)", s.Name, s.Unknown))
		}
	}
	text := strings.Join(parts, ", ")
	if o.CPUCores != nil {
		text += fmt.Sprintf("; looking took %s processors", number(o.CPUCores))
	}
	return text
}

func writeSeries(b *strings.Builder, o *schemas.Observed) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(b, "  %-30s %s\n", name, fmt.Sprintf(format, args...))
	}
	var unknown []string
	for _, s := range o.Series {
		name := s.Name
		if s.Subject != "" {
			name += " of " + s.Subject
		}
		switch {
		case s.Kind == "counter" && s.Delta != nil:
			row(name, "%s", amount(s.Delta, s.Unit))
		case s.Kind == "histogram" && s.Mean != nil:
			row(name, "%s, mean of %d", amount(s.Mean, s.Unit), s.N)
		case s.Mean != nil:
			row(name, "%s on average (%s to %s)", amount(s.Mean, s.Unit), bareAmount(s.Min, s.Unit), bareAmount(s.Max, s.Unit))
		case s.First != nil && s.Last != nil:
			row(name, "%s before, %s after", amount(s.First, s.Unit), amount(s.Last, s.Unit))
		default:
			unknown = append(unknown, name)
		}
	}
	for _, name := range []string{"prefix_cache_hit_ratio", "energy_j", "j_per_request", "j_per_output_token", "events"} {
		if v, ok := o.Values[name]; ok && v.Value != nil {
			row(name, "%s", amount(v.Value, v.Unit))
		}
	}
	if len(unknown) > 0 {
		fmt.Fprintf(b, "  not known: %s; result.json says why\n", strings.Join(unknown, ", "))
	}
}

func writeChecks(b *strings.Builder, o *schemas.Observed) {
	var agree []string
	for _, c := range o.Checks {
		switch c.Agrees {
		case "true":
			agree = append(agree, c.Name)
		case "false":
			fmt.Fprintf(b, "  %s: THE SERVICE COUNTED %s, the client %s\n", c.Name, number(c.Service), number(c.Least))
		default:
			fmt.Fprintf(b, "  %s: not held against the client's: %s\n", c.Name, c.Unknown)
		}
	}
	if len(agree) > 0 {
		fmt.Fprintf(b, "  the service counted the same as the client: %s\n", strings.Join(agree, ", "))
	}
}
