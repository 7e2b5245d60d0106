package serving

import "assay/internal/metrics"

// EventKind is what an Event tells of.
type EventKind string

// The kinds of events.
const (
	EventRoute   EventKind = "route"   // Request of Model to Node
	EventSwitch  EventKind = "switch"  // Worker begins to load Model
	EventPrefill EventKind = "prefill" // Worker begins a prefill of Tokens for Model
	EventDecode  EventKind = "decode"  // Worker begins a step of Model over Tokens of context
	EventSteal   EventKind = "steal"   // Worker offered a batch; To took it, unless Why says otherwise
	EventFinish  EventKind = "finish"  // Request of Model has Tokens, and no more come
	EventFail    EventKind = "fail"    // Request of Model ends without
	EventCapture EventKind = "capture" // the decode steps of Model have graphs from now on
	EventReplay  EventKind = "replay"  // the first decode step of Model that a graph serves
)

// Event is something that happened.
type Event struct {
	AtMs    int64
	Kind    EventKind
	Request int
	Model   int
	Node    int
	Worker  int
	To      int
	Tokens  int
	Ms      int64 // that a switch, prefill or decode takes
	Why     StealRejection
}

// Observe hands every event to f, in order. It is called before Run.
func (s *System) Observe(f func(Event)) { s.observe = f }

func (s *System) note(e Event) {
	if s.observe != nil {
		e.AtMs = s.nowMs
		s.observe(e)
	}
}

func (s *System) switched(worker int, m *model, ms int64) {
	s.stats.ModelSwitches++
	s.note(Event{Kind: EventSwitch, Worker: worker, Model: m.index, Ms: ms})
}

func (s *System) prefilled(worker int, m *model, tokens int, ms int64) {
	s.stats.PrefillSteps++
	s.note(Event{Kind: EventPrefill, Worker: worker, Model: m.index, Tokens: tokens, Ms: ms})
}

func (s *System) decoded(worker int, m *model, tokens int, ms int64) {
	s.stats.DecodeSteps++
	s.note(Event{Kind: EventDecode, Worker: worker, Model: m.index, Tokens: tokens, Ms: ms})
}

// Cluster is how the work was spread.
type Cluster struct {
	Decode []DecodeLoad `json:"decode_load"`
	// The coefficients of variation across the decode workers: population standard
	// deviation over mean, 0 for a mean of 0.
	OutputTokensCV float64          `json:"output_tokens_cv"`
	ActiveCV       float64          `json:"active_cv"`
	Stealing       StealStats       `json:"work_stealing"`
	Routing        RoutingStats     `json:"request_routing"`
	Placement      PlacementStats   `json:"model_placement"`
	PlacementNodes []PlacementStats `json:"model_placement_by_node"`
}

// Cluster returns the account of a run so far.
func (s *System) Cluster() Cluster {
	c := Cluster{Stealing: s.steals, Routing: s.router.Stats(), Decode: []DecodeLoad{}}
	c.Placement, c.PlacementNodes = s.placer.Stats()
	var tokens, active []float64
	for _, n := range s.nodes {
		p, ok := n.policy.(*aegaeon)
		if !ok {
			continue
		}
		for _, w := range p.decode {
			l := w.tally
			for _, b := range w.batches {
				l.Batches, l.Requests, l.KVTokens = l.Batches+1, l.Requests+len(b.reqs), l.KVTokens+b.total
			}
			c.Decode = append(c.Decode, l)
			tokens, active = append(tokens, float64(l.OutputTokens)), append(active, float64(l.ActiveMs))
		}
	}
	c.OutputTokensCV, _ = metrics.CV(tokens)
	c.ActiveCV, _ = metrics.CV(active)
	return c
}
