package schemas

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// Namespaces of references.
const (
	RefParam   = "param"   // ${param.NAME}
	RefStage   = "stage"   // ${stage.NAME.OUTPUT}
	RefSource  = "source"  // ${source.PATH}: a path within the source run
	RefService = "service" // ${service.NAME.url}
	RefMachine = "machine" // ${machine.NAME}
	RefSecret  = "secret"  // ${secret.NAME}
)

// Reference is one ${...} of a string.
type Reference struct {
	Namespace string
	Names     []string // what follows the namespace; one path for source
	Text      string   // as written, with ${ and }
}

// Segment is a piece of a string: literal text, or a reference.
type Segment struct {
	Literal string
	Ref     *Reference
	Offset  int // in bytes, of the piece within the string
}

// ReferenceError is a ${...} that is none of the accepted forms.
type ReferenceError struct {
	Offset  int // in bytes
	Text    string
	Message string
	Hint    string // nearest valid namespace
}

func (e *ReferenceError) Error() string { return fmt.Sprintf("%s: %s", e.Text, e.Message) }

// ParseTemplate cuts s at its references. "$${" stands for a literal "${"; any
// other "${" must begin a reference. The error is a *ReferenceError.
func ParseTemplate(s string) ([]Segment, error) {
	var out []Segment
	literal, start := strings.Builder{}, 0
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			literal.WriteString("${")
			i += 3
		case strings.HasPrefix(s[i:], "${"):
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return nil, &ReferenceError{Offset: i, Text: clip(s[i:]), Message: "has no closing brace; write $${ for a literal ${"}
			}
			ref, err := parseReference(s[i:i+end+1], i)
			if err != nil {
				return nil, err
			}
			if literal.Len() > 0 {
				out = append(out, Segment{Literal: literal.String(), Offset: start})
				literal.Reset()
			}
			out = append(out, Segment{Ref: ref, Offset: i})
			i += end + 1
			start = i
		default:
			literal.WriteByte(s[i])
			i++
		}
	}
	if literal.Len() > 0 {
		out = append(out, Segment{Literal: literal.String(), Offset: start})
	}
	return out, nil
}

func clip(s string) string {
	const most = 40
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

var referenceForms = map[string]string{
	RefParam: "${param.NAME}", RefStage: "${stage.NAME.OUTPUT}", RefSource: "${source.PATH}",
	RefService: "${service.NAME.url}", RefMachine: "${machine.NAME}", RefSecret: "${secret.NAME}",
}

func parseReference(text string, offset int) (*Reference, error) {
	bad := func(hint, format string, args ...any) (*Reference, error) {
		return nil, &ReferenceError{Offset: offset, Text: clip(text), Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	space, rest, dotted := strings.Cut(text[2:len(text)-1], ".")
	form, known := referenceForms[space]
	if !known {
		all := []string{RefParam, RefStage, RefSource, RefService, RefMachine, RefSecret}
		return bad(Nearest(space, all), "unknown reference; ${...} takes %s; write $${ for a literal ${", strings.Join(all, ", "))
	}
	names := strings.Split(rest, ".")
	ok := dotted
	switch space {
	case RefSource:
		names = []string{rest}
		ok = ok && validSourcePath(rest)
	case RefStage:
		ok = ok && len(names) == 2 && validReferenceName(names[0]) && validReferenceName(names[1])
	case RefService:
		ok = ok && len(names) == 2 && validReferenceName(names[0]) && names[1] == "url"
	default:
		ok = ok && len(names) == 1 && validReferenceName(names[0])
	}
	if !ok {
		return bad("", "want %s", form)
	}
	return &Reference{Namespace: space, Names: names, Text: text}, nil
}

func validReferenceName(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return s != ""
}

func validSourcePath(s string) bool {
	for _, part := range strings.Split(s, "/") {
		if part == ".." || !validReferenceName(strings.ReplaceAll(part, ".", "_")) {
			return false
		}
	}
	return path.Clean(s) == s
}

// References lists every reference in the strings of v (maps in key order,
// lists in order), repeated ones too. Malformed ones are left out: the loader
// has refused them with their position.
func References(v any) []Reference {
	var out []Reference
	walkStrings(v, func(s string) {
		segments, err := ParseTemplate(s)
		if err != nil {
			return
		}
		for _, g := range segments {
			if g.Ref != nil {
				out = append(out, *g.Ref)
			}
		}
	})
	return out
}

func walkStrings(v any, visit func(string)) {
	switch x := v.(type) {
	case string:
		visit(x)
	case []string:
		for _, e := range x {
			visit(e)
		}
	case []any:
		for _, e := range x {
			walkStrings(e, visit)
		}
	case map[string]any:
		for _, k := range sortedKeys(x) {
			walkStrings(x[k], visit)
		}
	case map[string]string:
		for _, k := range sortedKeys(x) {
			visit(x[k])
		}
	}
}

// Substitute returns a copy of v with every reference in its strings replaced by
// what lookup says. A string that is one reference and nothing else takes the
// value's own type; within longer text a value must be a string, number or
// boolean. Keys of maps are left as they are. []string stays []string, so there
// a value must be text-like too.
func Substitute(v any, lookup func(Reference) (any, error)) (any, error) {
	switch x := v.(type) {
	case string:
		return substituteString(x, lookup)
	case []string:
		out := make([]string, len(x))
		for i, e := range x {
			s, err := substituteText(e, lookup)
			if err != nil {
				return nil, err
			}
			out[i] = s
		}
		return out, nil
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			s, err := Substitute(e, lookup)
			if err != nil {
				return nil, err
			}
			out[i] = s
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(x))
		for _, k := range sortedKeys(x) {
			s, err := Substitute(x[k], lookup)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			out[k] = s
		}
		return out, nil
	}
	return v, nil
}

func substituteString(s string, lookup func(Reference) (any, error)) (any, error) {
	segments, err := ParseTemplate(s)
	if err != nil {
		return nil, err
	}
	if len(segments) == 1 && segments[0].Ref != nil {
		v, err := lookup(*segments[0].Ref)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", segments[0].Ref.Text, err)
		}
		return v, nil
	}
	var b strings.Builder
	for _, g := range segments {
		if g.Ref == nil {
			b.WriteString(g.Literal)
			continue
		}
		v, err := lookup(*g.Ref)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.Ref.Text, err)
		}
		text, err := valueText(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.Ref.Text, err)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// SubstituteField is Substitute for the value of a field: where the field wants
// strings, a number or boolean that is the whole of one is given as its text, so
// that any parameter can be a program's argument.
func SubstituteField(f Field, v any, lookup func(Reference) (any, error)) (any, error) {
	if f.Type != TypeString && f.Type != TypeStringList && f.Type != TypeStringMap {
		return Substitute(v, lookup)
	}
	switch x := v.(type) {
	case string:
		return substituteText(x, lookup)
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			s, err := SubstituteField(f, e, lookup)
			if err != nil {
				return nil, err
			}
			out[i] = s
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(x))
		for _, k := range sortedKeys(x) {
			s, err := SubstituteField(f, x[k], lookup)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			out[k] = s
		}
		return out, nil
	}
	return v, nil
}

func substituteText(s string, lookup func(Reference) (any, error)) (string, error) {
	v, err := substituteString(s, lookup)
	if err != nil {
		return "", err
	}
	return valueText(v)
}

func valueText(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case bool, float64, int, int64, uint64:
		b, err := json.Marshal(x)
		return string(b), err
	}
	return "", fmt.Errorf("a %s cannot stand within text", typeName(v))
}
