package source

import (
	"slices"

	"assay/schemas"
)

// judgement is what the report says of the run. Fields that are missing were told.
func (c *checker) judgement(flawed bool) {
	r := c.result.Report
	if !r.Passed && !flawed {
		c.fail("source.report-passed", ReportFile, "passed is false")
	}
	if len(r.Checks) == 0 && !flawed {
		c.fail("source.report-checks", ReportFile, "checks: the list is empty: passed alone proves nothing")
	}
	seen := map[string]bool{}
	for _, k := range r.Checks {
		if !k.OK {
			detail := k.Detail
			if detail != "" {
				detail = ": " + detail
			}
			c.fail("source.report-checks", ReportFile, "check %q did not hold%s", k.ID, detail)
		}
		if seen[k.ID] {
			c.fail("source.report-checks", ReportFile, "check %q is there twice", k.ID)
		}
		seen[k.ID] = true
	}
	if flawed {
		return
	}
	c.models()
	c.switches()
}

func (c *checker) models() {
	r := c.result.Report
	if len(r.Models) == 0 {
		c.fail("source.models", ReportFile, "models: the list is empty")
	}
	seen := map[string]bool{}
	for _, m := range r.Models {
		need := len(r.Graph.BatchSizes) // for one rank at least
		switch {
		case seen[m.Name]:
			c.fail("source.models", ReportFile, "model %s is there twice", m.Name)
		case m.Ranks < 1:
			c.fail("source.models", ReportFile, "model %s: ranks is %d: there is no decode rank with graphs", m.Name, m.Ranks)
		case m.GraphsCaptured < need:
			c.fail("source.models", ReportFile, "model %s: graphs_captured is %d, for %d batch sizes", m.Name, m.GraphsCaptured, need)
		case !m.TokenIDsEqual.OffSave || !m.TokenIDsEqual.OffLoad:
			c.fail("source.models", ReportFile, "model %s: token_ids_equal: answers with graphs are not those without (off_save %t, off_load %t)", m.Name, m.TokenIDsEqual.OffSave, m.TokenIDsEqual.OffLoad)
		case !m.ReplaySeen:
			c.fail("source.models", ReportFile, "model %s: replay_seen is false: its graphs were never replayed", m.Name)
		}
		seen[m.Name] = true
	}
	g := r.Graph
	if len(g.BatchSizes) == 0 || g.SeqLenBucket < 1 {
		c.fail("source.models", ReportFile, "graph: batch_sizes and seq_len_bucket say that nothing was captured")
	}
}

// switches wants A to B and back, for every model of a run with several.
func (c *checker) switches() {
	r := c.result.Report
	known, to, from := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range r.Models {
		known[m.Name] = true
	}
	for i, s := range r.SwitchSequence {
		switch {
		case !known[s.From] || !known[s.To]:
			c.fail("source.switches", ReportFile, "switch_sequence[%d]: from %q to %q: the report has no such model", i, s.From, s.To)
		case !s.OK:
			c.fail("source.switches", ReportFile, "switch_sequence[%d]: the switch from %s to %s is not ok", i, s.From, s.To)
		case s.From == s.To:
			c.fail("source.switches", ReportFile, "switch_sequence[%d]: from %s to itself is no switch", i, s.From)
		}
		from[s.From], to[s.To] = true, true
	}
	if len(r.Models) < 2 {
		return
	}
	for _, m := range r.Models {
		if !from[m.Name] || !to[m.Name] {
			c.fail("source.switches", ReportFile, "model %s was not switched to and away from", m.Name)
		}
	}
	if len(r.SwitchSequence) > 0 && !slices.ContainsFunc(r.SwitchSequence, func(s schemas.ValidatedSwitch) bool {
		return slices.ContainsFunc(r.SwitchSequence, func(back schemas.ValidatedSwitch) bool { return back.From == s.To && back.To == s.From })
	}) {
		c.fail("source.switches", ReportFile, "switch_sequence: no model was switched back to (A to B to A)")
	}
}
