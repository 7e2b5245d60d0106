package service

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

func (c *checker) runtime(b []byte, want Want) {
	doc, ok := c.object("/v1/aegaeon/runtime", b)
	if !ok {
		return
	}
	c.outstanding(doc["request_routing"])
	c.placements(doc["model_placements"], want.Models)
	if want.Nodes > 0 {
		c.nodes(doc["nodes"], want.Nodes)
	}
}

func (c *checker) outstanding(raw json.RawMessage) {
	var routing struct {
		Total *float64 `json:"total"`
	}
	switch err := json.Unmarshal(raw, &routing); {
	case err != nil || routing.Total == nil:
		c.unknown("service.outstanding", remedyOutstanding, "the runtime does not say how many requests are outstanding")
	case *routing.Total != 0:
		c.fail("service.outstanding", remedyOutstanding, "%.0f requests are outstanding", *routing.Total)
	default:
		c.pass("service.outstanding", "no request is outstanding")
	}
}

func (c *checker) nodes(raw json.RawMessage, want int) {
	var list []json.RawMessage
	var byName map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil && json.Unmarshal(raw, &byName) != nil {
		c.unknown("service.nodes", remedyNodes, "the runtime does not list nodes")
		return
	}
	if have := max(len(list), len(byName)); have != want {
		c.fail("service.nodes", remedyNodes, "%d nodes have joined, the configuration says %d", have, want)
		return
	}
	c.pass("service.nodes", "all %d nodes have joined", want)
}

func (c *checker) placements(raw json.RawMessage, models []string) {
	if len(models) == 0 {
		return
	}
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil || v == nil {
		c.unknown("service.placement", remedyPlacement, "the runtime does not say where models are")
		return
	}
	for _, name := range models {
		states := statesOf(v, name)
		switch {
		case len(states) == 0:
			if _, isTable := v.(map[string]any); isTable {
				c.fail("service.placement", remedyPlacement, "model %q is on no node", name)
			} else {
				c.unknown("service.placement", remedyPlacement, "the runtime does not say in a known form where model %q is", name)
			}
		case !slices.Contains(states, "READY"):
			c.fail("service.placement", remedyPlacement, "model %q is ready nowhere: %s", name, strings.Join(states, ", "))
		case slices.ContainsFunc(states, func(s string) bool { return s == "FAILED" || s == "LOADING" || s == "DRAINING" }):
			c.fail("service.placement", remedyPlacement, "model %q is not ready everywhere: %s", name, strings.Join(states, ", "))
		default:
			c.pass("service.placement", "model %q is ready", name)
		}
	}
}

// statesOf lists the states of a model's replicas, by node where there is a name. The
// nesting is not documented: by model or by node first, or a list of entries.
func statesOf(v any, model string) []string {
	switch v := v.(type) {
	case map[string]any:
		if under, ok := v[model]; ok {
			return leaves(under)
		}
		if named(v, model) {
			return leaves(v["state"])
		}
		var out []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, statesOf(v[k], model)...)
		}
		return out
	case []any:
		var out []string
		for _, item := range v {
			out = append(out, statesOf(item, model)...)
		}
		return out
	}
	return nil
}

func named(entry map[string]any, model string) bool {
	for _, k := range []string{"model", "model_name", "name"} {
		if entry[k] == model {
			return true
		}
	}
	return false
}

// leaves lists the states below a model: its own, or those of its nodes. Of a table
// with a state only that counts, its error is for people.
func leaves(v any) []string {
	switch v := v.(type) {
	case string:
		if s := strings.ToUpper(v); slices.Contains([]string{"ABSENT", "LOADING", "READY", "DRAINING", "FAILED"}, s) {
			return []string{s}
		}
	case map[string]any:
		if state, ok := v["state"]; ok {
			return leaves(state)
		}
		var out []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, leaves(v[k])...)
		}
		return out
	case []any:
		var out []string
		for _, item := range v {
			out = append(out, leaves(item)...)
		}
		return out
	}
	return nil
}
