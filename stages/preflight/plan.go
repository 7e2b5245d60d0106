package preflight

import (
	"cmp"
	"fmt"
	"strconv"

	"assay/internal/engines/aegaeon"
	"assay/preflight/workload"
	"assay/schemas"
)

// plan checks what a measure stage will send against its service's rules.
func (c *collector) plan(name string, def schemas.StageDef) {
	subject := "stage " + name + ": requests"
	set := schemas.Settings(def.Config)
	svc := c.task.Experiment.Service[def.Service]
	for _, t := range c.trials() {
		p := workload.Plan{Requests: c.number(set, "requests", t), Sequence: c.longest(set, t), Limits: c.limits(svc, t)}
		if c.first(subject, fmt.Sprint(p)) {
			c.add(workload.CheckPlan(subject, p)...)
		}
	}
	own := schemas.Settings(svc.Config)
	if svc.Engine != "aegaeon" && own.Text("personality") != "aegaeon" && !own.Has("aegaeon_config") {
		return
	}
	api := cmp.Or(set.Text("api"), "completions")
	// The fields that the client sends; lengths are the plan's to judge.
	body := map[string]any{"model": "", "max_tokens": 1.0, "stream": true, "stream_options": map[string]any{"include_usage": true}, "temperature": 0.0, cmp.Or(own.Text("hold"), "ignore_eos"): nil}
	body[map[bool]string{true: "messages", false: "prompt"}[api == "chat"]] = nil
	c.add(workload.CheckBody(subject, api, body)...)
}

// number is a key's whole number as a trial sees it, 0 where it is not known.
func (c *collector) number(set schemas.Settings, key string, t schemas.Trial) int {
	switch v := set[key].(type) {
	case float64:
		return int(v)
	case string:
		if text, err := c.task.Resolve(v, t); err == nil {
			n, _ := strconv.Atoi(text)
			return n
		}
	}
	return 0
}

// longest is the most tokens that a request has, prompt and answer, 0 where the keys
// do not tell.
func (c *collector) longest(set schemas.Settings, t schemas.Trial) int {
	part := func(table, limit string) int {
		given, ok := set[table].(map[string]any)
		if !ok || set.Has("workload") || set.Has("prompts") {
			return c.number(set, limit, t)
		}
		law := schemas.Settings(given)
		return max(c.number(law, "tokens", t), c.number(law, "max", t))
	}
	in, out, total := part("input", "max_input"), part("output", "max_output"), c.number(set, "max_total", t)
	switch {
	case in == 0 || out == 0:
		return total
	case total > 0:
		return min(in+out, total)
	}
	return in + out
}

// limits are the longest sequences that a service's models take, as far as the
// experiment says.
func (c *collector) limits(svc schemas.Service, t schemas.Trial) map[string]int {
	out := map[string]int{}
	set := schemas.Settings(svc.Config)
	if file, err := c.task.Resolve(set.Text("aegaeon_config"), t); err == nil && file != "" {
		config, err := aegaeon.ReadConfig(c.task.Abs(file))
		if err != nil {
			return nil // which is said where the configuration is checked
		}
		for _, m := range config.Models {
			if m.MaxModelLen != nil {
				out[m.Name] = *m.MaxModelLen
			}
		}
	}
	if svc.Engine == "emulated" {
		for _, m := range set.Tables("models") {
			if n := c.number(m, "max_model_len", t); n > 0 {
				out[m.Text("name")] = n
			}
		}
	}
	return out
}
