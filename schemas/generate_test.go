package schemas

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
)

var update = flag.Bool("update", false, "rewrite the committed JSON Schemas")

// produced are the documents whose schema comes from a Go type.
var produced = map[string]any{
	"plan": Plan{}, "findings": Findings{}, "finding": Finding{}, "stage-record": StageRecord{},
	"request-record": RequestRecord{}, "schedule": Schedule{}, "scheduled-request": ScheduledRequest{},
	"tree": Tree{}, "run": Run{}, "report": Report{}, "result": Result{}, "preimage": Preimage{}, "probe": Probe{}, "load": Load{}, "compare": Comparison{},
	"graphs": Graphs{}, "validated": Validated{}, "host-facts": HostFacts{},
}

func TestSchemas(t *testing.T) {
	want := map[string]any{"experiment": experimentSchema(), "machine": machineSchema()}
	for name, v := range produced {
		want[name] = typeSchema(t, name, v)
	}
	for name, schema := range want {
		b := indented(t, schema)
		file := filepath.Join("json", name+".v1.json")
		if *update {
			if err := os.WriteFile(file, b, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(got), string(b)); d != "" {
			t.Errorf("%s is not what the types say; run go test ./schemas -run TestSchemas -update\n%s", file, d)
		}
	}
	files, _ := filepath.Glob("json/*.json")
	if len(files) != len(want) {
		t.Errorf("json/ holds %d files, want %d", len(files), len(want))
	}
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func typeSchema(t *testing.T, name string, v any) any {
	t.Helper()
	r := &jsonschema.Reflector{Anonymous: true, ExpandedStruct: true, Mapper: mapType}
	s := r.Reflect(v)
	s.ID = jsonschema.ID(schemaID(name))
	s.Title = name
	return s
}

func mapType(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[Digest]():
		return &jsonschema.Schema{Type: "string", Pattern: "^sha256:[0-9a-f]{64}$"}
	case reflect.TypeFor[Key]():
		return &jsonschema.Schema{Type: "string", Pattern: "^key:[0-9a-f]{64}$"}
	case reflect.TypeFor[Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: durationPattern}
	case reflect.TypeFor[Size]():
		return &jsonschema.Schema{Type: "string", Pattern: sizePattern}
	}
	switch t.Kind() {
	case reflect.Uint, reflect.Uint64:
		return &jsonschema.Schema{Type: "integer", Minimum: "0", Maximum: "9007199254740991"}
	case reflect.Int, reflect.Int64:
		return &jsonschema.Schema{Type: "integer"}
	}
	return nil
}

const (
	durationPattern = `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	sizePattern     = `^ *[0-9]+(\.[0-9]+)?(e[0-9]+)? *(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB) *$`
)

type object = map[string]any

func root(name string, fields object) object {
	fields["$schema"] = jsonschema.Version
	fields["$id"] = schemaID(name)
	fields["title"] = name
	return fields
}

func machineSchema() object { return root("machine", tableSchema(MachineFields(), false)) }

func experimentSchema() object {
	s := tableSchema(ExperimentFields(), false)
	props := s["properties"].(object)
	props["name"].(object)["pattern"] = ExperimentPattern
	props["matrix"] = object{"type": "object", "propertyNames": object{"pattern": NamePattern},
		"additionalProperties": object{"type": "array", "minItems": 1, "items": paramSchema()}}
	props["model"] = mapSchema(NamePattern, tableSchema(ExperimentFieldsOf("model"), true))
	var stages, services []any
	for _, k := range Kinds() {
		fields, _ := FieldsOf(k.Name)
		stages = append(stages, stageSchema(k, fields))
	}
	for _, e := range Engines() {
		fields, _ := EngineFields(e.Name)
		services = append(services, serviceSchema(e, fields))
	}
	props["stage"] = mapSchema(NamePattern, object{"oneOf": stages})
	props["stage"].(object)["minProperties"] = 1
	props["service"] = mapSchema(NamePattern, object{"oneOf": services})
	return root("experiment", s)
}

// ExperimentFieldsOf returns the fields of one table of the experiment file.
func ExperimentFieldsOf(table string) []Field {
	f, _ := fieldNamed(ExperimentFields(), table)
	return f.Fields
}

func stageSchema(k KindSpec, fields []Field) object {
	s := tableSchema(fields, true)
	props := s["properties"].(object)
	plain(props, StageFields())
	props["kind"] = object{"const": k.Name, "description": k.Doc}
	switch k.Service {
	case "required":
		s["required"] = append(s["required"].([]string), "service")
	case "":
		delete(props, "service")
	}
	return s
}

func serviceSchema(e EngineSpec, fields []Field) object {
	s := tableSchema(fields, true)
	props := s["properties"].(object)
	plain(props, ServiceFields())
	props["engine"] = object{"const": e.Name, "description": e.Doc}
	var all []any
	for _, group := range e.OneOf {
		var one []any
		for _, key := range group {
			one = append(one, object{"required": []string{key}})
		}
		all = append(all, object{"oneOf": one})
	}
	if all != nil {
		s["allOf"] = all
	}
	return s
}

// plain replaces the keys that take no reference.
func plain(props object, fields []Field) {
	for _, f := range fields {
		props[f.Name] = fieldSchema(f, false)
	}
}

func tableSchema(fields []Field, refs bool) object {
	props := object{}
	required := []string{}
	for _, f := range fields {
		props[f.Name] = fieldSchema(f, refs)
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return object{"type": "object", "additionalProperties": false, "properties": props, "required": required}
}

func mapSchema(pattern string, values object) object {
	return object{"type": "object", "propertyNames": object{"pattern": pattern}, "additionalProperties": values}
}

func paramSchema() object {
	return object{"oneOf": []any{
		object{"type": []string{"string", "number", "boolean"}},
		tableSchema([]Field{{Name: "path", Type: TypePath, Required: true}}, false),
	}}
}

func fieldSchema(f Field, refs bool) object {
	s := bareSchema(f, refs)
	if refs && s["type"] != "object" && s["type"] != "array" && !(f.Type == TypeString && len(f.Enum) == 0) && f.Type != TypeSecret && f.Type != TypePath && f.Type != TypeScalar {
		s = object{"anyOf": []any{s, object{"type": "string", "pattern": `\$\{`}}}
	}
	s["description"] = f.Doc
	if f.Default != nil {
		s["default"] = f.Default
	}
	return s
}

func bareSchema(f Field, refs bool) object {
	switch f.Type {
	case TypeInt, TypeFloat:
		s := object{"type": string(f.Type)}
		if f.Min != nil {
			s["minimum"] = *f.Min
		}
		if f.Max != nil {
			s["maximum"] = *f.Max
		} else if f.Type == TypeInt {
			s["maximum"] = MaxInteger
		}
		return s
	case TypeBool:
		return object{"type": "boolean"}
	case TypeDuration:
		return object{"type": "string", "pattern": durationPattern}
	case TypeSize:
		return object{"type": "string", "pattern": sizePattern}
	case TypePath:
		return object{"type": "string", "minLength": 1}
	case TypeURL:
		return object{"type": "string", "pattern": "^https?://"}
	case TypeSecret:
		return object{"type": "string", "pattern": `^\$\{secret\.[A-Za-z0-9_-]+\}$`}
	case TypePort:
		return object{"type": []string{"integer", "string"}, "minimum": 1, "maximum": 65535, "pattern": "^[0-9]+$"}
	case TypeScalar:
		return object{"type": []string{"string", "number", "boolean"}}
	case TypeBoolOrList:
		return object{"type": []string{"boolean", "array"}, "items": bareSchema(ElementOf(f), refs)}
	case TypeStringList, TypeScalarList:
		return object{"type": "array", "items": bareSchema(ElementOf(f), refs)}
	case TypeStringMap, TypePathMap:
		return mapSchema(keyPattern(f), bareSchema(ElementOf(f), refs))
	case TypeParamMap:
		return mapSchema(NamePattern, paramSchema())
	case TypeTable:
		return tableSchema(f.Fields, refs)
	case TypeTableMap:
		return mapSchema(keyPattern(f), tableSchema(f.Fields, refs))
	case TypeTableList:
		return object{"type": "array", "items": tableSchema(f.Fields, refs)}
	}
	s := object{"type": "string"}
	if len(f.Enum) > 0 {
		s["enum"] = f.Enum
	}
	return s
}
