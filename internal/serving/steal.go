package serving

// Decode work stealing: at the end of its round a decode worker may hand one whole
// batch to a worker that has nothing to do. What is decided here sees snapshots
// alone, no clock and no queue, so that a simulation and a live engine decide alike.

// MinStealGap is the least gap of batches between donor and receiver that may be
// configured.
const MinStealGap = 2

// StealWorker is what a decision sees of a decode worker.
type StealWorker struct {
	ID     int // orders workers
	Loaded int // index of the resident model; negative for none
	// Batches it owns, in the order in which it will run them: the first is its head.
	Batches []StealBatch
}

// StealBatch is what a decision sees of a batch.
type StealBatch struct {
	ID    int64 // of its own among all batches
	Model int
	// Started says that an iteration of it is under way.
	Started bool
	// KVInHost says that its KV can be taken over through the host's memory.
	KVInHost bool
}

// Steal is a decision: the batch goes from the donor to the receiver, whole.
type Steal struct {
	Donor, Receiver int
	Position        int   // of the batch in the donor's queue
	Batch           int64 // its ID
	Affinity        bool  // the receiver has its model loaded
}

// StealRejection is why an attempt moved nothing; empty for one that did.
type StealRejection string

// The rejections.
const (
	StealNoReceiver  StealRejection = "no_idle_receiver"
	StealGap         StealRejection = "gap_too_small"
	StealNoCandidate StealRejection = "no_unstarted_batch"
	StealKVElsewhere StealRejection = "kv_not_in_host"
	StealStale       StealRejection = "stale"
	StealInternal    StealRejection = "internal_error"
)

// PlanSteal decides for a donor at the end of its round. Others are the other
// decode workers; those without a batch may receive. Among the donor's batches the
// head and started ones stay. A batch whose model a receiver has loaded comes
// first; then the receiver's ID decides, then the place in the queue.
func PlanSteal(donor StealWorker, others []StealWorker, minGap int) (Steal, StealRejection) {
	best, found, idle := Steal{}, false, false
	why := StealNoCandidate
	for _, r := range others {
		if r.ID == donor.ID || len(r.Batches) > 0 {
			continue
		}
		idle = true
		for i, b := range donor.Batches {
			switch reason := eligible(donor, i); {
			case reason == StealKVElsewhere:
				why = reason
				continue
			case reason != "":
				continue
			}
			s := Steal{Donor: donor.ID, Receiver: r.ID, Position: i, Batch: b.ID, Affinity: r.Loaded >= 0 && r.Loaded == b.Model}
			if !found || s.before(best) {
				best, found = s, true
			}
		}
	}
	switch {
	case !idle:
		return Steal{}, StealNoReceiver
	case len(donor.Batches) < max(minGap, MinStealGap):
		return Steal{}, StealGap
	case !found:
		return Steal{}, why
	}
	return best, ""
}

// before orders decisions of one donor.
func (s Steal) before(o Steal) bool {
	switch {
	case s.Affinity != o.Affinity:
		return s.Affinity
	case s.Receiver != o.Receiver:
		return s.Receiver < o.Receiver
	}
	return s.Position < o.Position
}

func eligible(donor StealWorker, position int) StealRejection {
	b := donor.Batches[position]
	switch {
	case position == 0 || b.Started:
		return StealNoCandidate
	case !b.KVInHost:
		return StealKVElsewhere
	}
	return ""
}

// CheckSteal looks at a decision again, right before anything is moved: what was
// true when it was made must be true now.
func CheckSteal(s Steal, donor, receiver StealWorker, minGap int) StealRejection {
	switch {
	case donor.ID != s.Donor || receiver.ID != s.Receiver || donor.ID == receiver.ID:
		return StealInternal
	case s.Position < 0 || s.Position >= len(donor.Batches) || donor.Batches[s.Position].ID != s.Batch:
		return StealStale
	case len(receiver.Batches) > 0:
		return StealStale
	case len(donor.Batches)-len(receiver.Batches) < max(minGap, MinStealGap):
		return StealGap
	}
	return eligible(donor, s.Position)
}

// StealStats count attempts, one for each round that ends with two batches or more.
type StealStats struct {
	Enabled   bool `json:"enabled"`
	MinGap    int  `json:"min_batch_gap"`
	Attempts  int  `json:"attempts"`
	Successes int  `json:"successes"`
	// Affine are those successes that need no switch of models.
	Affine     int                    `json:"affine"`
	Rejections map[StealRejection]int `json:"rejections"`
}

// Count notes an attempt.
func (s *StealStats) Count(decision Steal, why StealRejection) {
	s.Attempts++
	if why == "" {
		s.Successes++
		if decision.Affinity {
			s.Affine++
		}
		return
	}
	if s.Rejections == nil {
		s.Rejections = map[StealRejection]int{}
	}
	s.Rejections[why]++
}

// DecodeLoad is what one decode worker did. The first token of a request is made
// by a prefill and not counted here.
type DecodeLoad struct {
	Worker       int   `json:"worker"`
	OutputTokens int64 `json:"output_tokens"`
	// ActiveMs is the time of switches, of moving KV and of steps.
	ActiveMs  int64 `json:"active_ms"`
	Steps     int64 `json:"decode_steps"`
	Rounds    int64 `json:"rounds_completed"`
	Turns     int64 `json:"turns_completed"`
	Switches  int64 `json:"model_switches"`
	Donated   int64 `json:"work_steals_donated"`
	Received  int64 `json:"work_steals_received"`
	Batches   int   `json:"queued_batches"`
	Requests  int   `json:"queued_requests"`
	KVTokens  int   `json:"queued_tokens"`
	NodeIndex int   `json:"node"`
}
