package load

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"assay/internal/observe"
	"assay/schemas"
)

// answer is what is read of an answer to deploy or undeploy.
type answer struct {
	status    string
	ready     []string // nodes
	remaining []string
	failed    []schemas.LoadFailure
	evicted   map[string][]string // node: models
}

func parseAnswer(b []byte) (answer, error) {
	var top map[string]any
	if err := json.Unmarshal(b, &top); err != nil {
		return answer{}, fmt.Errorf("the answer is not a JSON object: %w", err)
	}
	a := answer{status: text(top, "status"), ready: texts(top["ready_nodes"]), remaining: texts(top["remaining_nodes"]), failed: failures(top["failed"]), evicted: map[string][]string{}}
	a.addEvicted("", top)
	switch x := top["results"].(type) {
	case []any:
		for _, e := range x {
			m, _ := e.(map[string]any)
			a.addEvicted(nodeOf(m), m)
		}
	case map[string]any:
		for node, e := range x {
			m, _ := e.(map[string]any)
			a.addEvicted(node, m)
		}
	}
	return a, nil
}

func (a *answer) addEvicted(node string, m map[string]any) {
	for _, model := range texts(m["evicted"]) {
		if !slices.Contains(a.evicted[node], model) {
			a.evicted[node] = append(a.evicted[node], model)
		}
	}
}

// texts reads a list of strings, or of objects that name a model.
func texts(v any) []string {
	list, _ := v.([]any)
	out := []string{}
	for _, e := range list {
		switch x := e.(type) {
		case string:
			out = append(out, x)
		case map[string]any:
			if s := text(x, "model", "model_name", "node_id", "name"); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

// failures reads a list of {node_id, status, error}, of strings, or a table of nodes.
func failures(v any) []schemas.LoadFailure {
	out := []schemas.LoadFailure{}
	add := func(node string, e any) {
		m, _ := e.(map[string]any)
		f := schemas.LoadFailure{Node: node, Status: strings.ToUpper(text(m, "status", "state")), Error: text(m, "error", "message", "detail")}
		if node == "" {
			f.Node = nodeOf(m)
		}
		if s, ok := e.(string); ok && node == "" {
			f.Node = s
		} else if ok {
			f.Error = s
		}
		out = append(out, f)
	}
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			add("", e)
		}
	case map[string]any:
		for node, e := range x {
			add(node, e)
		}
		slices.SortFunc(out, func(a, b schemas.LoadFailure) int { return strings.Compare(a.Node, b.Node) })
	}
	return out
}

// draining says whether all that failed was busy: the call may be made again.
func draining(list []schemas.LoadFailure) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(f schemas.LoadFailure) bool { return f.Status != observe.ReplicaDraining })
}

// refusal is the text of an error's body: detail as an object, a list or a string.
func refusal(body []byte) string {
	var top map[string]any
	if json.Unmarshal(body, &top) == nil {
		for _, from := range []any{top["detail"], top["error"], top} {
			switch x := from.(type) {
			case string:
				return x
			case map[string]any:
				if s := text(x, "message", "detail", "msg"); s != "" {
					return s
				}
			case []any:
				if b, err := json.Marshal(x); err == nil {
					return string(b)
				}
			}
		}
	}
	return strings.TrimSpace(string(body))
}

func failureText(list []schemas.LoadFailure) string {
	var parts []string
	for _, f := range list {
		s := f.Node
		if f.Status != "" {
			s += " " + f.Status
		}
		if f.Error != "" {
			s += ": " + f.Error
		}
		parts = append(parts, strings.TrimSpace(s))
	}
	return strings.Join(parts, "; ")
}

// text is the first of these keys that holds a string.
func text(m map[string]any, keys ...string) string {
	for _, k := range keys {
		if s, ok := m[k].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

func nodeOf(m map[string]any) string { return text(m, "node_id", "node", "id", "name") }
