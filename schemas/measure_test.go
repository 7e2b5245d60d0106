package schemas

import (
	"strings"
	"testing"
)

func TestMeasureMode(t *testing.T) {
	set := func(keys ...string) map[string]any {
		m := map[string]any{"shuffle": false}
		for _, k := range keys {
			name, v, is := strings.Cut(k, "=")
			m[name] = "x"
			if is {
				m[name] = v
			}
		}
		return m
	}
	for _, c := range []struct {
		config map[string]any
		mode   string
		err    string
	}{
		{set("workload"), ModeOpen, ""},
		{set("workload", "max_in_flight"), ModeOpen, ""},
		{set("workload", "concurrency"), ModeClosed, ""},
		{set("workload", "mode=sequential"), ModeSequential, ""},
		{set("arrival", "requests", "input", "output"), ModeOpen, ""},
		{set("arrival", "prompts"), ModeOpen, ""},
		{set("concurrency", "prompts"), ModeClosed, ""},
		{set("mode=switch", "input", "output"), ModeSwitch, ""},
		{set("mode=${param.mode}"), "", ""},
		{set(), "", "nothing says when"},
		{set("workload", "arrival"), "", "exactly one of workload and arrival"},
		{set("mode=open"), "", "exactly one of workload and arrival"},
		{set("arrival", "requests", "duration", "input", "output"), "", "exclude each other"},
		{set("arrival", "input", "output"), "", "requests or duration"},
		{set("arrival", "requests", "input"), "", "output is not set"},
		{set("concurrency", "arrival", "requests"), "", "arrival has no meaning"},
		{set("mode=closed", "workload"), "", "concurrency belongs"},
		{set("mode=sequential", "concurrency", "workload"), "", "concurrency belongs"},
		{set("mode=switch", "input", "output", "workload"), "", "workload has no meaning"},
		{set("workload", "input"), "", "input has no meaning"},
		{set("workload", "prompts"), "", "one file"},
		{set("concurrency", "duration", "input", "output"), ModeClosed, ""},
		{set("mode=sequential", "duration", "at_end", "requests", "input", "output"), ModeSequential, ""},
		{set("concurrency", "input", "output"), "", "requests or duration"},
		{set("concurrency", "prompts", "turns", "think"), ModeClosed, ""},
		{set("concurrency", "prompts", "think"), "", "think belongs to turns"},
		{set("concurrency", "workload", "turns"), "", "turns belongs to prompts"},
		{set("arrival", "prompts", "turns", "max_in_flight"), "", "max_in_flight has no meaning"},
		{set("concurrency", "workload", "at_end"), "", "at_end belongs"},
		{set("arrival", "duration", "at_end", "input", "output"), "", "at_end belongs"},
	} {
		mode, err := MeasureMode(c.config)
		if (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) || (err == nil && mode != c.mode) {
			t.Errorf("%v: %q, %v; want %q, %q", c.config, mode, err, c.mode, c.err)
		}
	}
}
