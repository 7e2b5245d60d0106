package cli

import (
	"fmt"
	"strings"
	"unicode"

	"assay/internal/loadgen"
	"assay/internal/report"
	"assay/schemas"
)

// probeRows is how many requests of a timed probe are printed; the rest is in its file.
const probeRows = 50

func probeText(p schemas.Probe) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s (%s), at most %d tokens", map[string]string{"single": "one request", "timed": "timed requests"}[p.Mode], p.URL, p.API, p.MaxTokens)
	if p.Result.Emulated {
		b.WriteString("; " + emulatedMark)
	}
	b.WriteByte('\n')
	if p.Mode == "single" && len(p.Requests) == 1 {
		b.WriteString(answerText(p.Requests[0]))
	} else {
		b.WriteString(answersText(p))
	}
	if p.Repeated {
		b.WriteString("prompts were sent more than once: later answers may come from a prefix cache\n")
	}
	if v := p.Result.Client; v != nil && v.OK == loadgen.ClientNotOK {
		fmt.Fprintf(&b, "the client cannot be believed to the millisecond: %s\n", strings.Join(v.Reasons, "; "))
	}
	return b.String()
}

// answerText is one request: when what came, in the order of its coming.
func answerText(a schemas.ProbeRequest) string {
	var b strings.Builder
	fmt.Fprintf(&b, "model %s, outcome %s", a.Model, a.Outcome)
	if a.HTTPStatus != 0 {
		fmt.Fprintf(&b, ", status %d", a.HTTPStatus)
	}
	if a.FinishReason != "" {
		fmt.Fprintf(&b, ", finish reason %s", printable(a.FinishReason))
	}
	b.WriteByte('\n')
	if a.Error != "" {
		fmt.Fprintf(&b, "error: %s\n", printable(a.Error))
	}
	t := newTable("ms", "from the send to").right(0)
	row := func(ms *float64, what string) {
		if ms != nil {
			t.row(fmt.Sprintf("%.2f", *ms), what)
		}
	}
	if a.FirstTextMs == nil {
		t.row(report.Unknown, "first text: none came")
	}
	row(a.FirstTextMs, "first text: the first non-empty text chunk")
	row(a.TotalMs, "end")
	t.row("", "")
	row(a.ConnectedMs, "connected")
	row(a.FirstByteMs, "first byte of the answer")
	row(a.HeadersMs, "headers read")
	row(a.EmptyMs, "first event, without output (a role alone)")
	if a.HiddenChunks > 0 {
		row(a.FirstOutputMs, "first output of any kind (reasoning, tool calls)")
	}
	row(a.LastTextMs, "last text")
	row(a.FinishMs, "finish reason")
	row(a.UsageMs, "usage")
	row(a.DoneMs, "[DONE], or the complete body")
	b.WriteString(t.String())
	fmt.Fprintf(&b, "%d text chunks", a.TextChunks)
	if a.HiddenChunks > 0 {
		fmt.Fprintf(&b, ", %d with other output", a.HiddenChunks)
	}
	fmt.Fprintf(&b, "; %s; prompt tokens %s; stamps by the %s\n", tokensText(a), count(a.InputTokens), map[string]string{"kernel": "kernel", "user": "client's reads"}[a.StampSource])
	if a.Text != "" {
		fmt.Fprintf(&b, "\n%s\n", printable(a.Text))
	}
	if a.TextCut {
		b.WriteString("(the text goes on)\n")
	}
	return b.String()
}

// tokensText never takes chunks for tokens.
func tokensText(a schemas.ProbeRequest) string {
	if a.OutputTokens == nil {
		return "tokens unknown: the service told no count"
	}
	return fmt.Sprintf("%d tokens by %s", *a.OutputTokens, a.OutputTokensSource)
}

func count(n *int) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

// answersText is a timed probe: a row a request, then what they have in common.
func answersText(p schemas.Probe) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s requests/s on average for %s s, seed %d, models from %s\n", schemas.Decimal(p.RatePerS), schemas.Decimal(p.DurationS), p.Seed, p.ModelSource)
	t := newTable("at s", "model", "outcome", "first text ms", "end ms", "chunks", "tokens", "text").right(0, 3, 4, 5, 6)
	ms := func(v *float64) string {
		if v == nil {
			return report.Unknown
		}
		return fmt.Sprintf("%.1f", *v)
	}
	for i, a := range p.Requests {
		if i == probeRows {
			break
		}
		text := a.Text
		if a.Error != "" {
			text = a.Error
		}
		t.row(fmt.Sprintf("%.2f", a.ScheduledS), a.Model, string(a.Outcome), ms(a.FirstTextMs), ms(a.TotalMs), fmt.Sprint(a.TextChunks), count(a.OutputTokens), oneLine(text, 40))
	}
	b.WriteString(t.String())
	if more := len(p.Requests) - probeRows; more > 0 {
		fmt.Fprintf(&b, "... and %d more\n", more)
	}
	s := p.Result.Metrics["ttft_visible_ms"]
	fmt.Fprintf(&b, "%d of %d ok; first text p50 %s p95 %s p99 %s ms", p.Result.Counts.OK, p.Result.Counts.Issued, percentile(s, 50), percentile(s, 95), percentile(s, 99))
	s = p.Result.Metrics["e2e_ms"]
	fmt.Fprintf(&b, "; end p50 %s p95 %s p99 %s ms (* too few samples for it)\n", percentile(s, 50), percentile(s, 95), percentile(s, 99))
	return b.String()
}

// printable keeps what a service answered from being taken for a terminal's commands.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// oneLine is the beginning of a text, of at most n characters.
func oneLine(s string, n int) string {
	line := []rune(strings.Join(strings.Fields(printable(s)), " "))
	if len(line) > n {
		return string(line[:n-1]) + "…"
	}
	return string(line)
}
