package observe

import (
	"fmt"

	"assay/schemas"
)

// Check holds the service's counts against the client's, adds what follows from
// both, and returns findings. counts are those of every request that was sent.
func Check(out *schemas.Observed, counts schemas.Counts, subject string) []schemas.Finding {
	var findings []schemas.Finding
	find := func(id, remedy, format string, args ...any) {
		findings = append(findings, schemas.Finding{ID: id, Severity: schemas.SeverityWarning, Subject: subject, Message: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	seen := false
	for _, s := range out.Sources {
		seen = seen || s.Name == "metrics" && s.Status == schemas.ObservedSeen
	}
	if seen {
		for _, c := range checks(*out, counts) {
			out.Checks = append(out.Checks, c)
			if c.Agrees != "false" {
				continue
			}
			find("server.counts-disagree", "somebody else may use the service, or one of both counts wrongly: read the records' usage and metrics.jsonl",
				"%s: the service counted %s, this client %s", c.Name, schemas.Decimal(*c.Service), rangeText(c))
		}
	}
	for _, s := range out.Series {
		if s.Name == "routed_requests" && s.First != nil && *s.First > 0 {
			find("server.in-use", "wait until request_routing.total is 0 before a measurement", "the service had %s requests to finish before the first one of this stage", schemas.Decimal(*s.First))
		}
	}
	if e, ok := out.Values["energy_j"]; ok {
		out.Values["j_per_request"] = per(e, "J/request", float64(counts.OK))
		out.Values["j_per_output_token"] = per(e, "J/token", float64(counts.OutputTokens))
	}
	return findings
}

func rangeText(c schemas.ObservedCheck) string {
	if c.Most == nil {
		return schemas.Decimal(*c.Least) + " or more"
	}
	if *c.Least == *c.Most {
		return schemas.Decimal(*c.Least)
	}
	return schemas.Decimal(*c.Least) + " to " + schemas.Decimal(*c.Most)
}

func per(v schemas.Value, unit string, n float64) schemas.Value {
	out := schemas.Value{Unit: unit, Reason: v.Reason}
	switch {
	case v.Value == nil:
	case n <= 0:
		out.Reason = "there is none of them"
	default:
		x := *v.Value / n
		out.Value = &x
	}
	return out
}

// checks compares deltas of counters. Failed requests may or may not have cost the
// service tokens, so they only bound a count from below.
func checks(out schemas.Observed, c schemas.Counts) []schemas.ObservedCheck {
	failed := c.Issued - c.OK
	asked := c.Issued - c.Outcomes[schemas.OutcomeNotSent]
	list := []schemas.ObservedCheck{
		check(out, "requests_finished", float64(c.OK), float64(asked), false),
		check(out, "prompt_tokens", float64(c.InputTokens), float64(c.InputTokens), failed > 0),
		check(out, "generation_tokens", float64(c.OutputTokens), float64(c.OutputTokens), failed > 0),
	}
	for source, n := range c.OutputTokenSources {
		// Without usage the client's counts are what it asked for and what came as
		// chunks: they prove nothing.
		if source == "usage" || n == 0 || failed > 0 {
			continue
		}
		for i := 1; i < len(list); i++ {
			if list[i].Agrees == "false" && !(source == "token_ids" && i == 2) {
				list[i].Agrees, list[i].Unknown = "unknown", fmt.Sprintf("%d requests came without usage", n)
			}
		}
	}
	return list
}

// check compares one counter. open says that there may be more than most.
func check(out schemas.Observed, name string, least, most float64, open bool) schemas.ObservedCheck {
	s := find(out.Series, name)
	c := schemas.ObservedCheck{Name: name, Metric: s.Metric, Least: &least, Most: &most, Service: s.Delta, Agrees: "true"}
	if open {
		c.Most = nil
	}
	switch {
	case s.Delta == nil:
		c.Agrees, c.Unknown = "unknown", s.Unknown
	case *s.Delta < least, !open && *s.Delta > most:
		c.Agrees = "false"
	}
	return c
}
