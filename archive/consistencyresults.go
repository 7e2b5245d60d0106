package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sort"

	"assay/schemas"
)

// What a measured stage publishes under the name "result".
const (
	outputResult   = "result"
	fileResult     = "outputs/result/result.json"
	fileConditions = "outputs/result/conditions.json"
)

// hasResult says whether a measured node published a result.
func (c *consistency) hasResult(n schemas.Node) bool {
	if !n.Measured && !schemas.GivesResult(n.Kind) {
		return false
	}
	for _, o := range c.records[n.ID].Record.Outputs {
		if o.Name == outputResult {
			return true
		}
	}
	return false
}

// results compares the report's results with the archived ones: one of each
// measured node that published one, in plan order.
func (c *consistency) results() {
	var nodes []schemas.Node
	for _, n := range c.run.Plan.Nodes {
		if c.hasResult(n) {
			nodes = append(nodes, n)
		}
	}
	got, emulated, simulated := c.v.report.Results, false, false
	c.same(where{topic: "result", doc: nameReport}, "the number of results", len(got), "the config", len(nodes))
	want := map[string]bool{}
	for i, n := range nodes {
		if i < len(got) {
			c.result(n, fmt.Sprintf("results/%d/", i), got[i])
			emulated = emulated || got[i].Result.Emulated
			simulated = simulated || got[i].Result.Simulated
		}
		c.conditions(n, want)
	}
	// Archives that a service saved are no result, but come from it all the same.
	emulated = emulated || c.v.report.ArchiveRoot != "" && schemas.ServedEmulated(c.run.Services)
	c.same(where{topic: "result", doc: nameReport}, "emulated", c.v.report.Emulated, "the results", emulated)
	c.same(where{topic: "result", doc: nameReport}, "simulated", c.v.report.Simulated, "the results", simulated)
	c.sameConditions(want)
}

func (c *consistency) result(n schemas.Node, at string, got schemas.StageResult) {
	w := where{"result", nameReport, &n}
	if !c.same(w, at+"node", got.Node, "the plan", n.ID) {
		return
	}
	c.same(w, at+"stage", got.Stage, "the plan", n.Stage)
	c.same(w, at+"trial", got.Trial, "the plan", n.Trial)
	if point := c.trials[n.Trial].Point; len(point)+len(got.Point) > 0 {
		c.same(w, at+"point", got.Point, "the trial", point)
	}
	var archived schemas.Result
	if p, ok := c.archived(w, n, fileResult, &archived); ok && !sameValue(got.Result, archived) {
		field, x, y := firstUnequal("", asDocument(got.Result), asDocument(archived))
		c.fail(w, "%sresult%s is %s, %s gives %s", at, field, valueText(x), p, valueText(y))
	}
}

// archived reads a document that a node published. What cannot be read has a
// finding of its own, or gets one when the files are checked.
func (c *consistency) archived(w where, n schemas.Node, file string, into any) (string, bool) {
	p := path.Join(c.records[n.ID].Path, file)
	if c.v.files == nil || c.v.open == nil {
		return p, false
	}
	b, err := c.v.readFile(p)
	switch {
	case errors.Is(err, errNotListed):
		c.fail(w, "the record has output %s, and there is no %s", outputResult, p)
		return p, false
	case err != nil:
		return p, false
	}
	if err := json.Unmarshal(b, into); err != nil {
		c.fail(w, "%s: %v", p, err)
		return p, false
	}
	return p, true
}

var errNotListed = errors.New("not in the file list")

// readFile returns the bytes of a file of the run, checked against its digest.
func (v *verifier) readFile(p string) ([]byte, error) {
	entries := v.files.Entries
	i := sort.Search(len(entries), func(i int) bool { return entries[i].Path >= p })
	if i == len(entries) || entries[i].Path != p || entries[i].Kind != schemas.EntryFile {
		return nil, fmt.Errorf("%s: %w", p, errNotListed)
	}
	e := entries[i]
	r, err := v.open(e)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readBounded(r, e.Size, maxDocBytes, p)
}

func asDocument(v any) any {
	b, err := schemas.Encode(v)
	if err != nil {
		return nil
	}
	var doc any
	if json.Unmarshal(b, &doc) != nil {
		return nil
	}
	return doc
}

// firstUnequal is the first place where two documents differ, and what they have
// there.
func firstUnequal(at string, a, b any) (string, any, any) {
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if okX && okY {
		names := maps.Clone(x)
		maps.Copy(names, y)
		for _, k := range slices.Sorted(maps.Keys(names)) {
			if !sameValue(x[k], y[k]) {
				return firstUnequal(at+schemas.Pointer(k), x[k], y[k])
			}
		}
	}
	l, okL := a.([]any)
	m, okM := b.([]any)
	if okL && okM && len(l) == len(m) {
		for i := range l {
			if !sameValue(l[i], m[i]) {
				return firstUnequal(fmt.Sprintf("%s/%d", at, i), l[i], m[i])
			}
		}
	}
	return at, a, b
}

// conditions gathers the circumstances that a measured node states; the report
// keeps one copy of those that are equal.
func (c *consistency) conditions(n schemas.Node, want map[string]bool) {
	var list []schemas.Condition
	if _, ok := c.archived(where{"result", nameReport, &n}, n, fileConditions, &list); !ok {
		want[""] = true // not all are known
		return
	}
	for _, cond := range list {
		if cond.Subject == "" {
			cond.Subject = n.Stage
		}
		want[string(mustEncode(cond))] = true
	}
}

func (c *consistency) sameConditions(want map[string]bool) {
	w := where{topic: "result", doc: nameReport}
	told := map[string]bool{}
	for _, cond := range c.v.report.Conditions {
		text := string(mustEncode(cond))
		told[text] = true
		if !want[text] && !want[""] {
			c.fail(w, "it has the condition %s, which no measured stage states", text)
		}
	}
	for text := range want {
		if text != "" && !told[text] {
			c.fail(w, "it does not have the condition %s, which a measured stage states", text)
		}
	}
}

// mustEncode encodes what was decoded from JSON; what cannot be encoded again is
// equal to nothing.
func mustEncode(v any) []byte {
	b, err := schemas.Encode(v)
	if err != nil {
		return []byte(err.Error())
	}
	return b
}
