package experiments

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"assay/schemas"
)

// keyForms are the ways TOML writes keys and values.
var keyForms = []string{
	"a = 1\nb.c = 2\nb.\"d e\".f = 3\n", "[a]\nb = 1\n[a.c]\n[x.y.z]\n", "[[a]]\nb = 1\n[[a]]\n[a.c]\nd = 2\n[[a.e]]\n[[a.e]]\nf = 1\n",
	"a = { b = 1, c.d = [1, { e = 2 }] } # x\n", "a = [ # one\n 1, # two\n [2, 3],\n\n]\nb = 2\n", "'a.b' = 'x # y'\n\"\\u00e9\\t\" = 1\n",
	"a = \"\"\"\nx \\\n  y \"\" z\\\"\"\"\"\"\"\nb = '''\n''x'''''\nc = 1\n", "[ a . b ]\n [[ \"c\" . d ]]\n\te = 1979-05-27 07:32:00\r\nf = 0x1F\r\n",
	"\ufeffa = 1\n", "é = 1", "a = {}\nb = []\nc = [{}, {}]\n", "\"\" = 1\n", "a = {\n b = 1,\n}\n", "\"\"\"a\"\"\" = 1", "a = \"\\e\\x41\"",
	"[a]\n[a.b]\nc = 1\n[a.b.d]\n[e]\n", "[b.c]\n[b]\nx = 1\n",
}

// FuzzScan holds the key scanner to the library: whatever the library accepts
// has a position for every key and list element, and the key stands there.
func FuzzScan(f *testing.F) {
	for _, s := range keyForms {
		f.Add(s)
	}
	f.Add(full)
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.TrimPrefix(text, "\ufeff")
		if !utf8.ValidString(text) || len(text) > 1<<16 {
			return
		}
		pos, _, err := scan(text)
		if limit := (*limitError)(nil); errors.As(err, &limit) {
			return
		}
		tree, err := parseTOML(text)
		if err != nil {
			return
		}
		p := &problems{}
		lines := strings.Split(text, "\n")
		checkMarks(t, pos, lines, plainTable(p, tree, ""), "")
	})
}

func checkMarks(t *testing.T, pos Positions, lines []string, v any, at string) {
	check := func(pointer string) {
		m, ok := pos[pointer]
		if !ok {
			t.Fatalf("no position of %q", pointer)
		}
		for _, p := range []Position{m.Key, m.Value} {
			if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > utf8.RuneCountInString(lines[p.Line-1]) {
				t.Fatalf("%q stands at %+v, outside the text", pointer, p)
			}
		}
	}
	switch x := v.(type) {
	case table:
		for k, e := range x {
			here := at + schemas.Pointer(k)
			check(here)
			checkMarks(t, pos, lines, e, here)
			if m := pos[here]; isBare(k) {
				rest := []rune(lines[m.Key.Line-1])[m.Key.Column-1:]
				if !strings.HasPrefix(strings.TrimLeft(string(rest), `"'`), k) && !strings.ContainsAny(string(rest), `\"'`) {
					t.Fatalf("%q is said to stand at %q", here, string(rest))
				}
			}
		}
	case []any:
		for i, e := range x {
			here := at + "/" + strconv.Itoa(i)
			check(here)
			checkMarks(t, pos, lines, e, here)
		}
	}
}

func isBare(k string) bool {
	for _, c := range k {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return k != ""
}

// FuzzParse holds loading to its promises: it never panics, every fault has a
// message, and what it accepts is valid by the JSON Schema and loads again equal.
func FuzzParse(f *testing.F) {
	f.Add(full)
	for _, name := range []string{"quickstart.toml", "aegaeon/replay.toml"} {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	for _, s := range keyForms {
		f.Add(head + s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse("f.toml", []byte(text), Options{Machine: "none", Dir: "/dir", Cwd: "/cwd"})
		if err != nil {
			var invalid *InvalidError
			if !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
				t.Fatalf("%v", err)
			}
			for _, p := range invalid.Problems {
				if p.Message == "" || p.Line < 1 || p.Column < 1 {
					t.Fatalf("fault without a place: %+v", p)
				}
			}
			return
		}
		if d := cmp.Diff(l.Experiment, reload(t, l).Experiment); d != "" {
			t.Fatal(d)
		}
	})
}

// FuzzParseJSON: an archived experiment is hostile until checked.
func FuzzParseJSON(f *testing.F) {
	l, err := Parse("t.toml", []byte(full), Options{Machine: "none"})
	if err != nil {
		f.Fatal(err)
	}
	doc, err := schemas.Encode(l.Experiment)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(doc))
	f.Add(`{"stage":null,"schema":1}`)
	f.Add(`{"stage":{"a":null},"service":[],"params":{"a":null},"matrix":{"a":[null]},"claim":[null]}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseJSON("f.json", []byte(text), Options{Machine: "none", Dir: "/dir", Cwd: "/cwd"})
		if err == nil {
			if d := cmp.Diff(l.Experiment, reload(t, l).Experiment); d != "" {
				t.Fatal(d)
			}
		}
	})
}
