package foundry

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestDocuments(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for doc, ok := range map[string]bool{
		`{}`: true, ` [1, -2.5e3, "a\nb", "\u00e9", true, false, null, {"a":{}}] `: true, `"a"`: true, `0`: true, deep(maxDepth): true,
		``: false, `{`: false, `{]`: false, `[1,]`: false, `{"a":1,}`: false, `{"a" 1}`: false, `{a:1}`: false, `[1 2]`: false, `01`: false, `1.`: false, `+1`: false,
		`"a`: false, `"\x"`: false, "\"\n\"": false, "\"\xff\"": false, `nul`: false, `{} {}`: false, `{"a":1,"a":2}`: false, `{"a":1,"\u0061":2}`: false,
		deep(maxDepth + 1): false, strings.Repeat("[", 1_000_000): false,
	} {
		if err := isDocument([]byte(doc)); (err == nil) != ok {
			t.Errorf("%.60q: %v", doc, err)
		} else if ok && !json.Valid([]byte(doc)) {
			t.Errorf("%.60q is taken and is no JSON", doc)
		}
	}
}

// Hashes and addresses keep all their bits.
func TestWhole(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "9007199254740993": 1<<53 + 1, "18446744073709551615": 1<<64 - 1} {
		var got uint64
		err := document([]byte(text), func(p *parser) (err error) { got, err = p.whole(); return err })
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"18446744073709551616", "-1", "1.0", "1e3", `"1"`, "null", "[1]", ""} {
		if err := document([]byte(text), func(p *parser) error { _, err := p.whole(); return err }); err == nil {
			t.Errorf("%s is taken for a whole number of 64 bits", text)
		}
	}
}

// allocated is how many bytes f asks for, what is freed meanwhile included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostile: what a file says of itself makes nobody allocate; what it holds, only in
// proportion, and no more than a limit.
func TestHostile(t *testing.T) {
	const mib = 1 << 20
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%x":0,`, i)
		}
		return `{` + b.String() + `"nodes":[]}`
	}
	nodes := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `{"id":%d,"type":"EmptyNode"},`, i)
		}
		return `{"nodes":[` + strings.TrimSuffix(b.String(), ",") + `]}`
	}
	for _, c := range []struct {
		name, doc, want string
		most            uint64
	}{
		{"ten million brackets", `{"nodes":[],"x":` + strings.Repeat("[", 10_000_000), "deeper", mib},
		{"ten million objects", `{"nodes":[],"x":` + strings.Repeat(`{"a":`, 10_000_000), "deeper", mib},
		{"many keys", keys(maxKeys + 10), "keys", 64 * mib},
		{"more nodes than a limit", nodes(MaxNodes + 1), "nodes", 128 * mib},
		{"a hundred thousand nodes without end", strings.TrimSuffix(nodes(100_000), "]}"), "too early", 64 * mib},
		{"a text without end", `{"nodes":[],"topology_key":"` + strings.Repeat("a", 8*mib), "does not end", mib},
		{"a long number", `{"nodes":[{"id":` + strings.Repeat("9", 8*mib), "no whole number", 16 * mib},
	} {
		var err error
		b := []byte(c.doc)
		if n := allocated(func() { _, err = ReadGraph(b) }); n > c.most {
			t.Errorf("%s: %d bytes were allocated, at most %d", c.name, n, c.most)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300 {
			t.Errorf("%s: want %q, got %.300v", c.name, c.want, err)
		}
	}
	if g, err := ReadGraph([]byte(nodes(MaxNodes))); err != nil || g.Nodes != MaxNodes {
		t.Errorf("as many nodes as may be: %d, %v", g.Nodes, err)
	}
}
