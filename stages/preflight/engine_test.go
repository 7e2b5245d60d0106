package preflight

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"assay/schemas"
)

// tiny wants next to nothing of its host.
const tiny = `server: {cpu_num_slabs: 1, cpu_slab_size_bytes: 1, model_cache_size_gb: 0.001, worker_num_cpus: 1}
models: [{name: q, path: /nowhere, max_model_len: 2048}]
`

func TestEnginesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		engine, yaml string
		command      []any
		env          map[string]any
		id           string
		want         schemas.Severity // "" for no such finding
	}{
		"configuration":      {"emulated", tiny, nil, nil, "aegaeon.config", "pass"},
		"misspelt":           {"emulated", tiny + "modells: []\n", nil, nil, "aegaeon.unknown-key", "error"},
		"emulated, no host":  {"emulated", tiny, nil, nil, "aegaeon.memory", ""},
		"attached, no host":  {"aegaeon", tiny, nil, nil, "aegaeon.memory", ""},
		"started":            {"aegaeon", tiny, []any{"sh"}, nil, "aegaeon.memory", "pass"},
		"started elsewhere":  {"aegaeon", tiny, []any{"/usr/bin/srun", "aegaeon"}, nil, "aegaeon.memory", "unknown"},
		"option":             {"aegaeon", tiny, []any{"sh", "--num-engines", "2"}, nil, "aegaeon.command-option", "warning"},
		"dummy weights":      {"aegaeon", tiny, []any{"sh"}, map[string]any{"AEGAEON_DUMMY_WEIGHTS": "1"}, "aegaeon.dummy-weights", "error"},
		"pypto":              {"pypto", "", []any{"pypto-serving", "--model", "/m"}, map[string]any{"PYPTO_CACHE": "1"}, "pypto.command", "pass"},
		"pypto, no model":    {"pypto", "", []any{"pypto-serving", "--top", "1"}, nil, "pypto.model", "error"},
		"pypto, compiled":    {"pypto", "", []any{"pypto-serving", "--model", "/m"}, map[string]any{"PYPTO_PROG_BUILD_DIR": "/nowhere/at/all"}, "pypto.compile-cache", "info"},
		"other engine's key": {"openai", "", []any{"sh", "--num-engines", "2"}, nil, "aegaeon.command-option", ""},
	} {
		exp := experiment()
		config := map[string]any{}
		if c.yaml != "" {
			config["aegaeon_config"] = "a.yaml"
		}
		if c.command != nil {
			config["command"] = c.command
		}
		if c.env != nil {
			config["env"] = c.env
		}
		exp.Service["real"] = schemas.Service{Engine: c.engine, Config: config}
		s := newStage(t, exp, map[string]any{"disk": "1B"})
		s.file(t, "w.csv", good)
		s.file(t, "a.yaml", c.yaml)
		_ = run(context.Background(), s.task) // what it refuses stands in the output
		list := s.output(t)
		i := slices.IndexFunc(list, func(f schemas.Finding) bool { return f.ID == c.id })
		switch {
		case i < 0 && c.want != "":
			t.Errorf("%s: no %s: %+v", name, c.id, list)
		case i >= 0 && list[i].Severity != c.want:
			t.Errorf("%s: %+v; want %q", name, list[i], c.want)
		}
	}
}

func TestLocalHost(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got := memAvailable(write("meminfo", "MemTotal: 9 kB\nMemAvailable:   24 kB\n")); got == nil || *got != 24*1024 {
		t.Errorf("memory: %v", got)
	}
	if got := memAvailable(filepath.Join(dir, "none")); got != nil {
		t.Errorf("memory of no file: %d", *got)
	}
	if got := memlock(write("limits", "Max locked memory         unlimited            unlimited            bytes\n")); got == nil || *got != -1 {
		t.Errorf("no limit: %v", got)
	}
	if got := memlock(write("limits", "Max locked memory         8388608              9              bytes\n")); got == nil || *got != 8388608 {
		t.Errorf("limit: %v", got)
	}
	for _, n := range []string{"nvidia0", "nvidia1", "nvidiactl"} {
		write("dev/"+n, "")
	}
	for _, c := range []struct {
		env  map[string]string
		want int
	}{{nil, 2}, {map[string]string{"CUDA_VISIBLE_DEVICES": "1"}, 1}, {map[string]string{"CUDA_VISIBLE_DEVICES": "0,1,2"}, 2}} {
		if got := visible(c.env, filepath.Join(dir, "dev")); got != c.want {
			t.Errorf("%v: %d GPUs, want %d", c.env, got, c.want)
		}
	}
	write("gpus/0000:01:00.0/information", "Model: \t\t NVIDIA A100-PCIE-40GB\nIRQ: 3\n")
	if got := gpuName(filepath.Join(dir, "gpus")); got != "NVIDIA A100-PCIE-40GB" {
		t.Errorf("GPU %q", got)
	}
}
