package schemas

import (
	"fmt"
	"math"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Violation is one fault of a document.
type Violation struct {
	Path    string `json:"path"` // JSON pointer; "" is the whole document
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // the nearest valid name
	// OnKey says that the key at Path is at fault, not its value.
	OnKey bool `json:"-"`
}

func (v Violation) String() string {
	s := v.Message
	if v.Path != "" {
		s = v.Path + ": " + s
	}
	if v.Hint != "" {
		s += fmt.Sprintf(" (did you mean %q?)", v.Hint)
	}
	return s
}

// Pointer joins names to a JSON pointer.
func Pointer(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteByte('/')
		b.WriteString(pointerEscape.Replace(n))
	}
	return b.String()
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// Name patterns. Names of stages, services, parameters, models and outputs
// become folder names and parts of references.
const (
	NamePattern       = `^[a-z0-9][a-z0-9_-]{0,62}$`
	ExperimentPattern = `^[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)*$`
	logicalPattern    = `^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`
	variablePattern   = `^[A-Za-z_][A-Za-z0-9_]*$`
	machinePattern    = `^[A-Za-z0-9_-]+$`
)

var patterns = map[string]*regexp.Regexp{
	NamePattern: regexp.MustCompile(NamePattern), ExperimentPattern: regexp.MustCompile(ExperimentPattern),
	logicalPattern: regexp.MustCompile(logicalPattern), variablePattern: regexp.MustCompile(variablePattern),
	machinePattern: regexp.MustCompile(machinePattern),
}

// ValidName reports whether s may name a stage, service, parameter, model or output.
func ValidName(s string) bool { return patterns[NamePattern].MatchString(s) }

// keyPattern is what the keys of a map field must match.
func keyPattern(f Field) string {
	switch {
	case f.Type == TypeTableMap, f.Type == TypeParamMap, f.Name == "outputs":
		return NamePattern
	case f.Type == TypePathMap:
		return logicalPattern
	case f.Name == "env":
		return variablePattern
	}
	return machinePattern
}

// CheckValue checks a value of a field whose references are substituted.
func CheckValue(field Field, v any) error {
	return firstViolation(checkField(field, v, "", false))
}

// CheckTable checks a table of the experiment or machine file against its
// fields: unknown and missing keys, types, limits. With written set, a string
// that holds a reference passes wherever one value is expected, since its value
// is not known yet.
func CheckTable(fields []Field, table map[string]any, written bool) []Violation {
	return checkTable(fields, table, "", written)
}

func firstViolation(vs []Violation) error {
	if len(vs) == 0 {
		return nil
	}
	return fmt.Errorf("%s", vs[0])
}

func checkTable(fields []Field, table map[string]any, at string, written bool) []Violation {
	var out []Violation
	for _, k := range sortedKeys(table) {
		f, ok := fieldNamed(fields, k)
		if !ok {
			out = append(out, Violation{Path: at + Pointer(k), OnKey: true,
				Message: fmt.Sprintf("unknown key %q", k), Hint: Nearest(k, fieldNames(fields))})
			continue
		}
		out = append(out, checkField(f, table[k], at+Pointer(k), written)...)
	}
	for _, f := range fields {
		if _, ok := table[f.Name]; !ok && f.Required {
			out = append(out, Violation{Path: at, OnKey: true, Message: fmt.Sprintf("missing key %q: %s", f.Name, f.Doc)})
		}
	}
	return out
}

func fieldNamed(fields []Field, name string) (Field, bool) {
	for _, f := range fields {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

func checkField(f Field, v any, at string, written bool) []Violation {
	switch f.Type {
	case TypeTable:
		if m, ok := v.(map[string]any); ok {
			return checkTable(f.Fields, m, at, written)
		}
		return wrongType(f, v, at, "a table")
	case TypeTableList:
		return checkList(f, v, at, "a list of tables", func(e any, at string) []Violation {
			if m, ok := e.(map[string]any); ok {
				return checkTable(f.Fields, m, at, written)
			}
			return wrongType(f, e, at, "a table")
		})
	case TypeBoolOrList:
		if _, ok := v.(bool); ok {
			return nil
		}
		if text, ok := v.(string); ok && written && holdsReference(text) {
			return nil
		}
		return checkList(f, v, at, "true, false or a list", func(e any, at string) []Violation {
			return checkSingle(ElementOf(f), e, at, written)
		})
	case TypeStringList, TypeScalarList:
		return checkList(f, v, at, "a list", func(e any, at string) []Violation {
			return checkSingle(ElementOf(f), e, at, written)
		})
	case TypeTableMap, TypeStringMap, TypePathMap, TypeParamMap:
		return checkMap(f, v, at, written)
	}
	return checkSingle(f, v, at, written)
}

// ElementOf returns the field that an element of a list or map is checked as; a
// field of one value comes back without what does not bear on its value.
func ElementOf(f Field) Field {
	e := Field{Name: f.Name, Type: f.Type, Enum: f.Enum, Min: f.Min, Max: f.Max, Doc: f.Doc}
	switch f.Type {
	case TypeStringList, TypeBoolOrList, TypeStringMap:
		e.Type = TypeString
	case TypeScalarList:
		e.Type = TypeScalar
	case TypePathMap:
		e.Type = TypePath
	}
	return e
}

func checkList(f Field, v any, at, want string, each func(any, string) []Violation) []Violation {
	var list []any
	switch x := v.(type) {
	case []any:
		list = x
	case []string:
		for _, s := range x {
			list = append(list, s)
		}
	default:
		return wrongType(f, v, at, want)
	}
	var out []Violation
	for i, e := range list {
		out = append(out, each(e, at+"/"+strconv.Itoa(i))...)
	}
	return out
}

func checkMap(f Field, v any, at string, written bool) []Violation {
	m, ok := v.(map[string]any)
	if !ok {
		return wrongType(f, v, at, "a table of names")
	}
	var out []Violation
	for _, k := range sortedKeys(m) {
		here := at + Pointer(k)
		if p := keyPattern(f); !patterns[p].MatchString(k) {
			out = append(out, Violation{Path: here, OnKey: true, Message: fmt.Sprintf("invalid name %q: want %s", k, nameRules[p])})
			continue
		}
		switch f.Type {
		case TypeTableMap:
			if t, ok := m[k].(map[string]any); ok {
				out = append(out, checkTable(f.Fields, t, here, written)...)
			} else {
				out = append(out, wrongType(f, m[k], here, "a table")...)
			}
		case TypeParamMap:
			out = append(out, CheckParam(m[k], here)...)
		default:
			out = append(out, checkSingle(ElementOf(f), m[k], here, written)...)
		}
	}
	return out
}

var nameRules = map[string]string{
	NamePattern:       "up to 63 lower-case letters, digits, '-' and '_', beginning with a letter or digit",
	ExperimentPattern: "lower-case letters, digits, '-', '_' and '/'",
	logicalPattern:    "letters, digits, '.', '-' and '_', not beginning with '.' or '-'",
	variablePattern:   "an environment variable: letters, digits and '_'",
	machinePattern:    "letters, digits, '-' and '_'",
}

// CheckParam checks a parameter's value: a scalar, or { path = "..." }.
func CheckParam(v any, at string) []Violation {
	if m, ok := v.(map[string]any); ok {
		return checkTable([]Field{{Name: "path", Type: TypePath, Required: true, Machine: true, Doc: "file or folder"}}, m, at, true)
	}
	return checkSingle(Field{Name: "parameter", Type: TypeScalar}, v, at, true)
}

func wrongType(f Field, v any, at, want string) []Violation {
	return []Violation{{Path: at, Message: fmt.Sprintf("%s: want %s, got a %s", f.Name, want, typeName(v))}}
}

// checkSingle checks everything that is one value in the file.
func checkSingle(f Field, v any, at string, written bool) []Violation {
	s, isString := v.(string)
	if written && f.Type == TypeSecret {
		return checkSecret(f, s, at)
	}
	if written && isString && holdsReference(s) {
		return nil
	}
	n, isNumber := number(v)
	bad := func(format string, args ...any) []Violation {
		return []Violation{{Path: at, Message: f.Name + ": " + fmt.Sprintf(format, args...)}}
	}
	switch f.Type {
	case TypeInt, TypeFloat:
		if !isNumber {
			return wrongType(f, v, at, "a number")
		}
		return checkNumber(f, n, at)
	case TypeBool:
		if _, ok := v.(bool); !ok {
			return wrongType(f, v, at, "true or false")
		}
	case TypeScalar:
		if _, ok := v.(bool); !ok && !isNumber && !isString {
			return wrongType(f, v, at, "a string, number, or true or false")
		}
	case TypeDuration, TypeSize:
		if isNumber {
			return bad("%s has no unit: write a %s like %s", Decimal(n), f.Type, unitExample[f.Type])
		}
		if !isString {
			return wrongType(f, v, at, "a "+string(f.Type)+" like "+unitExample[f.Type])
		}
		if err := checkUnits(f.Type, s); err != nil {
			return bad("%s", err)
		}
	case TypePort:
		return checkPort(f, v, at)
	default:
		if !isString {
			return wrongType(f, v, at, "a "+stringName[f.Type])
		}
		return checkString(f, s, at)
	}
	return nil
}

var (
	unitExample = map[FieldType]string{TypeDuration: `"10s" or "100ms"`, TypeSize: `"64MiB" or "4GB"`}
	stringName  = map[FieldType]string{TypeString: "string", TypePath: "path (a string)", TypeURL: "URL (a string)", TypeSecret: "secret (a string)"}
)

// checkSecret takes a reference alone. What stands there instead may be the secret
// itself, and is not repeated.
func checkSecret(f Field, s, at string) []Violation {
	if segments, err := ParseTemplate(s); err == nil && len(segments) == 1 && segments[0].Ref != nil && segments[0].Ref.Namespace == RefSecret {
		return nil
	}
	return []Violation{{Path: at, Message: f.Name + ": want ${secret.NAME}, and nothing beside it; the machine file says under [secrets] where NAME comes from"}}
}

func checkUnits(t FieldType, s string) error {
	var err error
	if t == TypeDuration {
		_, err = ParseDuration(s)
	} else {
		_, err = ParseSize(s)
	}
	return err
}

func checkNumber(f Field, n float64, at string) []Violation {
	bad := func(format string, args ...any) []Violation {
		return []Violation{{Path: at, Message: f.Name + ": " + fmt.Sprintf(format, args...)}}
	}
	switch {
	case math.IsNaN(n) || math.IsInf(n, 0):
		return bad("%s is not a number that can be used", Decimal(n))
	case f.Type == TypeInt && n != math.Trunc(n):
		return bad("want a whole number, got %s", Decimal(n))
	case f.Type == TypeInt && math.Abs(n) > MaxInteger:
		return bad("%s is beyond the largest whole number a document can carry exactly, %d", Decimal(n), int64(MaxInteger))
	case f.Min != nil && n < *f.Min:
		return bad("%s is less than %s", Decimal(n), Decimal(*f.Min))
	case f.Max != nil && n > *f.Max:
		return bad("%s is more than %s", Decimal(n), Decimal(*f.Max))
	}
	return nil
}

// checkPort takes decimal text too: values of the machine file are strings.
func checkPort(f Field, v any, at string) []Violation {
	n, ok := number(v)
	if s, isString := v.(string); isString {
		i, err := strconv.ParseUint(s, 10, 32)
		n, ok = float64(i), err == nil
	}
	if !ok {
		return wrongType(f, v, at, "a port number")
	}
	if n != math.Trunc(n) || n < 1 || n > 65535 {
		return []Violation{{Path: at, Message: fmt.Sprintf("%s: %s is not a port: want 1 to 65535", f.Name, PlainText(v))}}
	}
	return nil
}

func checkString(f Field, s, at string) []Violation {
	bad := func(hint, format string, args ...any) []Violation {
		return []Violation{{Path: at, Message: f.Name + ": " + fmt.Sprintf(format, args...), Hint: hint}}
	}
	switch {
	case strings.ContainsRune(s, 0):
		return bad("", "holds a NUL character")
	case len(f.Enum) > 0 && !contains(f.Enum, s):
		return bad(Nearest(s, f.Enum), "%q is not one of %s", s, strings.Join(f.Enum, ", "))
	case f.Type == TypePath && (s == "" || path.Clean(s) == ""):
		return bad("", "the path is empty")
	case f.Type == TypeURL:
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return bad("", "%q is not an http or https URL", s)
		}
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// holdsReference reports whether s holds a reference or a malformed one: either
// way its value is not known from the text.
func holdsReference(s string) bool {
	segments, err := ParseTemplate(s)
	if err != nil {
		return true
	}
	for _, g := range segments {
		if g.Ref != nil {
			return true
		}
	}
	return false
}

func number(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case int:
		return float64(x), true
	case int64:
		return float64(x), true
	case uint64:
		return float64(x), true
	}
	return 0, false
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case []any, []string:
		return "list"
	case map[string]any:
		return "table"
	}
	if _, ok := number(v); ok {
		return "number"
	}
	return fmt.Sprintf("%T", v)
}
