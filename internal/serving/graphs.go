package serving

import "slices"

// Graphs are recorded decode steps, which take less time to replay than to launch.
type Graphs struct {
	// BatchSizes that have a graph; a batch of another size is launched as ever.
	BatchSizes []int
	// MaxSeqLen is the longest context that a graph serves, in tokens.
	MaxSeqLen int
	// Factor is what the time of a replayed step is multiplied by.
	Factor float64
	// Ready says that all models have graphs from the start; otherwise each has them
	// from its first decode step on.
	Ready bool
}

// graph is the factor of a decode step's time. Pending steps have been made and are
// not in the requests' contexts yet.
func (s *System) graph(m *model, running []*request, pending int) float64 {
	g := s.cfg.Graphs
	if g == nil || len(running) == 0 {
		return 1
	}
	if !m.captured {
		m.captured = true
		s.note(Event{Kind: EventCapture, Model: m.index})
		return 1
	}
	longest := 0
	for _, r := range running {
		longest = max(longest, r.context()+pending+1)
	}
	if longest > g.MaxSeqLen || !slices.Contains(g.BatchSizes, len(running)) {
		return 1
	}
	if !m.replayed {
		m.replayed = true
		s.note(Event{Kind: EventReplay, Model: m.index})
	}
	return g.Factor
}
