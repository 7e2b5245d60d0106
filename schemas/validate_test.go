package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// filled returns a value of a type with every field set, by the field's tags.
func filled(t reflect.Type, tag reflect.StructTag) reflect.Value {
	v := reflect.New(t).Elem()
	switch v.Interface().(type) {
	case Digest:
		v.SetString(string(DigestOf([]byte("x"))))
		return v
	case Key:
		v.SetString("key:" + DigestOf([]byte("x")).Hex())
		return v
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6000000, time.UTC)))
		return v
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			v.Field(i).Set(filled(t.Field(i).Type, t.Field(i).Tag))
		}
	case reflect.Pointer:
		v = reflect.New(t.Elem())
		v.Elem().Set(filled(t.Elem(), tag))
	case reflect.Slice:
		v = reflect.Append(v, filled(t.Elem(), ""))
	case reflect.Map:
		v = reflect.MakeMap(t)
		v.SetMapIndex(reflect.ValueOf("ok").Convert(t.Key()), filled(t.Elem(), ""))
	case reflect.String:
		v.SetString(text(tag))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(MaxInteger)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Interface:
		v.Set(reflect.ValueOf("any"))
	default:
		panic(t.String())
	}
	return v
}

func text(tag reflect.StructTag) string {
	for _, part := range strings.Split(tag.Get("jsonschema")+","+tag.Get("jsonschema_extras"), ",") {
		if k, v, _ := strings.Cut(part, "="); k == "const" || k == "enum" {
			return v
		}
	}
	return "text"
}

// TestTypesAndSchemasAgree: a value with every field set is valid, a zero value
// with its required slices is an array everywhere, and any change that the type
// does not allow is refused.
func TestTypesAndSchemasAgree(t *testing.T) {
	for name, v := range produced {
		t.Run(name, func(t *testing.T) {
			doc, err := Encode(filled(reflect.TypeOf(v), "").Interface())
			if err != nil {
				t.Fatal(err)
			}
			if err := Validate(name, doc); err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
			back := reflect.New(reflect.TypeOf(v))
			if err := json.Unmarshal(doc, back.Interface()); err != nil {
				t.Fatal(err)
			}
			again, err := Encode(back.Interface())
			if err != nil || !bytes.Equal(doc, again) {
				t.Errorf("decoding loses something: %v\n%s\n%s", err, doc, again)
			}
			var m map[string]any
			if err := json.Unmarshal(doc, &m); err != nil {
				t.Fatal(err)
			}
			refuseChanges(t, name, m)
		})
	}
}

func refuseChanges(t *testing.T, name string, m map[string]any) {
	t.Helper()
	schema := required(t, name)
	refused := func(what string, change func(map[string]any), path string) {
		t.Helper()
		c := copyValue(m).(map[string]any)
		change(c)
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var invalid *InvalidError
		if err := Validate(name, b); !errors.As(err, &invalid) {
			t.Errorf("%s: got %v, want an InvalidError", what, err)
		} else if invalid.Violations[0].Path != path {
			t.Errorf("%s: at %q, want %q: %v", what, invalid.Violations[0].Path, path, err)
		}
	}
	refused("unknown field", func(m map[string]any) { m["unknown_field"] = 1 }, "")
	for k, v := range m {
		if schema[k] {
			refused("missing "+k, func(m map[string]any) { delete(m, k) }, "")
		}
		refused("misspelt "+k, func(m map[string]any) { delete(m, k); m[k+"x"] = v }, "")
		if v != "any" {
			refused("null "+k, func(m map[string]any) { m[k] = nil }, "/"+k)
		}
		if s, ok := v.(string); ok && s != "any" {
			refused("number for "+k, func(m map[string]any) { m[k] = 1 }, "/"+k)
		}
		if _, ok := v.(float64); ok {
			refused("text for "+k, func(m map[string]any) { m[k] = "1" }, "/"+k)
		}
	}
	if s, ok := m["schema"].(string); ok {
		refused("next major", func(m map[string]any) { m["schema"] = strings.TrimSuffix(s, "v1") + "v2" }, "/schema")
	}
}

func required(t *testing.T, name string) map[string]bool {
	t.Helper()
	b, err := JSON(name)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Schema               string   `json:"$schema"`
		ID                   string   `json:"$id"`
		Required             []string `json:"required"`
		AdditionalProperties *bool    `json:"additionalProperties"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	if s.Schema != "https://json-schema.org/draft/2020-12/schema" || s.ID != schemaID(name) ||
		s.AdditionalProperties == nil || *s.AdditionalProperties {
		t.Errorf("head of schema %s: %+v", name, s)
	}
	out := map[string]bool{}
	for _, k := range s.Required {
		out[k] = true
	}
	return out
}

func TestFormatsAreAsserted(t *testing.T) {
	doc, err := Encode(filled(reflect.TypeFor[Report](), "").Interface())
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		`"started_at":"2026-01-02T03:04:05.006Z"`: `"started_at":"2026-01-02 03:04"`,
		`"status":"passed"`:                       `"status":"great"`,
		`"digest":"sha256:`:                       `"digest":"sha512:`,
		`"position":1`:                            `"position":-1`,
		`"seed":9007199254740991`:                 `"seed":9007199254740993`,
		`"repetition":1`:                          `"repetition":1.5`,
	} {
		bad := bytes.Replace(doc, []byte(from), []byte(to), 1)
		if bytes.Equal(bad, doc) {
			t.Fatalf("%s is not in the document", from)
		}
		var invalid *InvalidError
		if err := Validate("report", bad); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestValidateRefusesWhatIsNoDocument(t *testing.T) {
	for _, doc := range []string{"", "{", "[]", "null", `{"schema":"assay/findings/v1","findings":[]} {}`, `{"schema":"assay/findings/v1","findings":null}`} {
		var invalid *InvalidError
		if err := Validate("findings", []byte(doc)); !errors.As(err, &invalid) || len(invalid.Violations) == 0 {
			t.Errorf("%q: %v", doc, err)
		}
	}
	if err := Validate("findings", []byte(`{"schema":"assay/findings/v1","findings":[]}`)); err != nil {
		t.Error(err)
	}
	err := Validate("finding-s", nil)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), `did you mean "findings"`) {
		t.Errorf("an unknown schema: %v", err)
	}
	for _, name := range []string{"../go", "", "x/../plan"} {
		if _, err := JSON(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestMeantBranchIsReported(t *testing.T) {
	doc := `{"schema":"assay/experiment/v1","name":"t","trials":{"repeat":1,"order":"abba","seed":0},
		"stage":{"m":{"kind":"measure","service":"e","workload":"w","speed":true}}}`
	err := Validate("experiment", []byte(doc))
	var invalid *InvalidError
	if !errors.As(err, &invalid) || invalid.Violations[0].Path != "/stage/m/speed" {
		t.Errorf("got %v", err)
	}
}

func TestEncode(t *testing.T) {
	b, err := Encode(Tree{Schema: TreeV1})
	if want := `{"blobs":[],"digest":"","entries":[],"schema":"assay/tree/v1"}`; err != nil || string(b) != want {
		t.Errorf("got %s, %v; want %s", b, err, want)
	}
	b, err = Encode(&Result{Metrics: map[string]Summary{"a": {}}, Models: []ModelResult{{}}})
	if err != nil || bytes.Contains(b, []byte("null")) {
		t.Errorf("null in %s, %v", b, err)
	}
	for _, v := range []any{Trial{Seed: MaxInteger + 1}, []int64{math.MinInt64}, map[string]any{"a": uint64(math.MaxUint64)}} {
		if b, err := Encode(v); err == nil {
			t.Errorf("%+v was rounded to %s", v, b)
		}
	}
	if b, err := Encode(map[string]any{"a": nil, "b": []string(nil)}); err != nil || string(b) != `{"a":null,"b":[]}` {
		t.Errorf("%s, %v", b, err)
	}
}

func TestDescribeNamesEverything(t *testing.T) {
	d := Describe()
	for _, k := range Kinds() {
		fields, ok := FieldsOf(k.Name)
		if !ok {
			t.Errorf("kind %s has no fields", k.Name)
		}
		for _, f := range fields {
			if !strings.Contains(d, "`"+f.Name+"`") && !strings.Contains(d, "."+f.Name+"`") {
				t.Errorf("%s of %s is not described", f.Name, k.Name)
			}
		}
	}
	for _, e := range Engines() {
		if !strings.Contains(d, fmt.Sprintf("engine = %q", e.Name)) {
			t.Errorf("engine %s is not described", e.Name)
		}
	}
}
