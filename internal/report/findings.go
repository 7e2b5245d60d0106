package report

import (
	"fmt"
	"strings"

	"assay/internal/metrics"
	"assay/schemas"
)

// Send lag over which a finding says that the client was late.
const lateSendMs = 10

func (f *fold) addNotes(r *schemas.RequestRecord) {
	n := &f.notes
	if len(r.Chunks) > 0 {
		tokens := metrics.TokensPerChunk(r)
		if tokens.Source == metrics.TokensEstimated {
			n.estimated++
		}
		if tokens.Disagree || countsDiffer(r) {
			n.disagree++
		}
	}
	if r.AskedInputTokens > 0 && r.InputTokensSource == "usage" && r.InputTokens != nil && *r.InputTokens != r.AskedInputTokens {
		n.inputDiffers++
	}
	if !r.Held && r.Outcome == schemas.OutcomeOK && r.OutputTokens != nil && *r.OutputTokens != r.AskedOutputTokens {
		n.outputDiffers++
	}
	if r.Reconnects > 0 {
		n.reconnected++
	}
	queued, _ := metrics.QueueMs(r)
	if lag, ok := metrics.SendLagMs(r); ok && lag-queued > lateSendMs {
		n.lateSend++ // what a cap made it wait is not this client's lateness
	}
}

// countsDiffer compares the service's usage with the token ids it returned.
func countsDiffer(r *schemas.RequestRecord) bool {
	return r.OutputTokensSource == "usage" && r.OutputTokens != nil && len(r.TokenIDs) > 0 && len(r.TokenIDs) != *r.OutputTokens
}

func (f *fold) findings(res schemas.Result) []schemas.Finding {
	out := []schemas.Finding{}
	add := func(when bool, id string, sev schemas.Severity, remedy, format string, args ...any) {
		if when {
			out = append(out, schemas.Finding{ID: id, Severity: sev, Subject: f.opts.Subject, Message: fmt.Sprintf(format, args...), Remedy: remedy})
		}
	}
	n, c := f.notes, res.Counts
	add(f.opts.Emulated, "result.emulated", schemas.SeverityInfo, "",
		"measured on the emulated engine: its latencies are made up")
	add(f.opts.Simulated, "result.simulated", schemas.SeverityInfo, "",
		"simulated: a model of a serving system gave these times; nothing was measured")
	add(!res.Comparable, "result.speed", schemas.SeverityWarning, "compare qos only with results of the same speed",
		"arrivals were replayed at speed %s: qos and attainment are not comparable with speed 1", schemas.Decimal(f.opts.Speed))
	add(f.opts.Expected > 0 && c.Issued != f.opts.Expected, "result.records", schemas.SeverityError, "the log is not that of the whole schedule; run the stage again",
		"%d requests were scheduled but there are %d records", f.opts.Expected, c.Issued)
	add(c.Issued == 0, "result.empty", schemas.SeverityError, "check the workload and its window", "no request was issued")
	add(c.OK < c.Issued, "result.failures", schemas.SeverityWarning, "the records hold each failure's cause",
		"%d of %d requests failed: %s%s", c.Issued-c.OK, c.Issued, outcomeList(c), f.survivorNote(res))
	add(n.qosUndefined > 0, "result.qos-undefined", schemas.SeverityWarning, "",
		"qos is undefined for %d requests, whose last token came at their arrival time: they are left out of its mean", n.qosUndefined)
	add(f.opts.Course != nil && f.opts.Course.Drifts, "result.not-steady", schemas.SeverityWarning, "offer less or measure longer, or say which part is steady with warmup and drain",
		"requests in flight or TTFT drift until the last send: the run never became steady, and its percentiles depend on its length")
	add(n.estimated > 0, "result.tokens-estimated", schemas.SeverityWarning, "use a service that streams token ids or usage with every event",
		"for %d requests the service did not tell how many tokens each event carried: they were spread evenly over the events", n.estimated)
	add(n.disagree > 0, "result.tokens-disagree", schemas.SeverityWarning, "usage is used; check the service's counting",
		"for %d requests the service's token counts contradict each other", n.disagree)
	add(n.inputDiffers > 0, "result.input-length", schemas.SeverityInfo, "the service's own counts are used",
		"%d requests had another prompt length, by the service's count, than asked", n.inputDiffers)
	add(n.outputDiffers > 0, "result.output-length", schemas.SeverityInfo, "set ignore_eos to hold the service to the asked lengths",
		"%d requests ended with another output length than asked, and were not held to it", n.outputDiffers)
	add(n.lateSend > 0, "client.send-lag", schemas.SeverityWarning, "use a less loaded machine, or offer less; judge by the metrics from the schedule",
		"%d of %d requests were sent more than %d ms late: this client did not keep up", n.lateSend, c.Issued, lateSendMs)
	add(n.reconnected > 0, "client.reconnects", schemas.SeverityInfo, "raise the time for which the service, or what stands before it, keeps idle connections",
		"%d of %d requests were sent again on a new connection: the service had closed the idle one that they were sent on, with nothing answered. Their latencies count from the first send", n.reconnected, c.Issued)
	return out
}

// survivorNote says by how much a mean over the survivors would differ.
func (f *fold) survivorNote(res schemas.Result) string {
	all := res.Metrics["qos"].Mean
	dropped, ok := metrics.Mean(f.notes.qosOfOK)
	if all == nil || !ok {
		return ""
	}
	return fmt.Sprintf("; mean qos over all requests is %.4f, and would be %.4f if failures were dropped", *all, dropped)
}

func outcomeList(c schemas.Counts) string {
	var parts []string
	for _, o := range schemas.Outcomes {
		if n := c.Outcomes[o]; n > 0 && o != schemas.OutcomeOK {
			parts = append(parts, fmt.Sprintf("%s %d", o, n))
		}
	}
	return strings.Join(parts, ", ")
}
