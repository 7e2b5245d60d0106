package experiments

import (
	"fmt"
	"path/filepath"
	"strings"

	"assay/schemas"
)

type table = map[string]any

// checker checks one decoded experiment file. The tree is what the file says,
// in plain JSON values; applySets and checkReferences complete it.
type checker struct {
	*problems
	tree    table
	loaded  *Loaded
	machine *Machine
}

// sub returns a table of the tree, or nil.
func (c *checker) sub(name string) table { t, _ := c.tree[name].(table); return t }

// checkShape checks keys, types, limits and names: everything that needs no
// look at another part of the file.
func (c *checker) checkShape() {
	top := table{}
	for k, v := range c.tree {
		top[k] = v
	}
	for _, k := range []string{"stage", "service", "matrix"} {
		if t, ok := top[k].(table); ok && t != nil {
			top[k] = table{}
		}
	}
	c.violations("", schemas.CheckTable(schemas.ExperimentFields(), top, false))
	if name, ok := c.tree["name"].(string); ok && !validExperiment(name) {
		c.at("/name", "", "name: invalid name %q: want lower-case letters, digits, '-', '_' and '/'", name)
	}
	if t := c.sub("stage"); t != nil && len(t) == 0 {
		c.atKey("/stage", "", "stage: the experiment has no stage")
	}
	c.eachTable("stage", c.checkStage)
	c.eachTable("service", c.checkService)
	c.checkPins()
	c.checkMatrix()
	c.plainText()
}

// violations adds what schemas found, with positions.
func (c *checker) violations(prefix string, vs []schemas.Violation) {
	for _, v := range vs {
		if v.OnKey {
			c.atKey(prefix+v.Path, v.Hint, "%s", v.Message)
		} else {
			c.at(prefix+v.Path, v.Hint, "%s", v.Message)
		}
	}
}

func (c *checker) eachTable(kind string, check func(name, at string, t table)) {
	for _, name := range sortedKeys(c.sub(kind)) {
		at := schemas.Pointer(kind, name)
		if !schemas.ValidName(name) {
			c.atKey(at, "", "%s: invalid name %q: want up to 63 lower-case letters, digits, '-' and '_', beginning with a letter or digit", kind, name)
		}
		t, ok := c.sub(kind)[name].(table)
		if !ok {
			c.at(at, "", "%s: want a table", kind)
			continue
		}
		check(name, at, t)
	}
}

// checkPins checks the fingerprints that models are pinned to.
func (c *checker) checkPins() {
	for _, name := range sortedKeys(c.sub("model")) {
		t, _ := c.sub("model")[name].(table) // what is none has been said
		pin, pinned := t["fingerprint"].(string)
		at := schemas.Pointer("model", name)
		if pinned && !schemas.Digest(pin).Valid() {
			c.at(at+"/fingerprint", "", "fingerprint: %q: want sha256: and 64 lower-case hex digits", pin)
		}
		if _, has := t["checkpoint"]; pinned && !has {
			c.atKey(at+"/fingerprint", "", "model %s: a fingerprint is pinned and no checkpoint is named", name)
		}
	}
}

func (c *checker) checkStage(name, at string, t table) {
	kind, ok := t["kind"].(string)
	spec, known := schemas.KindOf(kind)
	if !known {
		c.unknownSort(at, "kind", kind, ok, t, schemas.StageFields(), kindNames())
		return
	}
	fields, _ := schemas.FieldsOf(kind)
	c.violations(at, checkSplit(fields, len(schemas.StageFields()), t))
	service, has := t["service"]
	switch {
	case has && spec.Service == "":
		c.atKey(at+"/service", "", "a %s stage uses no service", kind)
	case !has && spec.Service == "required":
		c.atKey(at, "", "stage %s: a %s stage needs a service: add service = \"NAME\"", name, kind)
	case has && service == "":
		c.at(at+"/service", "", "service: the name is empty")
	}
	if kind == "measure" {
		if _, err := schemas.MeasureMode(t); err != nil {
			c.atKey(at, "", "stage %s: %v", name, err)
		}
	}
	if outputs, ok := t["outputs"].(table); ok && kind == "command" {
		for _, o := range sortedKeys(outputs) {
			if s, ok := outputs[o].(string); ok && !filepath.IsLocal(s) {
				c.at(at+schemas.Pointer("outputs", o), "", "outputs: %q is not a path below the stage's private folder", s)
			}
		}
	}
}

func (c *checker) checkService(name, at string, t table) {
	engine, ok := t["engine"].(string)
	spec, known := schemas.EngineOf(engine)
	if !known {
		c.unknownSort(at, "engine", engine, ok, t, schemas.ServiceFields(), engineNames())
		return
	}
	fields, _ := schemas.EngineFields(engine)
	c.violations(at, checkSplit(fields, len(schemas.ServiceFields()), t))
	for _, group := range spec.OneOf {
		var there []string
		for _, k := range group {
			if _, ok := t[k]; ok {
				there = append(there, k)
			}
		}
		switch len(there) {
		case 0:
			c.atKey(at, "", "service %s: engine %s needs %s", name, engine, strings.Join(group, " or "))
		case 1:
		default:
			c.atKey(at+"/"+there[1], "", "service %s: %s exclude each other", name, strings.Join(there, " and "))
		}
	}
}

// unknownSort reports a kind or engine that is missing or unknown. The keys that
// every table of the sort takes are still checked.
func (c *checker) unknownSort(at, key, value string, isString bool, t table, common []schemas.Field, sorts []string) {
	if isString {
		c.at(at+"/"+key, schemas.Nearest(value, sorts), "unknown %s %q: there are %s", key, value, strings.Join(sorts, ", "))
	}
	known := table{}
	for _, f := range common {
		if v, ok := t[f.Name]; ok {
			known[f.Name] = v
		}
	}
	for _, k := range sortedKeys(t) { // a misspelt common key is the likely reason that one is missing
		if _, ok := known[k]; ok || isString {
			continue
		}
		if like := schemas.Nearest(k, names(common)); like != "" {
			c.atKey(at+schemas.Pointer(k), like, "unknown key %q", k)
		}
	}
	c.violations(at, schemas.CheckTable(common, known, false))
}

// checkSplit checks a table whose first n fields take no references; devices do,
// and are strings either way.
func checkSplit(fields []schemas.Field, n int, t table) []schemas.Violation {
	common, own := table{}, table{}
	for k, v := range t {
		if isCommon(fields[:n], k) {
			common[k] = v
		} else {
			own[k] = v
		}
	}
	out := schemas.CheckTable(fields[:n], common, false)
	for _, v := range schemas.CheckTable(fields[n:], own, true) {
		if v.OnKey && strings.HasPrefix(v.Message, "unknown key") && strings.Count(v.Path, "/") == 1 {
			v.Hint = schemas.Nearest(v.Path[1:], names(fields))
		}
		out = append(out, v)
	}
	return out
}

func isCommon(fields []schemas.Field, name string) bool {
	for _, f := range fields {
		if f.Name == name {
			return true
		}
	}
	return false
}

// plainText refuses references where none is expanded, so that nobody takes
// ${...} in a title or a claim for more than text.
func (c *checker) plainText() {
	var walk func(v any, at string)
	walk = func(v any, at string) {
		switch x := v.(type) {
		case string:
			if strings.Contains(x, "${") {
				c.at(at, "", "no ${...} is expanded here")
			}
		case []any:
			for i, e := range x {
				walk(e, fmt.Sprintf("%s/%d", at, i))
			}
		case table:
			for _, k := range sortedKeys(x) {
				if path := at + schemas.Pointer(k); strings.HasPrefix(at, "/claim") || !isPathParam(at, k) {
					walk(x[k], path)
				}
			}
		}
	}
	for _, k := range []string{"schema", "name", "title", "description", "license", "params", "matrix", "trials", "claim"} {
		walk(c.tree[k], "/"+k)
	}
}

// isPathParam: the path of a path parameter may refer to machine values.
func isPathParam(at, key string) bool {
	return key == "path" && (strings.HasPrefix(at, "/params/") || strings.HasPrefix(at, "/matrix/"))
}
