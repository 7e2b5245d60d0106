package aegaeon

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"assay/internal/engines/aegaeon"
	"assay/schemas"
)

// maxFindings of one file; one with more is something else altogether.
const maxFindings = 50

// Config is a configuration as it is read, with defaults.
type Config = aegaeon.Config

// Result is what a configuration says and what is wrong with it.
type Result struct {
	Findings []schemas.Finding
	// Config holds defaults where nothing is said; nil where the file refuses a run.
	Config *aegaeon.Config
}

// Check checks the content of a file.
func Check(subject, file string, content []byte) Result {
	c := &checker{subject: subject, file: file}
	doc, problems := aegaeon.Parse(content)
	for _, p := range problems {
		c.at(p.Line, p.Column).fail("aegaeon.yaml", "want one YAML document with server, models and devices", "%s", p.Text)
	}
	if doc != nil {
		if doc.Kind != aegaeon.Table {
			c.of(doc).fail("aegaeon.yaml", "want one YAML document with server, models and devices", "want a table")
		} else {
			c.table("", doc, topKeys, false)
			c.rules(doc)
		}
	}
	r := Result{}
	if !c.refused() {
		config, err := aegaeon.ParseConfig(file, content)
		if err != nil { // by a rule that is checked where the file is read alone
			c.at(0, 0).fail("aegaeon.config", "correct what the message names", "%s", strings.TrimPrefix(err.Error(), file+": "))
		} else {
			r.Config = &config
			c.at(0, 0).add("aegaeon.config", schemas.SeverityPass, "", "is as the engine wants it, %d models", len(config.Models))
			c.findings[len(c.findings)-1].File = ""
		}
	}
	r.Findings = c.findings
	return r
}

// checker gathers findings of one file.
type checker struct {
	subject, file string
	line, column  int // of the next finding
	findings      []schemas.Finding
}

func (c *checker) at(line, column int) *checker {
	c.line, c.column = line, column
	return c
}

func (c *checker) of(v *aegaeon.Value) *checker {
	if v == nil {
		return c.at(0, 0)
	}
	return c.at(v.Line, v.Column)
}

func (c *checker) add(id string, s schemas.Severity, remedy, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if s != schemas.SeverityPass {
		where := c.file
		if c.line > 0 {
			where += ":" + strconv.Itoa(c.line)
			if c.column > 0 {
				where += ":" + strconv.Itoa(c.column)
			}
		}
		text = where + ": " + text
	}
	if len(c.findings) < maxFindings {
		c.findings = append(c.findings, schemas.Finding{ID: id, Severity: s, Subject: c.subject, Message: text, Remedy: remedy, File: c.file, Line: c.line, Column: c.column})
	}
}

func (c *checker) fail(id, remedy, format string, args ...any) {
	c.add(id, schemas.SeverityError, remedy, format, args...)
}

func (c *checker) warn(id, remedy, format string, args ...any) {
	c.add(id, schemas.SeverityWarning, remedy, format, args...)
}

func (c *checker) refused() bool {
	return slices.ContainsFunc(c.findings, func(f schemas.Finding) bool { return f.Severity == schemas.SeverityError })
}

// table checks every key of a table and its value; at is its name with a point.
func (c *checker) table(at string, t *aegaeon.Value, keys map[string]key, open bool) {
	known := slices.Sorted(maps.Keys(keys))
	first := map[string]int{}
	for _, k := range t.Keys {
		if k.Merged {
			continue // judged where it stands
		}
		if before, twice := first[k.Name]; twice {
			c.at(k.Line, k.Column).fail("aegaeon.duplicate-key", "remove one of the two: the engine takes the last one silently", "%s%s stands in line %d already", at, k.Name, before)
			continue
		}
		first[k.Name] = k.Line
		spec, ok := keys[k.Name]
		if !ok {
			c.unknownKey(at, k, known, open)
			continue
		}
		c.value(at+k.Name, k.Value, spec)
	}
}

func (c *checker) unknownKey(at string, k aegaeon.Key, known []string, open bool) {
	near := schemas.Nearest(k.Name, known)
	if open && near == "" {
		return
	}
	c.at(k.Line, k.Column)
	if strings.HasPrefix(k.Name, "gpu_clock") {
		c.fail("aegaeon.unknown-key", "remove it, and set clocks outside of the engine", "%s%s has no effect: the engine drops it", at, k.Name)
		return
	}
	remedy := "remove it: the engine drops it silently; it knows " + strings.Join(known, ", ")
	if near != "" {
		remedy = fmt.Sprintf("write %s if that is meant; otherwise remove it: the engine drops it silently", near)
	}
	c.fail("aegaeon.unknown-key", remedy, "unknown key %s%.60s", at, k.Name)
}

func (c *checker) value(at string, v *aegaeon.Value, k key) {
	switch {
	case v.Kind == aegaeon.Scalar && sortOf(v) == isNull:
		if !k.null {
			c.of(v).fail("aegaeon.null", "give a value, or leave the key out", "%s has no value, which is not the same as leaving it out", at)
		}
		return
	case k.form == wantTable || k.form == wantTables || k.form == wantInts || k.form == wantTexts:
		c.composite(at, v, k)
		return
	case v.Kind != aegaeon.Scalar:
		c.of(v).fail("aegaeon.type", "write "+string(k.form), "%s: want %s, have a %s", at, k.form, v.Kind)
		return
	}
	if c.scalar(at, v, k) {
		c.limits(at, v, k)
	}
}

func (c *checker) composite(at string, v *aegaeon.Value, k key) {
	want := aegaeon.List
	if k.form == wantTable {
		want = aegaeon.Table
	}
	if v.Kind != want {
		c.of(v).fail("aegaeon.type", "write "+string(k.form), "%s: want %s, have a %s", at, k.form, v.Kind)
		return
	}
	if k.form == wantTable {
		c.table(at+".", v, k.keys, k.open)
		return
	}
	inner := k
	inner.form = map[form]form{wantInts: wantInt, wantTexts: wantText, wantTables: wantTable}[k.form]
	inner.null = false
	for i, item := range v.Items {
		c.value(fmt.Sprintf("%s[%d]", at, i), item, inner)
	}
}

// scalar says whether a scalar is of the form wanted, as YAML 1.1 reads it.
func (c *checker) scalar(at string, v *aegaeon.Value, k key) bool {
	have, why := sortOf(v), trap(v)
	text := v.Kind == aegaeon.Scalar && (k.form == wantText || k.form == wantMode)
	switch {
	case k.form == wantMode && have == isBool:
		c.of(v).fail("aegaeon.graph-mode", fmt.Sprintf("write '%s'", v.Text), "%s: %s without quotes is a boolean to YAML 1.1", at, v.Text)
	case text && have != isText:
		c.of(v).fail("aegaeon.yaml11", fmt.Sprintf("write '%.60s'", v.Text), "%s: %.60s without quotes is %s to YAML 1.1, not text", at, v.Text, have)
	case text:
		return true
	case why != "":
		c.of(v).fail("aegaeon.yaml11", "write it in plain digits", "%s: %.60s %s", at, v.Text, why)
	case k.form == wantBool && have == isBool:
		return true
	case k.form == wantInt && have == isInt, k.form == wantNumber && (have == isInt || have == isFloat):
		return true
	case k.form == wantBytes && (have == isInt || (have == isText && !v.Plain)):
		if _, err := strconv.ParseUint(strings.ReplaceAll(v.Text, "_", ""), 0, 64); err == nil {
			return true
		}
		c.of(v).fail("aegaeon.type", "write "+string(k.form), "%s: %.60q is no number of bytes", at, v.Text)
	default:
		what := string(have)
		if have == isText && !v.Plain {
			what = "text in quotes"
		}
		c.of(v).fail("aegaeon.type", "write "+string(k.form), "%s: want %s, have %.60q, which is %s", at, k.form, v.Text, what)
	}
	return false
}

func (c *checker) limits(at string, v *aegaeon.Value, k key) {
	if len(k.enum) > 0 && !slices.Contains(k.enum, v.Text) {
		hint := ""
		if near := schemas.Nearest(v.Text, k.enum); near != "" {
			hint = fmt.Sprintf("; %s is near", near)
		}
		c.of(v).fail(k.enumID, "write one of "+strings.Join(k.enum, ", "), "%s: %.60q is none of %s%s", at, v.Text, strings.Join(k.enum, ", "), hint)
	}
	if k.min == 0 && k.max == 0 {
		return
	}
	n, ok := number(v)
	if !ok || !(n >= k.min && n <= k.max) || (k.above && n == k.min) {
		low := "at least"
		if k.above {
			low = "more than"
		}
		c.of(v).fail("aegaeon.value", "correct the number", "%s: %.60s: want %s %s and at most %s", at, v.Text, low, schemas.Decimal(k.min), schemas.Decimal(k.max))
	}
}
