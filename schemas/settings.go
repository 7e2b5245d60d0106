package schemas

import (
	"fmt"
	"slices"
	"time"
)

// Settings is a stage's or service's configuration, checked against its fields
// (CheckTable, CheckValue) and with defaults filled in. Its methods give typed
// values; what is absent is the type's zero.
type Settings map[string]any

// Has reports whether the key is there.
func (s Settings) Has(key string) bool { return s[key] != nil }

// Text gives a string; a number or boolean as it is written in JSON.
func (s Settings) Text(key string) string { return scalarText(s[key]) }

// Bool gives a boolean.
func (s Settings) Bool(key string) bool {
	b, _ := s[key].(bool)
	return b
}

// Float gives a number.
func (s Settings) Float(key string) float64 {
	switch x := s[key].(type) {
	case float64:
		return x
	case int64:
		return float64(x)
	case int:
		return float64(x)
	}
	return 0
}

// Int gives a whole number.
func (s Settings) Int(key string) int {
	if n, ok := s[key].(int64); ok {
		return int(n)
	}
	return int(s.Float(key))
}

// Duration gives a duration.
func (s Settings) Duration(key string) time.Duration {
	d, err := ParseDuration(s.Text(key))
	if err != nil {
		return 0
	}
	return d.Std()
}

// Bytes gives a size in bytes.
func (s Settings) Bytes(key string) int64 {
	z, err := ParseSize(s.Text(key))
	if err != nil {
		return 0
	}
	return int64(z)
}

// List gives a list of scalars, each as text.
func (s Settings) List(key string) []string {
	var out []string
	switch x := s[key].(type) {
	case []any:
		for _, e := range x {
			out = append(out, scalarText(e))
		}
	case []string:
		out = slices.Clone(x)
	}
	return out
}

// Table gives a table; nil when there is none.
func (s Settings) Table(key string) Settings {
	m, _ := s[key].(map[string]any)
	return m
}

// Tables gives a list of tables.
func (s Settings) Tables(key string) []Settings {
	list, _ := s[key].([]any)
	out := make([]Settings, 0, len(list))
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// Texts gives a map of strings, such as a path map.
func (s Settings) Texts(key string) map[string]string {
	out := map[string]string{}
	for k, v := range s.Table(key) {
		out[k] = scalarText(v)
	}
	return out
}

func scalarText(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	}
	t, err := valueText(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return t
}
