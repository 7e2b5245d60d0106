package report

import (
	"slices"

	"assay/internal/metrics"
	"assay/schemas"
)

// MeanSwitches is the matrix over trials: of every pair and quantity the mean of the
// trials' means, with an interval over trials. One matrix comes back as it is; nil
// for none, and where the trials had different models.
func MeanSwitches(list []*schemas.SwitchMatrix) *schemas.SwitchMatrix {
	list = slices.DeleteFunc(slices.Clone(list), func(m *schemas.SwitchMatrix) bool { return m == nil })
	switch {
	case len(list) == 0:
		return nil
	case len(list) == 1:
		return list[0]
	}
	for _, m := range list {
		if !slices.Equal(m.Models, list[0].Models) {
			return nil
		}
	}
	out := &schemas.SwitchMatrix{Over: schemas.SwitchOverTrials, Models: list[0].Models, Confidence: metrics.Confidence, Cells: []schemas.SwitchCell{}, Excluded: map[string]int{}}
	var all []map[string]schemas.SwitchStat
	for _, m := range list {
		for what, n := range m.Excluded {
			out.Excluded[what] += n
		}
		all = append(all, m.All)
	}
	out.All = meanStats(all)
	for _, from := range out.Models {
		for _, to := range out.Models {
			cell := schemas.SwitchCell{From: from, To: to}
			var stats []map[string]schemas.SwitchStat
			for _, m := range list {
				if c := SwitchCell(m, from, to); c != nil {
					cell.Visits += c.Visits
					stats = append(stats, c.Metrics)
				}
			}
			if len(stats) > 0 {
				cell.Metrics = meanStats(stats)
				out.Cells = append(out.Cells, cell)
			}
		}
	}
	return out
}

func meanStats(list []map[string]schemas.SwitchStat) map[string]schemas.SwitchStat {
	out := map[string]schemas.SwitchStat{}
	for _, name := range SwitchMetrics {
		var means []float64
		failed, told := 0, false
		for _, stats := range list {
			s, ok := stats[name]
			told = told || ok
			failed += s.Failed
			if s.Mean != nil {
				means = append(means, *s.Mean)
			}
		}
		if told {
			out[name] = SwitchStatOf(means, failed)
		}
	}
	return out
}
