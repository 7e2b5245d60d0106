package experiments

import (
	"slices"
	"strings"

	"assay/schemas"
)

// node of the dependency graph: a stage or a service.
type node struct{ kind, name string }

func (n node) String() string {
	if n.kind == "service" {
		return "service " + n.name
	}
	return n.name
}

// checkGraph refuses cycles: through needs, ${stage...} references (which are
// needs by now), and services, which a stage waits for and which may wait for
// stages and other services themselves.
func (c *checker) checkGraph() {
	const (
		open = 1
		done = 2
	)
	state := map[node]int{}
	var path []node
	var visit func(n node)
	visit = func(n node) {
		switch state[n] {
		case done:
			return
		case open:
			c.cycle(append(slices.Clone(path[slices.Index(path, n):]), n))
			return
		}
		state[n] = open
		path = append(path, n)
		for _, next := range c.edges(n) {
			visit(next)
		}
		path = path[:len(path)-1]
		state[n] = done
	}
	for _, kind := range []string{"stage", "service"} {
		for _, name := range sortedKeys(c.sub(kind)) {
			visit(node{kind, name})
		}
	}
}

// edges lists what a node waits for. Names that do not exist were reported.
func (c *checker) edges(n node) []node {
	t, _ := c.sub(n.kind)[n.name].(table)
	var out []node
	add := func(kind, name string) {
		if _, ok := c.sub(kind)[name]; ok {
			out = append(out, node{kind, name})
		}
	}
	for _, need := range stringList(t["needs"]) {
		add(n.kind, need)
	}
	if n.kind == "stage" {
		if s, ok := t["service"].(string); ok {
			add("service", s)
		}
		return out
	}
	for _, r := range schemas.References(t) {
		if r.Namespace == schemas.RefStage {
			add("stage", r.Names[0])
		}
	}
	return out
}

func (c *checker) cycle(nodes []node) {
	words := make([]string, len(nodes))
	for i, n := range nodes {
		words[i] = n.String()
	}
	first := nodes[0]
	at := schemas.Pointer(first.kind, first.name)
	if _, ok := c.pos[at+"/needs"]; ok {
		at += "/needs"
	}
	c.atKey(at, "", "%s waits for itself: %s", first, strings.Join(words, " -> "))
}
