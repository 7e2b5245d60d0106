package serving

import (
	"fmt"
	"slices"
	"strings"
)

// The routing policies: how one of a model's replicas is chosen for a request,
// which stays there for its life.
const (
	// RouteLeastOutstanding takes the node with the fewest unfinished requests, over
	// all models; among equals the request's number takes turns.
	RouteLeastOutstanding = "least-outstanding"
	// RouteRoundRobin takes turns by the request's number, whatever the load.
	RouteRoundRobin = "round-robin"
)

// RoutingPolicies are the names of the routing policies.
var RoutingPolicies = []string{RouteLeastOutstanding, RouteRoundRobin}

// RouteNode is what a routing decision sees of a node that has a replica ready.
type RouteNode struct {
	Node        int
	Outstanding int // requests routed there that have not ended
}

// Route returns the index in ready, which is in order of nodes, of the replica that
// takes request number n; false when none is ready.
func Route(policy string, n int, ready []RouteNode) (int, bool) {
	if len(ready) == 0 || n < 0 {
		return 0, false
	}
	if policy == RouteRoundRobin {
		return n % len(ready), true
	}
	least, equals := ready[0].Outstanding, 0
	for _, r := range ready {
		switch {
		case r.Outstanding < least:
			least, equals = r.Outstanding, 1
		case r.Outstanding == least:
			equals++
		}
	}
	turn := n % equals
	for i, r := range ready {
		if r.Outstanding != least {
			continue
		}
		if turn == 0 {
			return i, true
		}
		turn--
	}
	return 0, false
}

// Router keeps the account of what was routed where. It is not for concurrent use.
type Router struct {
	policy      string
	outstanding []int
	assigned    []int64
	byModel     map[int][]int64
	ready       []RouteNode
}

// NewRouter makes a router over nodes 0 to nodes-1.
func NewRouter(policy string, nodes int) (*Router, error) {
	if !slices.Contains(RoutingPolicies, policy) {
		return nil, fmt.Errorf("routing policy %q: want one of %s", policy, strings.Join(RoutingPolicies, ", "))
	}
	if nodes < 1 {
		return nil, fmt.Errorf("routing over %d nodes: want 1 or more", nodes)
	}
	return &Router{policy: policy, outstanding: make([]int, nodes), assigned: make([]int64, nodes), byModel: map[int][]int64{}}, nil
}

// Assign reserves a place for request number n of the model on one of the nodes,
// which are in order; false when there is none.
func (r *Router) Assign(n, model int, nodes []int) (int, bool) {
	r.ready = r.ready[:0]
	for _, node := range nodes {
		r.ready = append(r.ready, RouteNode{Node: node, Outstanding: r.outstanding[node]})
	}
	i, ok := Route(r.policy, n, r.ready)
	if !ok {
		return 0, false
	}
	node := r.ready[i].Node
	r.outstanding[node]++
	r.assigned[node]++
	if r.byModel[model] == nil {
		r.byModel[model] = make([]int64, len(r.assigned))
	}
	r.byModel[model][node]++
	return node, true
}

// Release ends a reservation.
func (r *Router) Release(node int) { r.outstanding[node]-- }

// Outstanding is how many requests of a node have not ended.
func (r *Router) Outstanding(node int) int { return r.outstanding[node] }

// RoutingStats are what was routed where, by node.
type RoutingStats struct {
	Policy string `json:"policy"`
	Total  int    `json:"total"` // not ended
	ByNode []int  `json:"by_node"`
	// Cumulative counts are never taken back.
	Cumulative []int64         `json:"cumulative_assignments"`
	ByModel    map[int][]int64 `json:"-"`
}

// Stats returns the account.
func (r *Router) Stats() RoutingStats {
	s := RoutingStats{Policy: r.policy, ByNode: slices.Clone(r.outstanding), Cumulative: slices.Clone(r.assigned), ByModel: map[int][]int64{}}
	for m, v := range r.byModel {
		s.ByModel[m] = slices.Clone(v)
	}
	for _, n := range r.outstanding {
		s.Total += n
	}
	return s
}
