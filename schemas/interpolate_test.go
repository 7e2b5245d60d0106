package schemas

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func values(r Reference) (any, error) {
	v, ok := map[string]any{"${param.n}": 3.0, "${param.s}": "x${param.n}", "${param.b}": true, "${machine.m}": "/m", "${param.t}": map[string]any{}}[r.Text]
	if !ok {
		return nil, errors.New("unknown")
	}
	return v, nil
}

func TestSubstitute(t *testing.T) {
	for in, want := range map[string]any{
		"plain":                     "plain",
		"":                          "",
		"$":                         "$",
		"$$":                        "$$",
		"$x {} }":                   "$x {} }",
		"${param.n}":                3.0,
		"${param.b}":                true,
		"a ${param.n}${param.b} b":  "a 3true b",
		"$${param.n}":               "${param.n}",
		"$$${param.n}":              "$${param.n}",
		"${param.s}":                "x${param.n}",
		"${machine.m}/a":            "/m/a",
		"$${HOME} and ${machine.m}": "${HOME} and /m",
	} {
		got, err := Substitute(in, values)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q: got %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"${param.z}", "a${param.t}", "${x.y}", "${param}", "${param.}", "${param.a.b}", "${param.n", "${ param.n}",
		"${stage.a}", "${stage.a.b.c}", "${service.a.port}", "${source.}", "${source.a/../b}", "${source./a}", "${source.a//b}", "${}", "${param.ü}"} {
		if got, err := Substitute(in, values); err == nil {
			t.Errorf("%q gave %v", in, got)
		}
	}
	in := map[string]any{"a": []any{"${param.n}", map[string]any{"b": "${machine.m}"}}, "c": 1.0, "d": []string{"${param.n}"}}
	want := map[string]any{"a": []any{3.0, map[string]any{"b": "/m"}}, "c": 1.0, "d": []string{"3"}}
	got, err := Substitute(in, values)
	if err != nil || !cmp.Equal(got, any(want)) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestReferences(t *testing.T) {
	v := map[string]any{"b": "${stage.s.out} ${source.a/b.json}", "a": []any{"${secret.K}", "$${param.no}", "${bad}"}}
	var got []string
	for _, r := range References(v) {
		got = append(got, fmt.Sprint(r.Namespace, r.Names))
	}
	if want := []string{"secret[K]", "stage[s out]", "source[a/b.json]"}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestStringsTakeAnyScalarAsText(t *testing.T) {
	lookup := func(r Reference) (any, error) {
		return map[string]any{"n": 3.0, "f": 0.25, "b": true, "s": "x"}[r.Names[0]], nil
	}
	list := Field{Name: "argv", Type: TypeStringList}
	got, err := SubstituteField(list, []any{"${param.n}", "${param.f}", "${param.b}", "${param.s}", "a${param.n}", 7.0}, lookup)
	if want := []any{"3", "0.25", "true", "x", "a3", 7.0}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v %v", got, err)
	}
	if err := CheckValue(list, got); err == nil {
		t.Error("a number that was written as one passes for a string")
	}
	if got, err := SubstituteField(Field{Type: TypeFloat}, "${param.n}", lookup); err != nil || got != 3.0 {
		t.Errorf("%v %v", got, err)
	}
}

func TestCheckValue(t *testing.T) {
	field := func(ft FieldType) Field { return Field{Name: "f", Type: ft, Min: bound(1), Max: bound(5)} }
	tests := []struct {
		field Field
		v     any
		want  string // "" when it is fine
	}{
		{field(TypeInt), 3.0, ""},
		{field(TypeInt), 3, ""},
		{field(TypeInt), 3.5, "f: want a whole number, got 3.5"},
		{field(TypeInt), 6.0, "f: 6 is more than 5"},
		{field(TypeFloat), 0.5, "f: 0.5 is less than 1"},
		{field(TypeFloat), "${param.a}", "f: want a number, got a string"},
		{field(TypeBool), true, ""},
		{field(TypeBool), "true", "f: want true or false, got a string"},
		{field(TypeDuration), "1m", ""},
		{field(TypeDuration), "-1s", `f: duration "-1s" is negative`},
		{field(TypeSize), "4 GB", ""},
		{field(TypePort), "8000", ""},
		{field(TypePort), "80x", "f: want a port number, got a string"},
		{field(TypePort), 0.0, "f: 0 is not a port: want 1 to 65535"},
		{field(TypeURL), "http://h/x", ""},
		{field(TypeURL), "h:80", `f: "h:80" is not an http or https URL`},
		{field(TypePath), "", "f: the path is empty"},
		{field(TypePath), "a\x00b", "f: holds a NUL character"},
		{field(TypeStringList), []string{"a"}, ""},
		{field(TypeStringList), []any{"a", 1.0}, "/1: f: want a string, got a number"},
		{field(TypeStringList), "a", "f: want a list, got a string"},
		{field(TypeScalarList), []any{1.0, "a", true}, ""},
		{field(TypePathMap), map[string]any{"../x": "a"}, `/..~1x: invalid name "../x": want letters, digits, '.', '-' and '_', not beginning with '.' or '-'`},
		{field(TypeString), nil, "f: want a string, got a null"},
	}
	for _, tt := range tests {
		got := ""
		if err := CheckValue(tt.field, tt.v); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s %v: got %q, want %q", tt.field.Type, tt.v, got, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"measure", "preflight", "report", "slo", "needs"}
	for in, want := range map[string]string{"mesure": "measure", "measrue": "measure", "preflght": "preflight", "sl": "slo", "solo": "slo",
		"x": "", "": "", "need": "needs", "completely-different": "", "s": ""} {
		if got := Nearest(in, names); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestApplyDefaultsCopies(t *testing.T) {
	fields, _ := FieldsOf("measure")
	in := map[string]any{"workload": "w", "slo": map[string]any{"ttft": "1s"}}
	out := ApplyDefaults(fields, in)
	if d := cmp.Diff(map[string]any{"workload": "w", "slo": map[string]any{"ttft": "1s"}}, in); d != "" {
		t.Errorf("the input was changed: %s", d)
	}
	if d := cmp.Diff(map[string]any{"ttft": "1s", "tpot": "100ms"}, out["slo"]); d != "" {
		t.Error(d)
	}
	if out["api"] != "completions" || out["window"] != nil {
		t.Errorf("%v", out)
	}
}

func FuzzParseTemplate(f *testing.F) {
	for _, s := range []string{"${param.a}", "$${", "${stage.a.b}x${secret.K}", "${source.a/b}", "${", "$"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		segments, err := ParseTemplate(s)
		if err != nil {
			var bad *ReferenceError
			if !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset >= len(s) {
				t.Fatalf("%v", err)
			}
			return
		}
		var b strings.Builder
		for _, g := range segments {
			if g.Ref != nil {
				b.WriteString(g.Ref.Text)
			} else {
				b.WriteString(strings.ReplaceAll(g.Literal, "${", "$${"))
			}
		}
		if again, err := ParseTemplate(b.String()); err != nil || len(again) != len(segments) {
			t.Fatalf("%q, written again as %q: %v", s, b.String(), err)
		}
	})
}
