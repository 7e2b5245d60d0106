package schemas

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

//go:embed json/*.v1.json
var documents embed.FS

// InvalidError lists what is wrong with a document.
type InvalidError struct {
	Schema     string
	Violations []Violation
}

func (e *InvalidError) Error() string {
	const shown = 5
	var b strings.Builder
	fmt.Fprintf(&b, "%s document is invalid", e.Schema)
	for i, v := range e.Violations {
		if i == shown {
			fmt.Fprintf(&b, "; and %d more", len(e.Violations)-shown)
			break
		}
		sep := ": "
		if i > 0 {
			sep = "; "
		}
		b.WriteString(sep + v.String())
	}
	return b.String()
}

// Names lists the schemas, sorted: "experiment", "report", ...
func Names() []string {
	entries, err := fs.ReadDir(documents, "json")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".v1.json"))
	}
	sort.Strings(names)
	return names
}

// JSON returns the JSON Schema of a name. The error wraps fs.ErrNotExist for an
// unknown one and names the nearest.
func JSON(name string) ([]byte, error) {
	b, err := documents.ReadFile("json/" + name + ".v1.json")
	if err != nil {
		hint := ""
		if near := Nearest(name, Names()); near != "" {
			hint = fmt.Sprintf(" (did you mean %q?)", near)
		}
		return nil, fmt.Errorf("schema %q: %w%s; there are %s", name, fs.ErrNotExist, hint, strings.Join(Names(), ", "))
	}
	return b, nil
}

// Validate checks one JSON document against the schema of a name, formats
// included. What is wrong with the document comes as *InvalidError; any other
// error means that there is no such schema.
func Validate(name string, doc []byte) error {
	schema, err := compiled(name)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return &InvalidError{Schema: name, Violations: []Violation{{Message: "not JSON: " + err.Error()}}}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &InvalidError{Schema: name, Violations: []Violation{{Message: "something follows the JSON document"}}}
	}
	err = schema.Validate(v)
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return &InvalidError{Schema: name, Violations: leaves(invalid)}
	}
	return err
}

var schemaCache sync.Map // name -> *jsonschema.Schema

func compiled(name string) (*jsonschema.Schema, error) {
	if s, ok := schemaCache.Load(name); ok {
		return s.(*jsonschema.Schema), nil
	}
	b, err := JSON(name)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	c.AssertFormat = true
	c.LoadURL = func(u string) (io.ReadCloser, error) {
		return nil, fmt.Errorf("schema %s refers to %s: nothing is loaded from elsewhere", name, u)
	}
	id := schemaID(name)
	if err := c.AddResource(id, bytes.NewReader(b)); err != nil {
		return nil, fmt.Errorf("schema %s: %w", name, err)
	}
	s, err := c.Compile(id)
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", name, err)
	}
	schemaCache.Store(name, s)
	return s, nil
}

func schemaID(name string) string { return "urn:assay:schema:" + name + ":v1" }

// leaves lists the innermost causes. Of the branches of a oneOf or anyOf it
// takes the one that was meant: that whose constants fit, else the one with the
// fewest faults.
func leaves(e *jsonschema.ValidationError) []Violation {
	if len(e.Causes) == 0 {
		return []Violation{{Path: e.InstanceLocation, Message: e.Message}}
	}
	if strings.HasSuffix(e.KeywordLocation, "/oneOf") || strings.HasSuffix(e.KeywordLocation, "/anyOf") {
		return bestBranch(e)
	}
	var out []Violation
	for _, c := range e.Causes {
		out = append(out, leaves(c)...)
	}
	return out
}

func bestBranch(e *jsonschema.ValidationError) []Violation {
	var best []Violation
	bestCost := 0
	for _, c := range e.Causes {
		vs := leaves(c)
		cost := len(vs)
		if failsConst(c) {
			cost += 1000
		}
		if best == nil || cost < bestCost {
			best, bestCost = vs, cost
		}
	}
	return best
}

func failsConst(e *jsonschema.ValidationError) bool {
	if strings.HasSuffix(e.KeywordLocation, "/const") {
		return true
	}
	for _, c := range e.Causes {
		if failsConst(c) {
			return true
		}
	}
	return false
}
