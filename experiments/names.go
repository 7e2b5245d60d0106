package experiments

import (
	"regexp"
	"sort"

	"assay/schemas"
)

var experimentName = regexp.MustCompile(schemas.ExperimentPattern)

func validExperiment(s string) bool { return len(s) <= 128 && experimentName.MatchString(s) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func names(fields []schemas.Field) []string {
	var out []string
	for _, f := range fields {
		out = append(out, f.Name)
	}
	return out
}

func kindNames() []string {
	var out []string
	for _, k := range schemas.Kinds() {
		out = append(out, k.Name)
	}
	return out
}

func engineNames() []string {
	var out []string
	for _, e := range schemas.Engines() {
		out = append(out, e.Name)
	}
	return out
}

// stringList returns the strings of a list; other elements were reported before.
func stringList(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
