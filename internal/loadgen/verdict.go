package loadgen

import (
	"fmt"

	"assay/schemas"
)

// Limits of a client that can be believed.
const (
	LatenessLimitMs = 1.0  // p99 of dispatched after scheduled
	SharedLimit     = 0.01 // share of stamps that are intervals, ends of streams apart
	ErrorLimitMs    = 1.0  // the error estimate
)

// The answers of a verdict.
const (
	ClientOK      = "true"
	ClientNotOK   = "false"
	ClientUnknown = "unknown"
)

// StampTally folds records into what a verdict needs of them.
type StampTally struct {
	lateness, width, open histogram
	stamps, shared, ends  int64
	reconnects            int64
	user, kernel          bool
}

// Add takes one record.
func (t *StampTally) Add(r *schemas.RequestRecord) {
	if r.DispatchedNs == nil {
		return
	}
	t.reconnects += int64(r.Reconnects)
	t.lateness.add(lateness(r))
	if len(r.Chunks) > 0 {
		t.user = t.user || r.StampSource == StampUser
		t.kernel = t.kernel || r.StampSource == StampKernel
	}
	for i, c := range r.Chunks {
		t.stamps++
		if c.SinceNs == nil {
			t.open.add(0)
			continue
		}
		t.shared++
		t.width.add(c.AtNs - *c.SinceNs)
		// Services send the last token and the end of the stream at once; that says
		// nothing of the client.
		if i == len(r.Chunks)-1 && r.FinishNs != nil && *r.FinishNs == c.AtNs {
			t.ends++
			continue
		}
		t.open.add(c.AtNs - *c.SinceNs)
	}
}

// lateness is how long after its time a request left, without what a cap on requests
// in flight made it wait: that was asked for, and queue_ms tells it.
func lateness(r *schemas.RequestRecord) int64 {
	if r.QueuedNs != nil {
		return *r.QueuedNs - r.ScheduledNs
	}
	return *r.DispatchedNs - r.ScheduledNs
}

// Judge fills in what the records told, and decides.
func (t *StampTally) Judge(v *schemas.ClientVerdict) {
	v.LatenessMs, v.SharedWidthMs = t.lateness.spread(), t.width.spread()
	v.Stamps, v.Shared, v.Reconnects = t.stamps, t.shared, t.reconnects
	v.Reasons = []string{}
	bad := func(format string, args ...any) { v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...)) }
	if v.LatenessMs == nil {
		v.OK = ClientUnknown
		bad("no request was sent")
		return
	}
	if v.LatenessMs.P99 > LatenessLimitMs {
		bad("requests left late: p99 %s ms, the limit is %s ms", schemas.Rounded(v.LatenessMs.P99, 3), schemas.Decimal(LatenessLimitMs))
	}
	judged := t.stamps - t.ends
	if share := ratio(t.shared-t.ends, judged); share > SharedLimit {
		bad("%s %% of the stamps are shared by several events, the limit is %s %%", schemas.Rounded(100*share, 2), schemas.Decimal(100*SharedLimit))
	}
	stampErr, known := t.stampErrorMs(v)
	estimate := max(v.LatenessMs.P99, stampErr)
	if known {
		v.ErrorMs = &estimate
		if stampErr > ErrorLimitMs {
			bad("stamps may be off by %s ms at p99, the limit is %s ms", schemas.Rounded(stampErr, 3), schemas.Decimal(ErrorLimitMs))
		}
	}
	switch {
	case len(v.Reasons) > 0:
		v.OK = ClientNotOK
	case t.stamps == 0:
		v.OK = ClientUnknown
		bad("no token event was seen")
	case !known:
		v.OK = ClientUnknown
		bad("stamps are taken when a read returns, and no calibration tells how late that is")
	default:
		v.OK = ClientOK
	}
}

// stampErrorMs estimates the 99th percentile of the error of stamps: the width of
// the intervals, and what the calibration found. Stamps taken in user space are
// known only by a calibration.
func (t *StampTally) stampErrorMs(v *schemas.ClientVerdict) (float64, bool) {
	worst := float64(t.open.quantile(0.99)) / 1e6
	if c := v.Calibration; c != nil {
		return max(worst, c.GapMs.P99, c.TTFTMs.P99), true
	}
	return worst, t.kernel && !t.user
}

func ratio(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
