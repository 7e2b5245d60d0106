package schemas

import "sort"

// FieldsOf returns the keys a stage of the kind takes: the common ones and the
// kind's own. False for an unknown kind.
func FieldsOf(kind string) ([]Field, bool) {
	k, ok := KindOf(kind)
	if !ok {
		return nil, false
	}
	return append(StageFields(), k.Fields...), true
}

// KindOf returns the description of a stage kind. False for an unknown one.
func KindOf(kind string) (KindSpec, bool) {
	for _, k := range Kinds() {
		if k.Name == kind {
			return k, true
		}
	}
	return KindSpec{}, false
}

// EngineFields returns the keys a service of the engine takes: the common ones
// and the engine's own. False for an unknown engine.
func EngineFields(engine string) ([]Field, bool) {
	e, ok := EngineOf(engine)
	if !ok {
		return nil, false
	}
	return append(ServiceFields(), e.Fields...), true
}

// EngineOf returns the description of an engine. False for an unknown one.
func EngineOf(engine string) (EngineSpec, bool) {
	for _, e := range Engines() {
		if e.Name == engine {
			return e, true
		}
	}
	return EngineSpec{}, false
}

// ApplyDefaults returns a copy of config with every absent key of a field that
// has a default, inside tables that are there too. A table that is absent stays
// absent.
func ApplyDefaults(fields []Field, config map[string]any) map[string]any {
	out := make(map[string]any, len(config))
	for k, v := range config {
		out[k] = copyValue(v)
	}
	for _, f := range fields {
		v, ok := out[f.Name]
		if !ok {
			if f.Default != nil {
				out[f.Name] = copyValue(f.Default)
			}
			continue
		}
		out[f.Name] = defaultsWithin(f, v)
	}
	return out
}

func defaultsWithin(f Field, v any) any {
	switch f.Type {
	case TypeTable:
		if m, ok := v.(map[string]any); ok {
			return ApplyDefaults(f.Fields, m)
		}
	case TypeTableMap:
		if m, ok := v.(map[string]any); ok {
			for k, x := range m {
				if t, ok := x.(map[string]any); ok {
					m[k] = ApplyDefaults(f.Fields, t)
				}
			}
		}
	case TypeTableList:
		if l, ok := v.([]any); ok {
			for i, x := range l {
				if t, ok := x.(map[string]any); ok {
					l[i] = ApplyDefaults(f.Fields, t)
				}
			}
		}
	}
	return v
}

func copyValue(v any) any {
	switch x := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(x))
		for k, e := range x {
			m[k] = copyValue(e)
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = copyValue(e)
		}
		return l
	}
	return v
}

// Nearest returns the candidate that is most like name, or "" when none is near
// enough to be meant.
func Nearest(name string, candidates []string) string {
	limit := min(max(1, (len(name)+1)/3), len(name)-1)
	best, found := limit+1, ""
	for _, c := range candidates {
		if d := editDistance(name, c, limit); d < best {
			best, found = d, c
		}
	}
	return found
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours, in bytes. It stops at limit+1: names far apart need no number.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

func fieldNames(fields []Field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
