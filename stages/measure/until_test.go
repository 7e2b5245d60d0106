package measure

import (
	"cmp"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"assay/schemas"
)

func slowly(model string) map[string]any {
	return map[string]any{"models": []any{map[string]any{"name": model, "prefill_base": "60ms", "prefill_per_token": "0s", "decode_per_token": "10ms"}}}
}

func TestClosedLoopOfADuration(t *testing.T) {
	e := startEngine(t, slowly("m0"), func() {})
	var digests []schemas.Digest
	for _, atEnd := range []string{"", "drain", "cut"} {
		config := map[string]any{"concurrency": 2.0, "duration": "350ms", "input": fixed(5), "output": fixed(4), "allow_errors": 0.0}
		if atEnd != "" {
			config["at_end"] = atEnd
		}
		s := generated(t, e, "", config)
		if err := run(context.Background(), s.task); err != nil {
			t.Fatalf("%s: %v", atEnd, err)
		}
		h, list := s.schedule(t)
		digests = append(digests, h.RequestsDigest)
		res, recs := s.result(t), s.records(t)
		if h.Requests != preparedAtLeast || len(list) != preparedAtLeast || h.DurationMs != 350 || h.AtEnd != cmp.Or(atEnd, "drain") {
			t.Errorf("%q: header %+v, %d planned", atEnd, h, len(list))
		}
		drained, cut := *res.Values["drained_at_end"].Value, *res.Values["cut_at_end"].Value
		// One may end by itself just when it is cut.
		if n := drained + cut; n < 1 || n > 2 || int(cut) != res.Counts.Outcomes[schemas.OutcomeCancelled] || atEnd != "cut" && (cut != 0 || res.Counts.OK != res.Counts.Issued) {
			t.Errorf("%q: drained %v, cut %v, %v", atEnd, drained, cut, res.Counts.Outcomes)
		}
		// 90 ms a request and two at once: nobody gets to a hundred in 350 ms.
		if res.Counts.Issued != len(recs) || len(recs) < 2 || len(recs) > 100 || len(res.Findings) > 0 && res.Findings[0].ID == "result.records" {
			t.Errorf("%q: %d issued, %d records, %+v", atEnd, res.Counts.Issued, len(recs), res.Findings)
		}
		if b, _ := os.ReadFile(s.path(OutputResult, ConditionsFile)); !strings.Contains(string(b), "350ms after the first arrival no request is begun") {
			t.Errorf("%q: the conditions do not state what ended the load: %s", atEnd, b)
		}
	}
	if digests[0] != digests[1] || digests[0] != digests[2] {
		t.Errorf("what is prepared must not depend on how it ends: %v", digests)
	}
}

func TestADurationThatOutlastsItsRequests(t *testing.T) {
	e := startEngine(t, fast("m0"), func() {})
	s := generated(t, e, "", map[string]any{"concurrency": 2.0, "duration": "20s", "requests": 6.0, "input": fixed(5), "output": fixed(2)})
	begun := time.Now()
	if err := run(context.Background(), s.task); err != nil || time.Since(begun) > 15*time.Second {
		t.Fatalf("%v after %s", err, time.Since(begun))
	}
	res := s.result(t)
	found := false
	for _, f := range res.Findings {
		found = found || f.ID == exhaustedFinding
	}
	if !found || res.Counts.OK != 6 || *res.Values["drained_at_end"].Value != 0 {
		t.Errorf("%+v %+v", res.Counts, res.Findings)
	}
}

func TestPreparedIsBounded(t *testing.T) {
	for _, c := range []struct {
		slots int
		d     time.Duration
		want  int
	}{{1, time.Second, 1000}, {8, time.Minute, 9600}, {60000, 24 * time.Hour, preparedAtMost}} {
		if got := prepared(c.slots, c.d); got != c.want {
			t.Errorf("%d slots for %s: %d, want %d", c.slots, c.d, got, c.want)
		}
	}
}

// What a service that was just started is sent before it answers at all is a phase
// of its own; a service that was used, or attached to, has none.
func TestStartupIsAPhase(t *testing.T) {
	e := startEngine(t, slowly("m0"), func() {})
	ready := 1234.0
	for _, c := range []struct {
		ready *float64
		uses  int
		want  int
	}{{&ready, 0, 2}, {&ready, 1, 0}, {nil, 0, 0}} {
		s := generated(t, e, "", map[string]any{"concurrency": 2.0, "requests": 6.0, "input": fixed(5), "output": fixed(2)})
		s.task.Service.ReadyMs, s.task.Service.Uses = c.ready, c.uses
		if err := run(context.Background(), s.task); err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, p := range s.result(t).Phases {
			if p.Phase == schemas.PhaseStartup {
				got += p.Counts.Issued
			}
		}
		h, _ := s.schedule(t)
		b, _ := os.ReadFile(s.path(OutputResult, ConditionsFile))
		if got != c.want || h.FirstUse != (c.want > 0) || strings.Contains(string(b), `"startup_ms","value":1234`) != (c.ready != nil) {
			t.Errorf("%+v: %d requests in the phase startup, header %+v\n%s", c, got, h, b)
		}
	}
}
