package preflight

import (
	"context"
	"slices"
	"strings"
	"testing"

	"assay/schemas"
)

func TestPlansAreChecked(t *testing.T) {
	length := func(n float64) map[string]any { return map[string]any{"dist": "fixed", "tokens": n} }
	for name, c := range map[string]struct {
		config map[string]any
		id     string
		want   schemas.Severity // "" for no such finding
		text   string
	}{
		"fits":          {map[string]any{"input": length(2000), "output": length(48)}, "workload.sequence", "pass", "2048"},
		"too long":      {map[string]any{"input": length(2000), "output": length(49)}, "workload.sequence", "error", "model q takes 2048"},
		"of a file":     {map[string]any{"workload": "w.csv", "input": length(9000), "output": length(9)}, "workload.sequence", "", ""},
		"capped":        {map[string]any{"workload": "w.csv", "max_total": 4096.0}, "workload.sequence", "error", "4096"},
		"few":           {map[string]any{"requests": 20.0}, "workload.samples", "info", "p99"},
		"enough":        {map[string]any{"requests": 700.0}, "workload.samples", "pass", ""},
		"body":          {map[string]any{}, "workload.body", "pass", ""},
		"body of chats": {map[string]any{"api": "chat"}, "workload.body", "pass", ""},
	} {
		exp := experiment()
		exp.Service["real"] = schemas.Service{Engine: "emulated", Config: map[string]any{"aegaeon_config": "a.yaml"}}
		exp.Stage["more"] = schemas.StageDef{Kind: "measure", Service: "real", Config: c.config}
		s := newStage(t, exp, map[string]any{"disk": "1B"})
		s.file(t, "w.csv", good)
		s.file(t, "a.yaml", tiny)
		_ = run(context.Background(), s.task) // what it refuses stands in the output
		list := s.output(t)
		i := slices.IndexFunc(list, func(f schemas.Finding) bool { return f.ID == c.id && f.Subject == "stage more: requests" })
		switch {
		case i < 0 && c.want != "":
			t.Errorf("%s: no %s: %+v", name, c.id, list)
		case i >= 0 && (list[i].Severity != c.want || !strings.Contains(list[i].Message, c.text)):
			t.Errorf("%s: %+v; want %q with %q", name, list[i], c.want, c.text)
		}
	}
}

func TestRowsThatNoModelTakesAreNamed(t *testing.T) {
	for limit, refused := range map[string]bool{"2": false, "1": true} {
		exp := experiment()
		exp.Service["real"] = schemas.Service{Engine: "emulated", Config: map[string]any{"aegaeon_config": "a.yaml"}}
		exp.Stage["more"] = schemas.StageDef{Kind: "measure", Service: "real", Config: map[string]any{"workload": "w.csv", "over_length": "refuse"}}
		s := newStage(t, exp, map[string]any{"disk": "1B"})
		s.file(t, "w.csv", good)
		s.file(t, "a.yaml", strings.Replace(tiny, "2048", limit, 1))
		_ = run(context.Background(), s.task) // what it refuses stands in the output
		got := slices.ContainsFunc(s.output(t), func(f schemas.Finding) bool {
			return f.ID == "workload.form" && f.Severity == schemas.SeverityError && f.Subject == "stage more: workload"
		})
		if got != refused {
			t.Errorf("limit %s: refused %v, want %v", limit, got, refused)
		}
	}
}
