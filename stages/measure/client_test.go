package measure

import (
	"context"
	"strings"
	"testing"

	"assay/internal/loadgen"
	"assay/schemas"
)

func TestTheClientIsJudged(t *testing.T) {
	s := newStage(t, startEngine(t, fast("m0", "m1"), func() {}), synthForm, map[string]any{})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	res := s.result(t)
	c := res.Client
	if c == nil || c.Predialled != 4 || c.LatenessMs == nil || c.LatenessMs.N != 4 || c.Stamps != 22 || c.CPUCores == nil || c.SchedLatencyMs == nil {
		t.Fatalf("verdict: %+v", c)
	}
	if c.Calibration != nil || !strings.Contains(c.Uncalibrated, "too short") {
		t.Errorf("calibration: %+v, %q", c.Calibration, c.Uncalibrated)
	}
	warned := false
	for _, f := range res.Findings {
		warned = warned || f.ID == "client.not-ok"
	}
	if warned != (c.OK == loadgen.ClientNotOK) {
		t.Errorf("client_ok %s, warned %v", c.OK, warned)
	}
}

func TestBelieved(t *testing.T) {
	for _, c := range []struct {
		require bool
		ok      string
		fails   bool
	}{{false, "false", false}, {true, "true", false}, {true, "false", true}, {true, "unknown", true}} {
		res := schemas.Result{Client: &schemas.ClientVerdict{OK: c.ok, Reasons: []string{"sent late"}}}
		err := believed(schemas.Settings{"require_client_ok": c.require}, res)
		if (err != nil) != c.fails || err != nil && !strings.Contains(err.Error(), "sent late") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
