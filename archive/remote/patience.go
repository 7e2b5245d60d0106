package remote

import "time"

// A transfer that breaks off is taken up again where it broke. That is worth it
// while it gets on: worthBytes since the faults began to count. With less it is
// begun at most attempts times, for at most patienceTime.
const (
	worthBytes   = 1 << 20
	patienceTime = 15 * time.Minute
)

// patience counts the faults of one transfer.
type patience struct {
	faults int
	from   int64     // where the transfer was at the first of them
	since  time.Time // of the first of them
}

// fault counts one at an offset, and says whether it is worth going on.
func (p *patience) fault(at int64, now time.Time) bool {
	if p.faults > 0 && at-p.from >= worthBytes {
		p.faults = 0
	}
	if p.faults == 0 {
		p.from, p.since = at, now
	}
	p.faults++
	return p.faults < attempts && now.Sub(p.since) < patienceTime
}

// pause is how long to wait before it is taken up again.
func (p *patience) pause() time.Duration { return pause(p.faults - 1) }
