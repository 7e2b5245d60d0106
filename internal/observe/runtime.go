package observe

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
	ReplicaAbsent   = "ABSENT"
	ReplicaLoading  = "LOADING"
	ReplicaReady    = "READY"
	ReplicaDraining = "DRAINING"
	ReplicaFailed   = "FAILED"
)

// Placement is a model on a node.
type Placement struct{ State, Error string }

// Runtime is what is read of the places and counters in a service's account of its
// state. The names of its fields are public, their nesting is not: several are
// understood, and what is not is nil, not told. Counters are since the service began.
type Runtime struct {
	Placements map[string]map[string]Placement // model, node
	Cached     map[string][]string             // node: models whose weights it holds
	Assigned   map[string]map[string]float64   // model, node: requests
	Switches   map[string]float64              // node, "" where it is not said: switches of models
	Evictions  *float64
	Deployed   *float64 // attempts to deploy
}

// ParseRuntime reads a snapshot leniently.
func ParseRuntime(b []byte) (Runtime, error) {
	var top map[string]any
	if err := json.Unmarshal(b, &top); err != nil {
		return Runtime{}, fmt.Errorf("runtime snapshot: not a JSON object: %w", err)
	}
	if top == nil {
		return Runtime{}, errors.New("runtime snapshot: not a JSON object: null")
	}
	s := Runtime{Cached: cachedModels(top["nodes"]), Evictions: countOf(top["model_placement_stats"], "evictions"), Deployed: firstCount(top["model_placement_stats"], "deployment_attempts", "attempts")}
	s.Placements = placementsOf(top["model_placements"], slices.Collect(maps.Keys(s.Cached)))
	if routing, ok := top["request_routing"].(map[string]any); ok {
		if all, ok := routing["cumulative_assignments"].(map[string]any); ok {
			s.Assigned = assignedOf(all["by_model"])
		}
	}
	counts := map[string]float64{}
	if addSwitches(top["decode_load"], "", counts) {
		s.Switches = counts
	}
	return s, nil
}

// placementsOf reads {model: {node: {state, error} or state}}, the same with nodes
// outside, or a list of {model, node_id, state, error}.
func placementsOf(v any, nodes []string) map[string]map[string]Placement {
	out := map[string]map[string]Placement{}
	put := func(model, node string, p Placement) {
		if out[model] == nil {
			out[model] = map[string]Placement{}
		}
		if p.State != "" {
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
				put(outer, "", Placement{})
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
			if model := firstString(m, "model", "model_name", "model_id"); model != "" {
				put(model, nodeOf(m), placementOf(m))
			}
		}
	default:
		return nil
	}
	return out
}

func placementOf(v any) Placement {
	if s, ok := v.(string); ok {
		return Placement{State: strings.ToUpper(s)}
	}
	m, _ := v.(map[string]any)
	return Placement{State: strings.ToUpper(firstString(m, "state", "status")), Error: firstString(m, "error", "message")}
}

func firstString(m map[string]any, keys ...string) string {
	for _, k := range keys {
		if s, ok := m[k].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

func nodeOf(m map[string]any) string { return firstString(m, "node_id", "node", "id", "name") }

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
						out[node] = append(out[node], firstString(m, "model", "name", "model_name"))
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

// countOf is one of the counts of placement, over all nodes.
func countOf(v any, name string) *float64 {
	m, _ := v.(map[string]any)
	for _, from := range []any{m["total"], v} {
		t, _ := from.(map[string]any)
		if n, ok := t[name].(float64); ok {
			return &n
		}
	}
	nodes, _ := m["by_node"].(map[string]any)
	sum, told := 0.0, false
	for _, e := range nodes {
		t, _ := e.(map[string]any)
		if n, ok := t[name].(float64); ok {
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
		if n := firstString(x, "node_id", "node"); n != "" {
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

// ReadyOn lists the nodes on which a model is ready, in order.
func (s Runtime) ReadyOn(model string) []string {
	var out []string
	for node, p := range s.Placements[model] {
		if p.State == ReplicaReady {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}

func firstCount(v any, names ...string) *float64 {
	for _, n := range names {
		if c := countOf(v, n); c != nil {
			return c
		}
	}
	return nil
}

// SwitchCount is the switches of all nodes; false where they are not told.
func (s Runtime) SwitchCount() (n float64, told bool) {
	for _, k := range s.Switches {
		n += k
	}
	return n, s.Switches != nil
}
