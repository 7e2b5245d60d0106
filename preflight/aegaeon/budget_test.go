package aegaeon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"assay/schemas"
)

func bytes(gibs int64) *int64 {
	n := gibs * gib
	return &n
}

// worst is the worst severity of the findings of an ID, "" for none.
func worst(findings []schemas.Finding, id string) schemas.Severity {
	out := schemas.Severity("")
	for _, s := range []schemas.Severity{schemas.SeverityPass, schemas.SeverityWarning, schemas.SeverityUnknown, schemas.SeverityError} {
		if slices.ContainsFunc(findings, func(f schemas.Finding) bool { return f.ID == id && f.Severity == s }) {
			out = s
		}
	}
	return out
}

func TestBudgets(t *testing.T) {
	models := func(params ...int64) []Model {
		var out []Model
		for i, n := range params {
			out = append(out, Model{Name: []string{"a/one", "two"}[i], Parameters: n, KVBytesPerToken: KVBytes(36, 8, 128), ContextLength: 4096})
		}
		return out
	}
	fits := models(3_972_844_749, 1e9)
	host := Host{MemAvailable: bytes(64), ShmFree: bytes(64), Memlock: bytes(64), CPUs: 16, GPUs: 3, GPUMemory: 40 * gib, GPUName: "NVIDIA A100-PCIE-40GB", Nodes: 1}
	for name, c := range map[string]struct {
		old, new string
		models   []Model
		host     func(*Host)
		load     Load
		id       string
		want     schemas.Severity
	}{
		"memory":             {id: "aegaeon.memory", want: "pass"},
		"too little memory":  {host: func(h *Host) { h.MemAvailable = bytes(27) }, id: "aegaeon.memory", want: "error"},
		"unknown memory":     {host: func(h *Host) { h.MemAvailable = nil }, id: "aegaeon.memory", want: "unknown"},
		"default slabs":      {old: "cpu_num_slabs: 8", new: "cpu_num_slabs: 128", id: "aegaeon.memory", want: "error"},
		"shared memory":      {id: "aegaeon.shm", want: "pass"},
		"small container":    {host: func(h *Host) { h.ShmFree = bytes(1) }, id: "aegaeon.shm", want: "error"},
		"unlimited":          {host: func(h *Host) { *h.Memlock = -1 }, id: "aegaeon.memlock", want: "pass"},
		"low limit":          {host: func(h *Host) { h.Memlock = bytes(0) }, id: "aegaeon.memlock", want: "warning"},
		"weights fit":        {id: "aegaeon.model-cache", want: "pass"},
		"largest does not":   {models: models(3e9, 12e9), id: "aegaeon.model-cache", want: "error"},
		"all do not":         {models: models(9e9, 9e9), id: "aegaeon.model-cache", want: "warning"},
		"start-up does not":  {old: "  startup_models: [a/one]\n", models: models(9e9, 9e9), id: "aegaeon.model-cache", want: "error"},
		"cache follows":      {old: "model_cache_size_gb: 20", new: "model_cache_size_gb: 0", models: models(9e9, 9e9), id: "aegaeon.model-cache", want: "warning"},
		"context":            {old: "max_model_len: 2048", new: "max_model_len: 8192", id: "aegaeon.context", want: "error"},
		"context fits":       {id: "aegaeon.context", want: ""},
		"GPU":                {id: "aegaeon.gpu-memory", want: "pass"},
		"GPU full":           {old: "memory: 39", new: "memory: 11", id: "aegaeon.gpu-memory", want: "error"},
		"more than GPU has":  {old: "memory: 39", new: "memory: 80", id: "aegaeon.gpu-memory", want: "error"},
		"GPU not known":      {old: good[strings.Index(good, "devices:"):], host: func(h *Host) { h.GPUMemory = 0 }, id: "aegaeon.gpu-memory", want: "unknown"},
		"GPU of the host":    {old: good[strings.Index(good, "devices:"):], id: "aegaeon.gpu-memory", want: "pass"},
		"no headroom":        {old: "memory: 39", new: "memory: 14", id: "aegaeon.gpu-headroom", want: "warning"},
		"headroom":           {id: "aegaeon.gpu-headroom", want: ""},
		"KV fits":            {load: Load{Concurrency: 4, Sequence: 2048}, id: "aegaeon.kv-slabs", want: "pass"},
		"KV does not":        {load: Load{Concurrency: 64, Sequence: 2048}, id: "aegaeon.kv-slabs", want: "error"},
		"bucket too short":   {load: Load{Concurrency: 1, Sequence: 2049}, id: "aegaeon.graph-shapes", want: "error"},
		"batch too large":    {load: Load{Concurrency: 3, Sequence: 20}, id: "aegaeon.graph-shapes", want: "warning"},
		"graphs serve":       {load: Load{Concurrency: 2, Sequence: 2048}, id: "aegaeon.graph-shapes", want: ""},
		"processors":         {id: "aegaeon.cpus", want: "pass"},
		"too few processors": {host: func(h *Host) { h.CPUs = 11 }, id: "aegaeon.cpus", want: "error"},
		"processors unknown": {host: func(h *Host) { h.CPUs = 0 }, id: "aegaeon.cpus", want: "unknown"},
		"GPUs":               {id: "aegaeon.gpus", want: "pass"},
		"too few GPUs":       {host: func(h *Host) { h.GPUs = 2 }, id: "aegaeon.gpus", want: "error"},
		"one host":           {old: "nnodes: 1", new: "nnodes: 2", id: "aegaeon.nodes", want: "error"},
		"two hosts":          {old: "nnodes: 1", new: "nnodes: 2", host: func(h *Host) { h.Nodes = 2 }, id: "aegaeon.nodes", want: ""},
		"as many as GPUs":    {old: "nnodes: 1", new: "nnodes: 3", host: func(h *Host) { h.Nodes = 0 }, id: "aegaeon.nodes", want: "warning"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Check("s", "c.yaml", []byte(strings.Replace(good, c.old, c.new, 1)))
			if r.Config == nil {
				t.Fatal(r.Findings)
			}
			h, m := host, fits
			h.Memlock = bytes(64)
			if c.host != nil {
				c.host(&h)
			}
			if c.models != nil {
				m = c.models
			}
			got := Budgets("s", "c.yaml", *r.Config, m, h, c.load)
			if have := worst(got, c.id); have != c.want {
				t.Errorf("%s is %q, want %q: %+v", c.id, have, c.want, got)
			}
			inCatalog(t, got)
		})
	}
}

func TestProfiles(t *testing.T) {
	const point = `{"prefill_latencies":[%g,0.2,0.3],"decode_latencies":[0.01,0.01,0.02]}`
	write := func(dir string, files map[string]string) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	usable := func(broken string) map[string]string {
		out := map[string]string{"notes.txt": "x"}
		for i, name := range []string{"i32b1.json", "i64b1.json", "i128b2.json", "i256b4.json", "i512b2.json"} {
			out[name] = fmt.Sprintf(point, 0.1*float64(i+1))
		}
		if broken != "" {
			out["i32b4.json"] = broken
		}
		return out
	}
	const gpu = "NVIDIA A100-PCIE-40GB"
	config := *Check("s", "c.yaml", []byte(good)).Config
	for name, c := range map[string]struct {
		dir, gpu string
		files    map[string]string
		id       string
		want     schemas.Severity
	}{
		"named alias":       {"one/A100_40GB", gpu, usable(""), "aegaeon.profile-file", "pass"},
		"name of the GPU":   {"one/" + gpu, gpu, usable(""), "aegaeon.profile-file", "pass"},
		"none":              {"other/A100_40GB", gpu, usable(""), "aegaeon.profile-missing", "error"},
		"two points":        {"one/A100_40GB", gpu, map[string]string{"i32b1.json": fmt.Sprintf(point, 0.1), "i64b1.json": fmt.Sprintf(point, 0.2)}, "aegaeon.profile-missing", "error"},
		"two samples":       {"one/A100_40GB", gpu, usable(`{"prefill_latencies":[1,2],"decode_latencies":[1,2,3]}`), "aegaeon.profile-file", "error"},
		"negative":          {"one/A100_40GB", gpu, usable(`{"prefill_latencies":[1,2,-3],"decode_latencies":[1,2,3]}`), "aegaeon.profile-file", "error"},
		"not finite":        {"one/A100_40GB", gpu, usable(`{"prefill_latencies":[1,2,1e999],"decode_latencies":[1,2,3]}`), "aegaeon.profile-file", "error"},
		"no arrays":         {"one/A100_40GB", gpu, usable(`{}`), "aegaeon.profile-file", "error"},
		"no JSON":           {"one/A100_40GB", gpu, usable(`{`), "aegaeon.profile-file", "error"},
		"of the GPU":        {"one/A100_40GB", gpu, usable(""), "aegaeon.profile-device", "pass"},
		"of another GPU":    {"one/A100_40GB", "NVIDIA H20", usable(""), "aegaeon.profile-device", "error"},
		"of an unknown GPU": {"one/A100_40GB", "", usable(""), "aegaeon.profile-device", "unknown"},
		"of a nameless one": {"one/A100_40GB", "GPU", usable(""), "aegaeon.profile-device", "warning"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(filepath.Join(root, c.dir), c.files)
			one := config
			one.Models = config.Models[:1]
			got := Profiles("s", "c.yaml", root, one, c.gpu)
			if have := worst(got, c.id); have != c.want {
				t.Errorf("%s is %q, want %q: %+v", c.id, have, c.want, got)
			}
			inCatalog(t, got)
		})
	}
	root := t.TempDir()
	write(filepath.Join(root, "two", "A100_40GB"), usable(""))
	one := config
	one.Models = config.Models[1:]
	if got := Profiles("s", "c.yaml", root, one, gpu); worst(got, "aegaeon.profile-file") != "pass" {
		t.Errorf("the alias that follows from the name: %+v", got)
	}
	one.Devices = nil
	if got := Profiles("s", "c.yaml", root, one, ""); worst(got, "aegaeon.profile-missing") != "unknown" {
		t.Errorf("no device: %+v", got)
	}
	if got := Alias("Qwen/Qwen3.5-9B"); got != "qwen3_5_9b" {
		t.Error(got)
	}
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	config := *Check("s", "c.yaml", []byte(good)).Config
	if got := Paths("s", "c.yaml", config, map[string]string{"a/one": dir, "two": dir}); worst(got, "aegaeon.model-path") != "pass" {
		t.Errorf("%+v", got)
	}
	if got := Paths("s", "c.yaml", config, map[string]string{"a/one": dir}); worst(got, "aegaeon.model-path") != "error" {
		t.Errorf("%+v", got)
	}
	if got := Read("s", filepath.Join(dir, "none.yaml")); len(got.Findings) != 1 || got.Findings[0].ID != "aegaeon.read" {
		t.Errorf("%+v", got)
	}
}

func FuzzPoint(f *testing.F) {
	f.Add([]byte(`{"prefill_latencies":[1,2,3],"decode_latencies":[1,2,3]}`))
	f.Add([]byte(`{"prefill_latencies":[1,2,-1e400]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePoint(b)
		if err == nil && !(p.PrefillS >= -1e-9 && p.PrefillS <= maxLatencyS+1 && p.DecodeS >= -1e-9 && p.DecodeS <= maxLatencyS+1) {
			t.Fatalf("%+v from %q", p, b)
		}
	})
}
