package loadgen

import (
	"testing"
	"time"

	"assay/schemas"
)

func TestMeterSaysHowFarALoadIs(t *testing.T) {
	zero := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }
	m := &Meter{}
	if got := m.Text(at(0)); got != "0/0, 0 in flight, TTFT not yet, 0 failed" {
		t.Errorf("before it began: %q", got)
	}
	m.Set(zero, at(1), Progress{Total: 40, Sent: 6, Done: 0})
	for i := range 99 {
		sent, first := int64(5e6), int64(5e6+(i+1)*1e6)
		m.Add(&schemas.RequestRecord{DispatchedNs: &sent, FirstTokenNs: &first})
	}
	m.Add(&schemas.RequestRecord{}) // failed: no time to first token
	m.Set(zero, at(5), Progress{Total: 40, Sent: 25, Done: 20, Failed: 1})
	// 20 in 5 s, so another 5 s; 20 ended in the 4 s since the first look. The 50th
	// and 99th of 1..99 ms, within an eighth.
	if got, want := m.Text(at(5)), "20/40, 5 in flight, 5.0/s, TTFT p50 50.3 p99 99.0 ms, 1 failed, ~5s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	m.Until, m.Timed = 30*time.Second, true
	if got, want := m.Text(at(5)), "20 done, 5 in flight, 5.0/s, TTFT p50 50.3 p99 99.0 ms, 1 failed, 25s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	m.Set(zero, at(31), Progress{Total: 40, Sent: 30, Done: 31, Failed: 1})
	if got, want := m.Text(at(31)), "31 done, ended early, 0.4/s, TTFT p50 50.3 p99 99.0 ms, 1 failed, last answers"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// The rate forgets.
	for s := 32.0; s < 60; s++ {
		m.Set(zero, at(s), Progress{Total: 40, Sent: 31, Done: 31})
	}
	if r, ok := m.rate(at(60)); !ok || r != 0 || len(m.seen) > 20 {
		t.Errorf("%v %v, %d kept", r, ok, len(m.seen))
	}
}
