package load

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"assay/schemas"
)

// summaryText is the summary as a table for people.
func summaryText(sum schemas.Load) string {
	var b strings.Builder
	mark := ""
	if sum.Emulated {
		mark = " (emulated: latencies are made up)"
	}
	fmt.Fprintf(&b, "loaded by %s%s; each request: %d prompt tokens, exactly %d tokens\n", sum.Via, mark, sum.InputTokens, sum.OutputTokens)
	rows := [][]string{{"model", "node", "cold load, ms", "CPU-cache hit", "GPU switch", "state"}}
	for _, m := range sum.Models {
		for _, r := range m.Replicas {
			rows = append(rows, []string{m.Model, firstText(r.Node, "—"), spanText(r), costText(r.CPUCacheHit), costText(r.GPUSwitch), firstText(r.State, "—")})
		}
		if len(m.Replicas) == 0 {
			rows = append(rows, []string{m.Model, "—", "—", "—", "—", "on no node"})
		}
	}
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range rows {
		line := " "
		for i, c := range r {
			line += " " + c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+1)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	b.WriteString("hit and switch: what the first use, and a switch, took beyond a request that found the model in place: TTFT, E2E in ms\n")
	for _, e := range sum.Evictions {
		fmt.Fprintf(&b, "evicted: %s from %s for %s (told by the %s)\n", e.Model, firstText(e.Node, "a node"), e.By, e.ToldBy)
	}
	for _, u := range sum.Undeployed {
		fmt.Fprintf(&b, "undeployed: %s, %s after %s ms\n", u.Model, firstText(u.Status, "failed"), schemas.Rounded(u.Ms, 4))
	}
	return b.String()
}

// spanText is a cold load: between two looks.
func spanText(r schemas.LoadReplica) string {
	if r.ColdLoad == nil {
		return firstText(r.Unknown, "—")
	}
	return schemas.Rounded(r.ColdLoad.AboveMs, 4) + " to " + schemas.Rounded(r.ColdLoad.AtMostMs, 4)
}

func costText(c *schemas.LoadCost) string {
	if c == nil {
		return "—"
	}
	return fmt.Sprintf("%s, %s (%d)", schemas.Rounded(c.TTFTMs, 4), schemas.Rounded(c.E2EMs, 4), c.N)
}

func number(v *float64) string {
	if v == nil {
		return "an unknown number of"
	}
	return schemas.Rounded(*v, 4)
}
