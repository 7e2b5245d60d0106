package experiments

import (
	"errors"
	"strconv"
	"strings"

	"assay/internal/report"
	"assay/schemas"
)

// owner is the table a string belongs to.
type owner struct {
	kind  string // "stage", "service", "model" or "params"
	name  string
	table table
}

// leaf is one string of a table with what its field allows.
type leaf struct {
	owner owner
	field schemas.Field // as a single value
	at    string
	// What may be referred to here.
	machine, secret, paths, service bool
}

// checkReferences checks every name that stands for something else: needs,
// services, claims and ${...}. Needs that a reference implies are added.
func (c *checker) checkReferences() {
	for _, name := range sortedKeys(c.sub("stage")) {
		t := c.sub("stage")[name].(table)
		at := schemas.Pointer("stage", name)
		c.checkNames("stage", t["needs"], at+"/needs")
		if s, ok := t["service"].(string); ok {
			c.checkName("service", s, at+"/service")
		}
		fields, _ := schemas.FieldsOf(t["kind"].(string))
		c.walkTable(owner{"stage", name, t}, fields[len(schemas.StageFields()):], t, at)
	}
	for _, name := range sortedKeys(c.sub("service")) {
		t := c.sub("service")[name].(table)
		at := schemas.Pointer("service", name)
		c.checkNames("service", t["needs"], at+"/needs")
		fields, _ := schemas.EngineFields(t["engine"].(string))
		c.walkTable(owner{"service", name, t}, fields[len(schemas.ServiceFields()):], t, at)
		if devices, ok := t["devices"]; ok {
			c.walkField(owner{"service", name, t}, schemas.Field{Name: "devices", Type: schemas.TypeStringList, Machine: true}, devices, at+"/devices")
		}
	}
	for _, f := range schemas.ExperimentFields() {
		if f.Name == "model" && c.sub("model") != nil {
			c.walkField(owner{kind: "model"}, f, c.tree["model"], "/model")
		}
	}
	for _, name := range sortedKeys(c.sub("params")) {
		for i, v := range c.paramValues(name) {
			at := schemas.Pointer("params", name)
			if i > 0 {
				at = schemas.Pointer("matrix", name, strconv.Itoa(i-1))
			}
			if t, ok := v.(table); ok {
				c.walkField(owner{kind: "params"}, schemas.Field{Name: "path", Type: schemas.TypePath}, t["path"], at+"/path")
			}
		}
	}
	c.checkClaims()
	c.checkTrials()
}

func (c *checker) checkNames(kind string, v any, at string) {
	seen := map[string]bool{}
	for i, name := range stringList(v) {
		here := at + "/" + strconv.Itoa(i)
		c.checkName(kind, name, here)
		if seen[name] {
			c.at(here, "", "needs: %q is named twice", name)
		}
		seen[name] = true
	}
}

func (c *checker) checkName(kind, name, at string) {
	if _, ok := c.sub(kind)[name]; !ok {
		c.at(at, schemas.Nearest(name, sortedKeys(c.sub(kind))), "there is no %s %q", kind, name)
	}
}

// maxTrials bounds what an experiment expands to: every trial is a few nodes, each
// with a record of its own.
const maxTrials = 10000

func (c *checker) checkTrials() {
	trials := 1.0
	if t := c.sub("trials"); t != nil {
		if r, ok := t["repeat"].(float64); ok {
			trials = r
		}
	}
	at := "/trials"
	for _, name := range sortedKeys(c.sub("matrix")) {
		if list, ok := c.sub("matrix")[name].([]any); ok && len(list) > 0 {
			trials *= float64(len(list))
			at = schemas.Pointer("matrix", name)
		}
	}
	if trials > maxTrials {
		c.at(at, "", "the matrix and the repetitions make %s trials, more than %d: cross fewer values, or split the experiment", schemas.Decimal(trials), maxTrials)
	}
}

func (c *checker) checkClaims() {
	claims, _ := c.tree["claim"].([]any)
	for i, v := range claims {
		t, _ := v.(table)
		metric, _ := t["metric"].(string)
		at := schemas.Pointer("claim", strconv.Itoa(i), "metric")
		stage, rest, ok := strings.Cut(metric, ".")
		if !ok || stage == "" || rest == "" || strings.HasSuffix(rest, ".") {
			c.at(at, "", "metric: want STAGE.METRIC.STATISTIC, like replay.qos.mean, got %q", metric)
			continue
		}
		c.checkName("stage", stage, at)
		if err := report.CheckMetric(rest); err != nil {
			c.at(at, "", "metric: %v", err)
		}
	}
}

func (c *checker) walkTable(o owner, fields []schemas.Field, t table, at string) {
	for _, f := range fields {
		if v, ok := t[f.Name]; ok {
			c.walkField(o, f, v, at+schemas.Pointer(f.Name))
		}
	}
}

func (c *checker) walkField(o owner, f schemas.Field, v any, at string) {
	switch x := v.(type) {
	case string:
		c.checkString(o, f, x, at)
	case []any:
		for i, e := range x {
			here := at + "/" + strconv.Itoa(i)
			if t, ok := e.(table); ok {
				c.walkTable(o, f.Fields, t, here)
			} else {
				c.walkField(o, f, e, here)
			}
		}
	case table:
		for _, k := range sortedKeys(x) {
			here := at + schemas.Pointer(k)
			inner, isTable := x[k].(table)
			switch {
			case f.Type == schemas.TypeTable:
				c.walkTable(o, f.Fields, x, at)
				return
			case isTable:
				c.walkTable(o, f.Fields, inner, here)
			default:
				c.walkField(o, f, x[k], here)
			}
		}
	}
}

// checkString checks one string that stands in a field (or in a list or map of one).
func (c *checker) checkString(o owner, f schemas.Field, s, at string) {
	segments, err := schemas.ParseTemplate(s)
	var bad *schemas.ReferenceError
	if errors.As(err, &bad) {
		c.at(at, bad.Hint, "%s", bad)
		return
	}
	isPath := f.Type == schemas.TypePath || f.Type == schemas.TypePathMap
	l := leaf{owner: o, field: schemas.ElementOf(f), at: at, secret: f.Secret, paths: isPath || f.Paths,
		machine: isPath || f.Machine || f.Type == schemas.TypeURL || f.Type == schemas.TypePort,
		service: f.Paths || f.Type == schemas.TypeURL}
	refs := 0
	valuesKnown := true
	for _, g := range segments {
		if g.Ref == nil {
			continue
		}
		refs++
		if !c.checkReference(l, *g.Ref) || g.Ref.Namespace != schemas.RefParam || c.isPath(g.Ref.Names[0]) {
			valuesKnown = false
		}
	}
	switch {
	case refs > 0 && valuesKnown:
		c.checkParamValues(l, s)
	case f.Ref != "":
		c.checkName(f.Ref, s, at)
	}
}

func (c *checker) isPath(param string) bool { return paramType(c.sub("params")[param]) == "path" }

// checkParamValues checks the field with every value its parameters take: the
// others keep their own meanwhile.
func (c *checker) checkParamValues(l leaf, s string) {
	for _, ref := range distinct(schemas.References(s)) {
		for i, v := range c.paramValues(ref.Names[0]) {
			got, err := schemas.SubstituteField(l.field, s, func(r schemas.Reference) (any, error) {
				if r.Names[0] == ref.Names[0] {
					return v, nil
				}
				return c.sub("params")[r.Names[0]], nil
			})
			if err == nil {
				err = schemas.CheckValue(l.field, got)
			}
			if err == nil {
				continue
			}
			from := "its value"
			if i > 0 {
				from = "its matrix value"
			}
			c.at(l.at, "", "%v (%s has %s %v)", err, ref.Text, from, quoted(v))
			break
		}
	}
}

func quoted(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	return schemas.PlainText(v)
}

func distinct(refs []schemas.Reference) []schemas.Reference {
	seen := map[string]bool{}
	var out []schemas.Reference
	for _, r := range refs {
		if !seen[r.Text] {
			seen[r.Text] = true
			out = append(out, r)
		}
	}
	return out
}
