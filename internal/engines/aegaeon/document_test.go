package aegaeon

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseKeepsPlacesAndStyles(t *testing.T) {
	v, problems := Parse([]byte("base: &b {x: off}\nserver:\n  <<: *b\n  mode: 'off'\n  list: [1, \"2\"]\nagain: *b\nserver: 3\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	server := v.Get("server")
	want := []Key{
		{Name: "mode", Plain: true, Line: 4, Column: 3, Value: &Value{Kind: Scalar, Line: 4, Column: 9, Text: "off"}},
		{Name: "list", Plain: true, Line: 5, Column: 3, Value: &Value{Kind: List, Line: 5, Column: 9, Items: []*Value{
			{Kind: Scalar, Line: 5, Column: 10, Text: "1", Plain: true}, {Kind: Scalar, Line: 5, Column: 13, Text: "2"}}}},
		{Name: "x", Plain: true, Line: 1, Column: 11, Merged: true, Value: &Value{Kind: Scalar, Line: 1, Column: 14, Text: "off", Plain: true}},
	}
	if diff := cmp.Diff(want, server.Keys); diff != "" {
		t.Error(diff)
	}
	if last := v.Keys[len(v.Keys)-1]; last.Name != "server" || last.Line != 7 {
		t.Errorf("the second key of the name: %+v", last)
	}
	if a := v.Get("again"); a.Line != 6 || a.Get("x") == nil {
		t.Errorf("alias: %+v", a)
	}
}

func TestParseRefuses(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		from, to := string(rune('a'+i)), string(rune('a'+i+1))
		bomb += to + "0: &" + to + "0 [" + strings.Repeat("*"+from+"0, ", 9) + "x]\n"
	}
	for name, c := range map[string]struct{ in, want string }{
		"empty": {"", "empty"}, "broken": {"a: [", "not YAML"}, "two documents": {"a: 1\n---\nb: 2\n", "second document"},
		"bomb": {bomb, "more than"}, "cycle": {"a: &a [*a]\n", ""}, "deep": {strings.Repeat("[", 200) + strings.Repeat("]", 200), "deeper"},
		"table as key": {"? {a: 1}\n: 2\n", "no text"}, "large": {strings.Repeat("#", maxConfig+1), "larger"},
	} {
		v, problems := Parse([]byte(c.in))
		if v != nil || len(problems) != 1 || !strings.Contains(problems[0].Text, c.want) {
			t.Errorf("%s: %v, %+v; want one problem with %q", name, v, problems, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	if b, err := os.ReadFile("../../../experiments/aegaeon/three-models.yaml"); err == nil {
		f.Add(b)
	}
	f.Add([]byte("a: &a {b: *a}\n<<: [*a, *a]\n"))
	f.Add([]byte("server: {cuda_graph: {mode: off}}\nmodels: [{name: !!str 7}]\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		v, problems := Parse(content)
		if (v == nil) == (len(problems) == 0) {
			t.Fatalf("value %v with %d problems", v, len(problems))
		}
		count := 0
		walk(v, func(*Value) { count++ })
		if count > maxNodes+1 {
			t.Fatalf("%d values", count)
		}
		if _, err := ParseConfig("c.yaml", content); err == nil && v == nil && !strings.Contains(problems[0].Text, "document") && !strings.Contains(problems[0].Text, "not YAML") && !strings.Contains(problems[0].Text, "more than") && !strings.Contains(problems[0].Text, "no text") {
			t.Fatalf("a configuration that is no document: %v", problems)
		}
	})
}

func walk(v *Value, visit func(*Value)) {
	if v == nil {
		return
	}
	visit(v)
	for _, k := range v.Keys {
		walk(k.Value, visit)
	}
	for _, i := range v.Items {
		walk(i, visit)
	}
}
