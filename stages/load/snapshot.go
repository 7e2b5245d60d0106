package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The states of a replica, as Aegaeon names them.
const (
	stateAbsent   = "ABSENT"
	stateLoading  = "LOADING"
	stateReady    = "READY"
	stateDraining = "DRAINING"
	stateFailed   = "FAILED"
)

// placement is a model on a node.
type placement struct{ state, err string }

// snapshot is what is read of a service's account of its state. The names of its
// fields are public, their nesting is not: several are understood, and what is not is
// nil, not told.
type snapshot struct {
	placements map[string]map[string]placement // model, node
	cached     map[string][]string             // node: models whose weights it holds
	assigned   map[string]map[string]float64   // model, node: requests so far
	switches   map[string]float64              // node, "" where it is not said: switches so far
	evictions  *float64
}

func parseSnapshot(b []byte) (snapshot, error) {
	var top map[string]any
	if err := json.Unmarshal(b, &top); err != nil {
		return snapshot{}, fmt.Errorf("runtime snapshot: not a JSON object: %w", err)
	}
	if top == nil {
		return snapshot{}, errors.New("runtime snapshot: not a JSON object: null")
	}
	s := snapshot{cached: cachedModels(top["nodes"]), evictions: evictionsOf(top["model_placement_stats"])}
	s.placements = placementsOf(top["model_placements"], slices.Collect(maps.Keys(s.cached)))
	if routing, ok := top["request_routing"].(map[string]any); ok {
		if all, ok := routing["cumulative_assignments"].(map[string]any); ok {
			s.assigned = assignedOf(all["by_model"])
		}
	}
	counts := map[string]float64{}
	if addSwitches(top["decode_load"], "", counts) {
		s.switches = counts
	}
	return s, nil
}

// placementsOf reads {model: {node: {state, error} or state}}, the same with nodes
// outside, or a list of {model, node_id, state, error}.
func placementsOf(v any, nodes []string) map[string]map[string]placement {
	out := map[string]map[string]placement{}
	put := func(model, node string, p placement) {
		if out[model] == nil {
			out[model] = map[string]placement{}
		}
		if p.state != "" {
			out[model][node] = p
		}
	}
	switch x := v.(type) {
	case map[string]any:
		swapped := len(x) > 0 && len(nodes) > 0
		for outer := range x {
			swapped = swapped && slices.Contains(nodes, outer)
		}
		for outer, inner := range x {
			m, _ := inner.(map[string]any)
			if !swapped {
				put(outer, "", placement{})
			}
			for key, e := range m {
				if swapped {
					put(key, outer, placementOf(e))
				} else {
					put(outer, key, placementOf(e))
				}
			}
		}
	case []any:
		for _, e := range x {
			m, _ := e.(map[string]any)
			if model := text(m, "model", "model_name", "model_id"); model != "" {
				put(model, nodeOf(m), placementOf(m))
			}
		}
	default:
		return nil
	}
	return out
}

func placementOf(v any) placement {
	if s, ok := v.(string); ok {
		return placement{state: strings.ToUpper(s)}
	}
	m, _ := v.(map[string]any)
	return placement{state: strings.ToUpper(text(m, "state", "status")), err: text(m, "error", "message")}
}

func text(m map[string]any, keys ...string) string {
	for _, k := range keys {
		if s, ok := m[k].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

func nodeOf(m map[string]any) string { return text(m, "node_id", "node", "id", "name") }

func cachedModels(v any) map[string][]string {
	out := map[string][]string{}
	add := func(node string, v any) {
		m, _ := v.(map[string]any)
		cache, ok := m["model_cache"].(map[string]any)
		if node == "" || !ok {
			return
		}
		for _, k := range []string{"models", "cached_models"} {
			switch x := cache[k].(type) {
			case []any:
				out[node] = []string{}
				for _, e := range x {
					if s, ok := e.(string); ok {
						out[node] = append(out[node], s)
					} else if m, ok := e.(map[string]any); ok {
						out[node] = append(out[node], text(m, "model", "name", "model_name"))
					}
				}
			case map[string]any:
				out[node] = slices.Sorted(maps.Keys(x))
			}
		}
	}
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			m, _ := e.(map[string]any)
			add(nodeOf(m), e)
		}
	case map[string]any:
		for node, e := range x {
			add(node, e)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func assignedOf(v any) map[string]map[string]float64 {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	out := map[string]map[string]float64{}
	for model, split := range m {
		nodes, _ := split.(map[string]any)
		if inner, ok := nodes["by_node"].(map[string]any); ok {
			nodes = inner
		}
		out[model] = map[string]float64{}
		for node, n := range nodes {
			if f, ok := n.(float64); ok {
				out[model][node] = f
			}
		}
	}
	return out
}

func evictionsOf(v any) *float64 {
	m, _ := v.(map[string]any)
	for _, from := range []any{m["total"], v} {
		t, _ := from.(map[string]any)
		if n, ok := t["evictions"].(float64); ok {
			return &n
		}
	}
	nodes, _ := m["by_node"].(map[string]any)
	sum, told := 0.0, false
	for _, e := range nodes {
		t, _ := e.(map[string]any)
		if n, ok := t["evictions"].(float64); ok {
			sum, told = sum+n, true
		}
	}
	if !told {
		return nil
	}
	return &sum
}

// addSwitches sums the counts of engines: of objects with model_switches that have
// none within. A sum over engines that stands above them is left out so.
func addSwitches(v any, node string, into map[string]float64) (found bool) {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			found = addSwitches(e, node, into) || found
		}
	case map[string]any:
		if n := text(x, "node_id", "node"); n != "" {
			node = n
		}
		for key, e := range x {
			below := node
			if below == "" && strings.HasPrefix(key, "node_") {
				below = key
			}
			found = addSwitches(e, below, into) || found
		}
		if n, ok := x["model_switches"].(float64); ok && !found {
			into[node] += n
			found = true
		}
	}
	return found
}

// readyOn lists the nodes on which a model is ready, in order.
func (s snapshot) readyOn(model string) []string {
	var out []string
	for node, p := range s.placements[model] {
		if p.state == stateReady {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}
