package experiments

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"assay/schemas"
)

// paramType is what a parameter's default makes of it. Whole and fractional
// numbers are one type: JSON keeps no difference, and fields that want a whole
// number say so.
func paramType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case table:
		return "path"
	}
	return ""
}

// checkMatrix checks that every axis is a declared parameter and every value is
// of its type.
func (c *checker) checkMatrix() {
	params := c.sub("params")
	matrix := c.sub("matrix")
	for _, name := range sortedKeys(matrix) {
		at := schemas.Pointer("matrix", name)
		def, ok := params[name]
		if !ok {
			c.atKey(at, schemas.Nearest(name, sortedKeys(params)), "matrix: %q is not a declared parameter", name)
			continue
		}
		list, ok := matrix[name].([]any)
		if !ok {
			c.at(at, "", "matrix: want a list of values of %s", name)
			continue
		}
		if len(list) == 0 {
			c.at(at, "", "matrix: %s has no value, so there would be no trial", name)
		}
		for i, v := range list {
			here := at + "/" + strconv.Itoa(i)
			if vs := schemas.CheckParam(v, here); len(vs) > 0 {
				c.violations("", vs)
			} else if got, want := paramType(v), paramType(def); got != want && want != "" {
				c.at(here, "", "matrix: %s is a %s parameter, got a %s", name, want, got)
			}
			for j := range i {
				if reflect.DeepEqual(list[j], v) {
					c.at(here, "", "matrix: %s has this value twice", name)
					break
				}
			}
		}
	}
}

// applySets overrides parameters. A parameter of the matrix is left with the one
// value that was set.
func (c *checker) applySets(sets []string) {
	params := c.sub("params")
	for _, set := range sets {
		name, text, ok := strings.Cut(set, "=")
		if !ok {
			c.option("--set "+set, "", "want NAME=VALUE")
			continue
		}
		option := "--set " + name
		def, ok := params[name]
		if !ok {
			c.option(option, schemas.Nearest(name, sortedKeys(params)), "the experiment declares no parameter %q", name)
			continue
		}
		v, err := setValue(def, text)
		if err != nil {
			c.option(option, "", "%v", err)
			continue
		}
		params[name] = v
		if paramType(v) == "path" {
			c.loaded.setPaths[name] = true
		}
		if matrix := c.sub("matrix"); matrix[name] != nil {
			matrix[name] = []any{v}
		}
	}
}

// setValue reads the text of a --set as the type of the declared default.
func setValue(def any, text string) (any, error) {
	switch paramType(def) {
	case "number":
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("want a number, got %q", text)
		}
		return f, nil
	case "boolean":
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("want true or false, got %q", text)
		}
		return text == "true", nil
	}
	switch {
	case strings.ContainsRune(text, 0) || strings.ToValidUTF8(text, "") != text:
		return nil, fmt.Errorf("%q is not text", text)
	case strings.Contains(text, "${"):
		return nil, fmt.Errorf("no ${...} is expanded here")
	case paramType(def) == "path" && text == "":
		return nil, fmt.Errorf("the path is empty")
	case paramType(def) == "path":
		return table{"path": text}, nil
	}
	return text, nil
}

// paramValues lists every value a parameter takes: its own, then the matrix's.
func (c *checker) paramValues(name string) []any {
	values := []any{c.sub("params")[name]}
	list, _ := c.sub("matrix")[name].([]any)
	return append(values, list...)
}

// varies reports whether the matrix gives a parameter any value but its own.
func (c *checker) varies(name string) bool {
	for _, v := range c.paramValues(name)[1:] {
		if !reflect.DeepEqual(v, c.sub("params")[name]) {
			return true
		}
	}
	return false
}

// paramPaths resolves the path parameters' own values.
func (c *checker) paramPaths() map[string]string {
	out := map[string]string{}
	for name, v := range c.sub("params") {
		t, ok := v.(table)
		if !ok {
			continue
		}
		written, err := schemas.Substitute(t["path"], func(r schemas.Reference) (any, error) {
			if v, ok := c.machine.Values[r.Names[0]]; ok {
				return v, nil
			}
			return nil, fmt.Errorf("no machine value %q", r.Names[0])
		})
		if s, ok := written.(string); err == nil && ok {
			out[name] = c.loaded.ParamPath(name, s)
		}
	}
	return out
}
