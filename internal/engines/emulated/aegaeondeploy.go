package emulated

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"assay/internal/serving"
)

// deployForm is the body of deploy and undeploy. Fields that are not known are
// ignored there.
var deployForm = form{
	"model": {kind: kindText, required: true}, "model_path": {kind: kindText, null: true}, "max_model_len": {kind: kindInt, null: true, min: atLeast(1)},
	"node_ids": {kind: kindList, null: true}, "replica_count": {kind: kindInt, min: atLeast(1)}, "tool_parser": {kind: kindText, null: true},
}

func nodeName(n int) string { return "node_" + strconv.Itoa(n) }

func nodeNames(list []int) []string {
	out := []string{}
	for _, n := range list {
		out = append(out, nodeName(n))
	}
	return out
}

// nodesOf reads node_ids, nil for none.
func (a *aegaeonState) nodesOf(in map[string]any) ([]int, *apiError) {
	list, _ := in["node_ids"].([]any)
	var out []int
	for i, e := range list {
		text, ok := e.(string)
		if !ok {
			return nil, unprocessable(invalid{Type: "string_type", Loc: []any{"body", "node_ids", i}, Msg: "Input should be a valid string", Input: e})
		}
		n, err := strconv.Atoi(strings.TrimPrefix(text, "node_"))
		if err != nil || nodeName(n) != text || n < 0 || n >= a.s.config.nodes() {
			return nil, badRequest("node_ids", fmt.Sprintf("there is no node %q", text))
		}
		out = append(out, n)
	}
	return out, nil
}

func (c Config) nodes() int { return max(1, c.Serving.Int("nodes")) }

// operation is what became of one node.
type operation struct {
	Node    string   `json:"node_id"`
	Status  string   `json:"status"`
	Error   string   `json:"error,omitempty"`
	Evicted []string `json:"evicted,omitempty"`
}

func (a *aegaeonState) deploy(w http.ResponseWriter, in map[string]any) *apiError {
	nodes, refused := a.nodesOf(in)
	if refused != nil {
		return refused
	}
	// One call at a time changes what is where. Requests are answered meanwhile.
	a.placing.Lock()
	defer a.placing.Unlock()
	m, again, refused := a.target(in)
	if refused != nil {
		return refused
	}
	replicas := 1
	if n, ok := in["replica_count"].(float64); ok {
		replicas = int(n)
	}
	var busy []int
	done := make(chan serving.Deployment, 1)
	if err := a.s.live.system.DoNow(func(sys *serving.System) {
		if again {
			var free []int
			if free, busy = removeAll(sys, m.index); len(nodes) == 0 {
				nodes = free
			}
		}
		sys.Deploy(m.index, nodes, min(replicas, a.s.config.nodes()), func(d serving.Deployment) { done <- d })
	}); err != nil {
		return errNotReady
	}
	select {
	case d := <-done:
		return a.deployed(w, m, d, busy)
	case <-a.s.live.system.Stopped():
		return errNotReady
	}
}

// target is the model that a body asks for. Again says that it must be deployed
// anew where it is.
func (a *aegaeonState) target(in map[string]any) (m *registered, again bool, refused *apiError) {
	name := in["model"].(string)
	where, _ := in["model_path"].(string)
	if known, ok := a.find(name); ok {
		m = &known
	}
	registered := m != nil
	if m == nil {
		m, refused = a.fresh(name, where)
		if refused != nil {
			return nil, false, refused
		}
	} else if where != "" && m.path != "" && where != m.path {
		return nil, false, badRequest("model_path", fmt.Sprintf("model %q is deployed from %s", name, m.path))
	}
	next := *m
	if where != "" {
		next.path = where
	}
	if n, ok := in["max_model_len"].(float64); ok && int(n) != m.MaxModelLen {
		next.MaxModelLen, again = int(n), registered
	}
	if parser, ok := in["tool_parser"].(string); ok {
		next.toolParser = parser
	}
	return &next, again, nil
}

// fresh makes a model known that is not registered.
func (a *aegaeonState) fresh(name, where string) (*registered, *apiError) {
	for i, m := range a.s.config.Models {
		if m.Name == name {
			return &registered{Model: m, index: i}, nil
		}
	}
	if where == "" || name == "" {
		return nil, badRequest("model_path", fmt.Sprintf("model %q is not configured: give its model_path", name))
	}
	base, err := baseOf(where)
	if err != nil {
		return nil, badRequest("model_path", err.Error())
	}
	index, err := a.s.live.add(name, base)
	if err != nil {
		return nil, badRequest("model_path", err.Error())
	}
	return &registered{Model: Model{Name: name, Base: base.Name, MaxModelLen: base.MaxSeqLen}, index: index}, nil
}

// removeAll undeploys a model everywhere and returns the nodes where it was, and
// those where it is busy.
func removeAll(sys *serving.System, model int) (free, busy []int) {
	for node := range sys.Nodes() {
		switch state, _ := sys.Replica(node, model); {
		case state == serving.ReplicaAbsent:
		case sys.Undeploy(model, node):
			free = append(free, node)
		default:
			busy = append(busy, node)
		}
	}
	return free, busy
}

func (a *aegaeonState) deployed(w http.ResponseWriter, m *registered, d serving.Deployment, busy []int) *apiError {
	results, failed := []operation{}, []operation{}
	for _, node := range d.Ready {
		op := operation{Node: nodeName(node), Status: "READY"}
		for _, evicted := range d.Evicted[node] {
			op.Evicted = append(op.Evicted, a.s.live.name(evicted))
		}
		results = append(results, op)
	}
	for node := range a.s.config.nodes() {
		if err := d.Failed[node]; err != nil {
			failed = append(failed, operation{Node: nodeName(node), Status: "FAILED", Error: err.Error()})
		}
	}
	for _, node := range busy {
		failed = append(failed, operation{Node: nodeName(node), Status: "DRAINING", Error: "it has requests: call again"})
	}
	if len(d.Ready) == 0 {
		why := errors.New("no node took it")
		for _, err := range d.Failed {
			why = err
		}
		return &apiError{status: http.StatusInsufficientStorage, Type: "insufficient_storage", Message: "no replica is ready: " + why.Error()}
	}
	a.mu.Lock()
	a.register(m)
	a.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"status": status(failed), "model": m.Name, "ready_nodes": nodeNames(d.Ready), "failed": failed, "results": append(results, failed...)})
	return nil
}

func status(failed []operation) string {
	if len(failed) > 0 {
		return "partial"
	}
	return "ok"
}

func (a *aegaeonState) undeploy(w http.ResponseWriter, in map[string]any) *apiError {
	nodes, refused := a.nodesOf(in)
	if refused != nil {
		return refused
	}
	a.placing.Lock()
	defer a.placing.Unlock()
	m, ok := a.find(in["model"].(string))
	if !ok {
		return badRequest("model", fmt.Sprintf("model %q is not deployed", in["model"]))
	}
	var remaining []int
	results, failed := []operation{}, []operation{}
	if err := a.s.live.system.Do(func(sys *serving.System) {
		for node := range sys.Nodes() {
			state, _ := sys.Replica(node, m.index)
			if state != serving.ReplicaAbsent && (len(nodes) == 0 || slices.Contains(nodes, node)) {
				if sys.Undeploy(m.index, node) {
					results = append(results, operation{Node: nodeName(node), Status: "ABSENT"})
				} else {
					failed = append(failed, operation{Node: nodeName(node), Status: "DRAINING", Error: "it has requests: call again"})
				}
				state, _ = sys.Replica(node, m.index)
			}
			if state != serving.ReplicaAbsent {
				remaining = append(remaining, node)
			}
		}
	}); err != nil {
		return errNotReady
	}
	if len(remaining) == 0 {
		a.mu.Lock()
		a.unregister(m.Name)
		a.mu.Unlock()
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": status(failed), "model": m.Name, "remaining_nodes": nodeNames(remaining), "failed": failed, "results": append(results, failed...)})
	return nil
}
