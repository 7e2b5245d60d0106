package aegaeon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const config = `# a comment
server:
  num_prefill_engines: 1
  cuda_graph: {mode: 'off'}
models:
  - name: Qwen/Qwen3-4B
    path: /srv/models/Qwen3-4B
  - &second
    name: "7"
    max_model_len: 4096
devices:
  - {name: A100_40GB, memory: 39}
`

func TestModels(t *testing.T) {
	list, err := ParseModels("c.yaml", []byte(config))
	if err != nil || len(list) != 2 || list[0] != (Model{"Qwen/Qwen3-4B", 6}) || list[1] != (Model{"7", 9}) {
		t.Errorf("%+v, %v", list, err)
	}
	// In JSON, which is YAML too, and with a name by reference.
	list, err = ParseModels("c.yaml", []byte("x: &n a/b\nmodels: [{name: *n}, {\"name\": \"c\"}]\n"))
	if err != nil || len(list) != 2 || list[0].Name != "a/b" || list[1].Name != "c" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestWhatIsNoListOfModels(t *testing.T) {
	for content, want := range map[string]string{
		"":                                    "c.yaml: empty",
		"# nothing\n":                         "c.yaml: empty",
		"- a\n":                               "c.yaml:1: want a table",
		"server: {}\n":                        "c.yaml:1: no models",
		"models: qwen\n":                      "c.yaml:1: models: want a list",
		"\nmodels: []\n":                      "c.yaml:2: models: the list is empty",
		"models:\n  - qwen\n":                 "c.yaml:2: models[0]: want a table",
		"models:\n  - path: /x\n":             "c.yaml:2: models[0]: name is missing",
		"models:\n  - nmae: x\n":              `c.yaml:2: models[0]: name is missing ("nmae" in line 2 is not it)`,
		"models:\n  - name: 7\n":              "c.yaml:2: models[0]: name: want a string, have 7: write it in quotes",
		"models:\n  - name: [a]\n":            "c.yaml:2: models[0]: name: want a string",
		"models:\n  - name: ''\n":             "c.yaml:2: models[0]: name is empty",
		"models:\n  - name: a\n  - name: a\n": `c.yaml:3: models[1]: name "a" stands in line 2 already`,
		"models: [{name: a}]\nmodels: []\n":   "c.yaml:2: models stands here a second time",
		"models:\n  - name: a\n\t- name: b\n": "c.yaml:2: not YAML: found a tab", // the library counts from the entry before
		"models: [{name: a\n":                 "c.yaml:",
	} {
		_, err := ParseModels("c.yaml", []byte(content))
		var problem *ConfigError
		if !errors.As(err, &problem) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}

func TestReadModels(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if list, err := ReadModels(file); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("#", maxConfig+1)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, dir, filepath.Join(dir, "missing")} {
		if _, err := ReadModels(name); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzModels(f *testing.F) {
	f.Add([]byte(config))
	f.Add([]byte("models: &a [*a]\n"))
	f.Add([]byte("models: [{name: x}, {name: *y}]\n"))
	f.Add([]byte("<<: {models: []}\nmodels: [{? name : a}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := ParseModels("c.yaml", b)
		if (err == nil) != (len(list) > 0) {
			t.Fatalf("%d models, %v", len(list), err)
		}
		for _, m := range list {
			if m.Name == "" || m.Line < 1 {
				t.Fatalf("%+v", list)
			}
		}
	})
}
