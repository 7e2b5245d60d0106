package preflight

import (
	"context"
	"slices"
	"strings"
	"testing"

	"assay/schemas"
)

func TestCost(t *testing.T) {
	for name, c := range map[string]struct {
		measure map[string]any
		want    string
	}{
		"requests":         {map[string]any{"requests": 40.0}, "about 40 requests;"},
		"arrivals":         {map[string]any{"arrival": map[string]any{"rate": 2.0}, "duration": "2m"}, "about 240 requests over 2 min of arrivals"},
		"rate and number":  {map[string]any{"arrival": map[string]any{"rate": 2.0}, "requests": 600.0}, "about 600 requests over 5 min of arrivals"},
		"stage's workload": {map[string]any{"workload": "${stage.made.workload}", "speed": 2.0}, "about 360 requests over 1 min of arrivals"},
		"file":             {map[string]any{"workload": "w.csv"}, "about 2 requests"},
		"not known":        {map[string]any{"mode": "closed", "duration": "1m"}, "requests of 1 measurements whose number is not known"},
	} {
		exp := experiment()
		clear(exp.Stage)
		exp.Stage["made"] = schemas.StageDef{Kind: "workload", Config: map[string]any{"models": 3.0, "rate": 1.0, "duration": "2m"}}
		exp.Stage["m"] = schemas.StageDef{Kind: "measure", Config: c.measure}
		s := newStage(t, exp, map[string]any{"disk": "1B"})
		s.task.Trials = nil
		s.file(t, "w.csv", good)
		_ = run(context.Background(), s.task) // what it refuses stands in the output
		list := s.output(t)
		i := slices.IndexFunc(list, func(f schemas.Finding) bool { return f.ID == "plan.cost" })
		if i < 0 || !strings.Contains(list[i].Message, c.want) {
			t.Errorf("%s: want %q: %+v", name, c.want, list)
		}
	}
}
