package aegaeon

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const written = `# saved by hand
server:
  cpu_num_slabs: 8
  cuda_graph:
    mode: off   # quoted when it is rendered
    base_address: 0x400000000000
    seq_len_buckets: [64]
models:
  - name: a
    path: /models/a
  - name: org/b
devices:
  - {name: A100_40GB, memory: 39}
`

func TestRender(t *testing.T) {
	b, replaced, err := Render("c.yaml", []byte(written), Changes{Mode: "load", ArchiveDir: "/archives", ModelPaths: map[string]string{"a": "/srv/a", "org/b": "/srv/b", "c": "/srv/c"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"models[0].path", "models[1].path", "server.cuda_graph.archive_dir", "server.cuda_graph.mode"}; !slices.Equal(replaced, want) {
		t.Errorf("%v", replaced)
	}
	c, err := ParseConfig("c.yaml", b)
	if err != nil {
		t.Fatal(err)
	}
	g := c.Server.CUDAGraph
	if g.Mode != "load" || g.ArchiveDir != "/archives" || g.BaseAddress != 0x400000000000 || c.Models[0].Path != "/srv/a" || c.Models[1].Path != "/srv/b" || c.Devices[0].Memory != 39 || c.Server.CPUNumSlabs != 8 {
		t.Errorf("%+v", c)
	}
	if !strings.Contains(string(b), "# saved by hand") {
		t.Errorf("%s", b)
	}
	again, replaced, err := Render("c.yaml", b, Changes{Mode: "load", ArchiveDir: "/archives"})
	if err != nil || len(replaced) > 0 || !bytes.Equal(again, b) {
		t.Errorf("%v, %v: %s", replaced, err, again)
	}
}

func TestRenderMakesWhatIsMissing(t *testing.T) {
	for _, text := range []string{"models: [{name: a}]\n", "server:\nmodels: [{name: a}]\n", "server: {cuda_graph: null}\nmodels: [{name: a}]\n"} {
		b, _, err := Render("c.yaml", []byte(text), Changes{Mode: "off", ArchiveDir: "/x"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := ParseConfig("c.yaml", b)
		if err != nil || c.Server.CUDAGraph.Mode != "off" || c.Server.CUDAGraph.ArchiveDir != "/x" {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"server: 3\nmodels: [{name: a}]\n":                                "server: want a table",
		"server: {cuda_graph: []}\nmodels: [{name: a}]\n":                 "cuda_graph: want a table",
		"server: {cuda_graph: {mode: a, mode: b}}\nmodels: [{name: a}]\n": "a second time",
		"models: {}\n": "want a list",
	} {
		if _, _, err := Render("c.yaml", []byte(text), Changes{Mode: "load"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzRender: whatever is rendered differs from what was written in the keys that are
// listed and in nothing else.
func FuzzRender(f *testing.F) {
	f.Add([]byte(written))
	f.Add([]byte("x: &s {cuda_graph: {mode: 'off'}}\nserver: *s\nmodels: [{name: a, path: '/a'}]\n"))
	f.Add([]byte("models: &m [{name: a}]\nserver: {startup_models: *m}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, replaced, err := Render("c.yaml", b, Changes{Mode: "load", ArchiveDir: "/archives", ModelPaths: map[string]string{"a": "/srv/a"}})
		if err != nil {
			return
		}
		var before, after map[string]any
		if yaml.Unmarshal(b, &before) != nil {
			return // keys of other types, or two of a name
		}
		if err := yaml.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q became %q: %v", b, out, err)
		}
		if len(replaced) == 0 && !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q, and nothing was replaced", b, out)
		}
		again, replaced, err := Render("c.yaml", out, Changes{Mode: "load", ArchiveDir: "/archives", ModelPaths: map[string]string{"a": "/srv/a"}})
		if err != nil || len(replaced) > 0 {
			t.Fatalf("%q again: %v, %v: %q", out, replaced, err, again)
		}
	})
}
