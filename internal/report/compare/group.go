package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"assay/schemas"
)

// Pair is two trials that differ in what is compared.
type Pair struct {
	Repetition          int
	Baseline, Candidate *Trial
}

// Group is the pairs of one baseline and one candidate at one point of everything
// else.
type Group struct {
	Stage, Baseline, Candidate string
	Point                      map[string]any
	Pairs                      []Pair
	unpaired                   []string // nodes
}

// ByParam groups trials by a parameter of the matrix: the baseline's value with each
// other one, or with the candidate's. "" is the first value, and every other.
func ByParam(trials []Trial, param, baseline, candidate string) ([]Group, error) {
	var values []string
	for _, t := range trials {
		v, ok := t.Point[param]
		if !ok {
			return nil, fmt.Errorf("by: %q is no parameter of the matrix of %s", param, t.Node)
		}
		if text := schemas.PlainText(v); !slices.Contains(values, text) {
			values = append(values, text)
		}
	}
	baseline, candidates, err := choose(values, "a value of "+param, baseline, candidate)
	if err != nil {
		return nil, err
	}
	return pair(trials, baseline, candidates, func(t *Trial) (string, map[string]any) {
		rest := maps.Clone(t.Point)
		delete(rest, param)
		return schemas.PlainText(t.Point[param]), rest
	}, func(t *Trial) string { return t.Stage }), nil
}

// ByStage groups trials by stage.
func ByStage(trials []Trial, baseline, candidate string) ([]Group, error) {
	var stages []string
	for _, t := range trials {
		if !slices.Contains(stages, t.Stage) {
			stages = append(stages, t.Stage)
		}
	}
	baseline, candidates, err := choose(stages, "a stage with results", baseline, candidate)
	if err != nil {
		return nil, err
	}
	return pair(trials, baseline, candidates, func(t *Trial) (string, map[string]any) { return t.Stage, t.Point }, func(*Trial) string { return "" }), nil
}

// ByRun groups the trials of two runs by stage and point.
func ByRun(a, b []Trial, nameA, nameB string) []Group {
	side := map[*Trial]string{}
	var all []Trial
	all = append(append(all, a...), b...)
	for i := range all {
		if side[&all[i]] = nameA; i >= len(a) {
			side[&all[i]] = nameB
		}
	}
	return pairPointers(pointers(all), nameA, []string{nameB}, func(t *Trial) (string, map[string]any) { return side[t], t.Point }, func(t *Trial) string { return t.Stage })
}

// choose is the baseline and the candidates among values.
func choose(values []string, what, baseline, candidate string) (string, []string, error) {
	for _, v := range []string{baseline, candidate} {
		if v != "" && !slices.Contains(values, v) {
			return "", nil, fmt.Errorf("%q is not %s: there are %s", v, what, strings.Join(values, ", "))
		}
	}
	if len(values) < 2 {
		return "", nil, fmt.Errorf("there is nothing to compare: want two of %s, there is %s", strings.TrimPrefix(strings.TrimPrefix(what, "a "), "an "), strings.Join(values, ", "))
	}
	if baseline == "" {
		i := slices.IndexFunc(values, func(v string) bool { return v != candidate })
		baseline = values[i]
	}
	if baseline == candidate {
		return "", nil, fmt.Errorf("baseline and candidate are both %q", baseline)
	}
	if candidate != "" {
		return baseline, []string{candidate}, nil
	}
	return baseline, slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == baseline }), nil
}

func pointers(list []Trial) []*Trial {
	out := make([]*Trial, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

func pair(trials []Trial, baseline string, candidates []string, side func(*Trial) (string, map[string]any), stage func(*Trial) string) []Group {
	return pairPointers(pointers(trials), baseline, candidates, side, stage)
}

// pairPointers makes the groups, in order of first appearance. side says what a trial
// is compared as, and the rest of its point.
func pairPointers(trials []*Trial, baseline string, candidates []string, side func(*Trial) (string, map[string]any), stage func(*Trial) string) []Group {
	type key struct{ stage, point string }
	var keys []key
	points := map[key]map[string]any{}
	found := map[key]map[string]map[int]*Trial{}
	for _, t := range trials {
		as, rest := side(t)
		k := key{stage(t), pointText(rest)}
		if found[k] == nil {
			keys = append(keys, k)
			points[k], found[k] = rest, map[string]map[int]*Trial{}
		}
		if found[k][as] == nil {
			found[k][as] = map[int]*Trial{}
		}
		found[k][as][t.Repetition] = t
	}
	var out []Group
	for _, k := range keys {
		for _, c := range candidates {
			g := Group{Stage: k.stage, Baseline: baseline, Candidate: c, Point: points[k]}
			base, cand := found[k][baseline], found[k][c]
			if len(base)+len(cand) == 0 {
				continue
			}
			for _, rep := range slices.Sorted(maps.Keys(base)) {
				if cand[rep] == nil {
					g.unpaired = append(g.unpaired, base[rep].Node)
					continue
				}
				g.Pairs = append(g.Pairs, Pair{rep, base[rep], cand[rep]})
			}
			for _, rep := range slices.Sorted(maps.Keys(cand)) {
				if base[rep] == nil {
					g.unpaired = append(g.unpaired, cand[rep].Node)
				}
			}
			out = append(out, g)
		}
	}
	return out
}

func pointText(point map[string]any) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(point)) {
		parts = append(parts, k+"="+schemas.PlainText(point[k]))
	}
	return strings.Join(parts, ",")
}

// labels tell groups apart by what they do not have in common.
func labels(groups []Group) []string {
	differ := func(of func(Group) string) bool {
		return slices.ContainsFunc(groups, func(g Group) bool { return of(g) != of(groups[0]) })
	}
	out := make([]string, len(groups))
	for _, part := range []func(Group) string{
		func(g Group) string { return g.Stage }, func(g Group) string { return g.Candidate }, func(g Group) string { return pointText(g.Point) },
	} {
		if len(groups) == 0 || !differ(part) {
			continue
		}
		for i, g := range groups {
			if out[i] != "" {
				out[i] += ","
			}
			out[i] += cmp.Or(part(g), "-")
		}
	}
	return out
}
