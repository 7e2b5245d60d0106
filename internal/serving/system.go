package serving

import (
	"context"
	"fmt"
	"iter"
	"slices"
)

// Request is one arrival.
type Request struct {
	Index        int // its place in the workload; given back in its outcome
	Model        int // index in Config.Models
	AtMs         int64
	InputTokens  int
	OutputTokens int
}

// Outcome is what became of a request.
type Outcome struct {
	Request
	Finished bool
	// Why it failed, for one that did not finish.
	Why Failure
	// EndMs is the time of the last token, or of the failure.
	EndMs int64
	// TokensMs are the times of its tokens, valid only during the call that hands
	// them out.
	TokensMs []int64
}

// Failure is the reason of a request that did not finish.
type Failure string

// The failures.
const (
	// FailedPatience: no token within the patience, at a later arrival.
	FailedPatience Failure = "patience"
	// FailedCapacity: its KV would not fit into the device even alone.
	FailedCapacity Failure = "capacity"
	// FailedReplica: no node has its model ready.
	FailedReplica Failure = "no_replica"
	// FailedCancelled: whoever asked has gone.
	FailedCancelled Failure = "cancelled"
)

// Stats count what happened.
type Stats struct {
	Requests         int   `json:"requests"`
	Finished         int   `json:"finished"`
	FailedPatience   int   `json:"failed_patience"`
	FailedCapacity   int   `json:"failed_capacity"`
	FailedReplica    int   `json:"failed_replica"`
	Tokens           int64 `json:"tokens"` // of finished requests
	ModelSwitches    int64 `json:"model_switches"`
	PrefillSteps     int64 `json:"prefill_steps"`
	DecodeSteps      int64 `json:"decode_steps"`
	Evictions        int64 `json:"evictions"`          // requests that lost their KV
	EndMs            int64 `json:"end_ms"`             // of the last event
	LargestKVPercent int   `json:"largest_kv_percent"` // of any device's capacity, in one step
}

// request is a Request under way.
type request struct {
	Request
	m        *model
	order    int // of arrival
	progress int
	hasKV    bool
	done     bool // finished or failed
	gone     bool // removed from its line
	seen     uint64
	batch    *plusBatch
	tokens   []int64
	home     worker // told when the request fails behind its back
	node     *node
}

func (r *request) context() int { return r.InputTokens + r.progress }

// worker is one device. It has at most one event at a time.
type worker interface {
	// fire is called at the time of its event.
	fire()
	// hasWork says whether it should be woken.
	hasWork() bool
	// lost says that a request in its queue failed.
	lost(r *request)
	// status is shared by all workers.
	status() *status
}

// status is the part of a worker that the system looks at.
type status struct{ busy bool }

// policy places requests.
type policy interface {
	// schedule places r, if there is one, and what else waits for a place.
	schedule(r *request)
	workers() []worker
	// grown is told of a new model, the last of the system's.
	grown()
}

// node is some of the workers with a policy of their own. A request stays on one.
type node struct {
	index   int
	policy  policy
	workers []worker
}

// System is a serving system under simulation.
type System struct {
	cfg    Config
	models []*model
	clock  Clock
	events events
	nowMs  int64
	nodes  []*node
	router *Router
	placer *Placer
	steals StealStats
	// observe, unless nil, sees what happens.
	observe func(Event)
	// each, unless nil, is told of tokens as they are made: no step is kept back.
	each func(r Request, timesMs ...int64)
	// waiting holds, in order of arrival, what may still fail for want of a token.
	waiting []*request
	head    int
	sink    func(Outcome) error
	err     error // of sink
	stats   Stats
	// cancelled counts FailedCancelled, which a simulation has none of.
	cancelled int
	spare     [][]int64
}

// New makes a system on the virtual clock.
func New(cfg Config) (*System, error) { return NewOn(Virtual{}, cfg) }

// NewOn makes a system on a clock.
func NewOn(clock Clock, cfg Config) (*System, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	models, err := cfg.models()
	if err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	s := &System{cfg: cfg, models: models, clock: clock, steals: StealStats{Enabled: cfg.WorkStealing, MinGap: cfg.StealMinGap, Rejections: map[StealRejection]int{}}}
	for i := range cfg.Nodes {
		n := &node{index: i}
		switch cfg.Policy {
		case PolicyServerlessLLM:
			n.policy = newSLLM(s, n)
		case PolicyServerlessLLMPlus:
			n.policy = newPlus(s, n)
		default:
			n.policy = newAegaeon(s, n)
		}
		n.workers = n.policy.workers()
		s.nodes = append(s.nodes, n)
	}
	if err := s.place(); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	return s, nil
}

// place deploys every model, in order, on its nodes.
func (s *System) place() error {
	var err error
	if s.router, err = NewRouter(s.cfg.Routing, s.cfg.Nodes); err != nil {
		return err
	}
	bytes := int64(min(s.cfg.ModelCacheGB*gib, 1<<60))
	if bytes == 0 {
		for _, m := range s.models {
			bytes += m.bytes
		}
	}
	var caches []*ModelCache
	for range s.nodes {
		caches = append(caches, NewModelCache(bytes))
	}
	if s.placer, err = NewPlacer(s.cfg.Placement, caches); err != nil {
		return err
	}
	for i, m := range s.models {
		if !slices.Contains(s.cfg.Undeployed, i) {
			s.placer.Deploy(m.index, []int64{m.bytes}, s.cfg.Replicas, Idle)
		}
	}
	s.placed()
	return nil
}

// placed notes where the models are ready.
func (s *System) placed() {
	for _, m := range s.models {
		m.nodes = s.placer.Ready(m.index)
	}
}

// cancelEvery is after how many events a simulation looks whether it was cancelled.
const cancelEvery = 1024

// Run serves the arrivals, which must come in order of time, and hands the outcome
// of each request out once, in order of its end. At equal times an arrival
// precedes everything else. A System runs once.
func (s *System) Run(ctx context.Context, arrivals iter.Seq[Request], sink func(Outcome) error) (Stats, error) {
	s.sink = sink
	next, stop := iter.Pull(arrivals)
	defer stop()
	r, more := next()
	_, virtual := s.clock.(Virtual)
	for n := 0; more || len(s.events.heap) > 0; n++ {
		arrives := more && (len(s.events.heap) == 0 || r.AtMs <= s.events.heap[0].atMs)
		at := r.AtMs
		if !arrives {
			at = s.events.heap[0].atMs
		}
		if !virtual || n%cancelEvery == 0 {
			if err := s.clock.Until(ctx, at); err != nil {
				return s.stats, fmt.Errorf("serving: %w", err)
			}
		}
		if arrives {
			if _, err := s.arrive(r); err != nil {
				return s.stats, fmt.Errorf("serving: %w", err)
			}
			r, more = next()
		} else {
			s.fire()
		}
		if s.err != nil {
			return s.stats, s.err
		}
	}
	s.stats.EndMs = s.nowMs
	return s.stats, nil
}

// nextMs is the time of the next event; false when there is none.
func (s *System) nextMs() (int64, bool) {
	if len(s.events.heap) == 0 {
		return 0, false
	}
	return s.events.heap[0].atMs, true
}

// fire handles the next event.
func (s *System) fire() {
	s.nowMs = s.events.heap[0].atMs
	s.events.take().who.fire()
	s.events.drop()
}

// arrive takes a request in. One that cannot be served has failed already.
func (s *System) arrive(in Request) (*request, error) {
	switch {
	case in.AtMs < s.nowMs || in.AtMs > maxMs:
		return nil, fmt.Errorf("request %d arrives at %d ms, after one at %d ms: sort the arrivals", in.Index, in.AtMs, s.nowMs)
	case in.Model < 0 || in.Model >= len(s.models):
		return nil, fmt.Errorf("request %d names model %d of %d", in.Index, in.Model, len(s.models))
	case in.InputTokens < 1 || in.OutputTokens < 1:
		return nil, fmt.Errorf("request %d has lengths %d and %d: want 1 or more", in.Index, in.InputTokens, in.OutputTokens)
	}
	s.nowMs = in.AtMs
	s.stats.Requests++
	r := &request{Request: in, m: s.models[in.Model], order: s.stats.Requests}
	if in.InputTokens+in.OutputTokens > r.m.capacity {
		s.fail(r, FailedCapacity)
		return r, nil
	}
	at, ok := s.router.Assign(s.stats.Requests-1, in.Model, r.m.nodes)
	if !ok {
		s.fail(r, FailedReplica)
		return r, nil
	}
	r.node = s.nodes[at]
	r.m.active[at]++
	s.note(Event{Kind: EventRoute, Request: in.Index, Model: in.Model, Node: at})
	s.waiting = append(s.waiting, r)
	s.reschedule(r.node, r)
	return r, nil
}

// reschedule is what happens on a node at every arrival, and when its policy asks
// for it.
func (s *System) reschedule(n *node, r *request) {
	s.expire()
	n.policy.schedule(r)
	for _, w := range n.workers {
		if st := w.status(); !st.busy && w.hasWork() {
			st.busy = true
			s.events.push(s.nowMs, w)
		}
	}
}

// expire fails what has waited too long. A request whose time came once and had
// a token then needs no second look.
func (s *System) expire() {
	for s.head < len(s.waiting) {
		r := s.waiting[s.head]
		if s.nowMs-r.AtMs <= s.cfg.PatienceMs {
			break
		}
		s.waiting[s.head] = nil
		s.head++
		if !r.done && r.progress == 0 {
			s.fail(r, FailedPatience)
			if r.home != nil {
				r.home.lost(r)
			}
		}
	}
	if s.head > 1024 && s.head > len(s.waiting)/2 {
		n := copy(s.waiting, s.waiting[s.head:])
		clear(s.waiting[n:])
		s.waiting, s.head = s.waiting[:n], 0
	}
}

func (s *System) fail(r *request, why Failure) {
	r.done = true
	switch why {
	case FailedPatience:
		s.stats.FailedPatience++
	case FailedReplica:
		s.stats.FailedReplica++
	case FailedCancelled:
		s.cancelled++
	default:
		s.stats.FailedCapacity++
	}
	s.note(Event{Kind: EventFail, Request: r.Index, Model: r.Model})
	s.release(r)
	s.hand(Outcome{Request: r.Request, Why: why, EndMs: s.nowMs})
}

func (s *System) release(r *request) {
	if r.node != nil {
		s.router.Release(r.node.index)
		r.m.active[r.node.index]--
	}
}

// step gives a request tokens at these times, and finishes it at its last one.
func (s *System) step(r *request, timesMs ...int64) {
	if r.done {
		return
	}
	if r.tokens == nil {
		r.tokens = s.tokens(r.OutputTokens)
	}
	r.tokens = append(r.tokens, timesMs...)
	r.progress += len(timesMs)
	r.hasKV = true
	if s.each != nil {
		s.each(r.Request, timesMs...)
	}
	if r.progress < r.OutputTokens {
		return
	}
	r.done = true
	s.stats.Finished++
	s.stats.Tokens += int64(r.progress)
	s.note(Event{Kind: EventFinish, Request: r.Index, Model: r.Model, Tokens: r.progress})
	s.release(r)
	s.hand(Outcome{Request: r.Request, Finished: true, EndMs: r.tokens[r.progress-1], TokensMs: r.tokens})
	s.spare = append(s.spare, r.tokens[:0])
	r.tokens = nil
}

// tokens returns room for n times, used before where possible.
func (s *System) tokens(n int) []int64 {
	if k := len(s.spare); k > 0 {
		t := s.spare[k-1]
		s.spare = s.spare[:k-1]
		return t
	}
	return make([]int64, 0, n)
}

func (s *System) hand(o Outcome) {
	if s.err == nil {
		s.err = s.sink(o)
	}
}

func (s *System) evict(r *request) {
	if r.hasKV && !r.done {
		s.stats.Evictions++
	}
	r.hasKV = false
}

func (s *System) noteKV(tokens int, m *model) {
	s.stats.LargestKVPercent = max(s.stats.LargestKVPercent, tokens*100/m.capacity)
}
