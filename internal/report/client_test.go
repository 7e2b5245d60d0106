package report

import (
	"strings"
	"testing"

	"assay/schemas"
)

func TestClientFooter(t *testing.T) {
	good, bad := 0.25, 4.5
	result := func(trial string, v *schemas.ClientVerdict) schemas.StageResult {
		return schemas.StageResult{Stage: "replay", Trial: trial, Result: schemas.Result{Comparable: true, Client: v}}
	}
	var b strings.Builder
	err := Table([]schemas.StageResult{
		result("t001", &schemas.ClientVerdict{OK: "true", ErrorMs: &good, Stamps: 1000, Shared: 2, LatenessMs: &schemas.Spread{P99: 0.25}}),
		result("t002", &schemas.ClientVerdict{OK: "false", ErrorMs: &bad, Stamps: 100, Shared: 3, LatenessMs: &schemas.Spread{P99: 4.5}, Reasons: []string{"requests left late"}}),
		result("t003", &schemas.ClientVerdict{OK: "unknown", Reasons: []string{"no request was sent"}}),
		result("t004", nil),
	}, &b)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"client ok in 1 of 3, unknown in 1; at worst: error 4.500 ms, sent late by 4.500 ms (p99), 3.00% of stamps shared\n", "    t002: requests left late\n", "    t003: no request was sent\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}
