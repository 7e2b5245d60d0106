package aegaeon

import (
	"os"
	"slices"
	"strings"
	"testing"

	"assay/preflight"
	"assay/schemas"
)

const good = `server:
  nnodes: 1
  num_engines: 0
  num_prefill_engines: 1
  num_decode_engines: 2
  tensor_parallel_size: 1
  worker_num_cpus: 4
  cpu_num_slabs: 8
  cpu_slab_size_bytes: 1073741824
  model_cache_size_gb: 20
  memory_utilization: 0.775
  dummy_weights: false
  decode_work_stealing: true
  model_placement_policy: least-loaded
  startup_models: [a/one]
  cuda_graph:
    mode: 'save'
    archive_dir: /archives/x
    batch_sizes: [1, 2]
    seq_len_buckets: [2048]
    base_address: '0x400000000000'
    region_size_bytes: 274877906944
    scratch_size_bytes: 4294967296
models:
  - name: a/one
    path: /models/one
    params: 3.7
    profile: one
    max_model_len: 2048
  - name: two
    path: /models/two
devices:
  - name: A100_40GB
    memory: 39
    bandwidth: 24
    colour: kept
`

func TestGoodConfigurationPasses(t *testing.T) {
	r := Check("s", "c.yaml", []byte(good))
	if len(r.Findings) != 1 || r.Findings[0].ID != "aegaeon.config" || r.Findings[0].Severity != schemas.SeverityPass || r.Config == nil {
		t.Errorf("%+v", r)
	}
	inCatalog(t, r.Findings)
	path := "../../experiments/aegaeon/three-models.yaml"
	if r := Read("s", path); r.Config == nil || len(r.Findings) != 1 {
		t.Errorf("%s: %+v", path, r.Findings)
	}
}

// TestEachFault changes the good configuration in one place, and wants the finding
// that stands for it, at its line, and no other refusal.
func TestEachFault(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		id, text string
	}{
		"no YAML":              {"server:", "server: [", "aegaeon.yaml", "not YAML"},
		"no server":            {good, "models: [{name: a, path: /a}]\n", "aegaeon.yaml", "no server"},
		"list":                 {good, "- a\n", "aegaeon.yaml", "table"},
		"twice":                {"  nnodes: 1\n", "  nnodes: 1\n  nnodes: 1\n", "aegaeon.duplicate-key", "line 2"},
		"unknown, near":        {"nnodes: 1", "nnode: 1", "aegaeon.unknown-key", "server.nnode"},
		"unknown clock":        {"    profile: one", "    gpu_clock_mhz: 1000", "aegaeon.unknown-key", "no effect"},
		"near a device's":      {"    bandwidth: 24", "    bandwith: 24", "aegaeon.unknown-key", "bandwith"},
		"bare mode":            {"'save'", "off", "aegaeon.graph-mode", "boolean"},
		"other mode":           {"'save'", "'lod'", "aegaeon.graph-mode", "load is near"},
		"policy yes":           {"least-loaded", "yes", "aegaeon.yaml11", "boolean"},
		"unknown policy":       {"least-loaded", "least-load", "aegaeon.policy", "least-loaded is near"},
		"name is a number":     {"name: two", "name: 12", "aegaeon.yaml11", "whole number"},
		"name is a date":       {"name: two", "name: 2024-01-02", "aegaeon.yaml11", "date"},
		"name is null":         {"name: two", "name: ~", "aegaeon.null", "no value"},
		"exponent":             {"1073741824", "1e9", "aegaeon.yaml11", "text to YAML 1.1"},
		"octal":                {"cpu_num_slabs: 8", "cpu_num_slabs: 010", "aegaeon.yaml11", "octal"},
		"sexagesimal":          {"cpu_num_slabs: 8", "cpu_num_slabs: 1:30", "aegaeon.yaml11", "base of 60"},
		"quoted number":        {"cpu_num_slabs: 8", "cpu_num_slabs: '8'", "aegaeon.type", "quotes"},
		"quoted boolean":       {"dummy_weights: false", "dummy_weights: 'false'", "aegaeon.type", "quotes"},
		"fraction":             {"cpu_num_slabs: 8", "cpu_num_slabs: 8.5", "aegaeon.type", "whole number"},
		"table for a number":   {"cpu_num_slabs: 8", "cpu_num_slabs: {}", "aegaeon.type", "have a table"},
		"number for a list":    {"[2048]", "2048", "aegaeon.type", "list"},
		"no value":             {"cpu_num_slabs: 8", "cpu_num_slabs:", "aegaeon.null", "no value"},
		"null slabs":           {"nnodes: 1", "nnodes: null", "aegaeon.null", "nnodes"},
		"utilization":          {"0.775", "1.5", "aegaeon.value", "at most 1"},
		"not a number":         {"0.775", ".nan", "aegaeon.value", "nan"},
		"negative":             {"memory: 39", "memory: -1", "aegaeon.value", "more than 0"},
		"simple and P/D":       {"num_engines: 0", "num_engines: 1", "aegaeon.engines", "beside"},
		"P without D":          {"num_decode_engines: 2", "num_decode_engines: 0", "aegaeon.engines", "0 decode"},
		"defaults":             {"  num_engines: 0\n  num_prefill_engines: 1\n", "  num_engines: 1\n", "aegaeon.engines", "1 when left out"},
		"tensor parallel":      {"parallel_size: 1", "parallel_size: 2", "aegaeon.tensor-parallel", "only 1"},
		"no slabs":             {"  cpu_num_slabs: 8\n", "", "aegaeon.slabs-default", "128 GiB"},
		"dummy":                {"dummy_weights: false", "dummy_weights: true", "aegaeon.dummy-weights", "placeholder"},
		"bare address":         {"'0x400000000000'", "'four'", "aegaeon.type", "number of bytes"},
		"alignment":            {"274877906944", "274877906945", "aegaeon.alignment", "2 MiB"},
		"zero":                 {"4294967296", "0", "aegaeon.alignment", "positive"},
		"scratch":              {"4294967296", "274877906944", "aegaeon.scratch", "does not fit"},
		"two buckets":          {"[2048]", "[1024, 2048]", "aegaeon.bucket", "has 2"},
		"default buckets":      {"    seq_len_buckets: [2048]\n", "", "aegaeon.bucket", "default has five"},
		"no batch sizes":       {"[1, 2]", "[]", "aegaeon.batch-sizes", "empty"},
		"batch of none":        {"[1, 2]", "[0, 2]", "aegaeon.value", "at least 1"},
		"no archive":           {"    archive_dir: /archives/x\n", "", "aegaeon.archive-dir", "wants"},
		"unknown start-up":     {"[a/one]", "[a/tow]", "aegaeon.startup-models", "none of"},
		"start-up twice":       {"[a/one]", "[two, two]", "aegaeon.startup-models", "twice"},
		"model twice":          {"name: two", "name: a/one", "aegaeon.model-name", "twice"},
		"no name":              {"  - name: two\n    path: /models/two", "  - path: /models/two", "aegaeon.model-name", "no name"},
		"one id":               {"    path: /models/two", "    path: /models/two\n    id: 3", "aegaeon.model-id", "1 of 2"},
		"relative path":        {"/models/two", "models/two", "aegaeon.model-path", "relative"},
		"no path":              {"    path: /models/two\n", "", "aegaeon.model-path", "downloaded"},
		"params as a count":    {"params: 3.7", "params: 4022468096", "aegaeon.value", "params"},
		"params in thousands":  {"params: 3.7", "params: 4000", "aegaeon.params", "2^30"},
		"absolute alias":       {"profile: one", "profile: /one", "aegaeon.profile-alias", "absolute"},
		"alias upwards":        {"profile: one", "profile: a/../../one", "aegaeon.profile-alias", "upwards"},
		"device without":       {"    memory: 39\n", "", "aegaeon.device", "memory"},
		"graphs, simple ones":  {"  num_engines: 0\n  num_prefill_engines: 1\n  num_decode_engines: 2\n", "  num_engines: 2\n  num_prefill_engines: 0\n  num_decode_engines: 0\n", "aegaeon.graph-engines", "neither"},
		"no models":            {good[strings.Index(good, "models:"):], "devices: []\n", "aegaeon.model-name", "no models"},
		"models empty":         {good[strings.Index(good, "models:\n"):], "models: []\n", "aegaeon.model-name", "empty"},
		"second document":      {"devices:", "---\ndevices:", "aegaeon.yaml", "second document"},
		"octal that is no one": {"cpu_num_slabs: 8", "cpu_num_slabs: 08", "aegaeon.yaml11", "text to YAML 1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			content := strings.Replace(good, c.old, c.new, 1)
			if content == good {
				t.Fatal("nothing was replaced")
			}
			r := Check("s", "c.yaml", []byte(content))
			i := slices.IndexFunc(r.Findings, func(f schemas.Finding) bool {
				return f.ID == c.id && f.Severity == schemas.SeverityError && strings.Contains(f.Message, c.text)
			})
			if i < 0 {
				t.Fatalf("%+v; want %s with %q", r.Findings, c.id, c.text)
			}
			if !strings.HasPrefix(r.Findings[i].Message, "c.yaml:") || r.Findings[i].Remedy == "" {
				t.Errorf("place or remedy is missing: %+v", r.Findings[i])
			}
			if r.Config != nil {
				t.Error("a configuration that is refused was returned")
			}
			inCatalog(t, r.Findings)
		})
	}
}

func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct{ old, new, id string }{
		"cache":    {"  model_cache_size_gb: 20\n", "", "aegaeon.model-cache-default"},
		"relative": {"/archives/x", "archive", "aegaeon.archive-dir"},
		"order":    {"[1, 2]", "[2, 1]", "aegaeon.batch-sizes"},
		"stealing": {"num_decode_engines: 2", "num_decode_engines: 1", "aegaeon.stealing"},
		"nodes":    {"nnodes: 1", "nnodes: 2", "aegaeon.nodes-equal"},
	} {
		r := Check("s", "c.yaml", []byte(strings.Replace(good, c.old, c.new, 1)))
		if r.Config == nil || r.Findings[0].ID != c.id || r.Findings[0].Line == 0 && name != "cache" {
			t.Errorf("%s: %+v", name, r.Findings)
		}
		inCatalog(t, r.Findings)
	}
}

func TestPlacesAreExact(t *testing.T) {
	r := Check("s", "c.yaml", []byte(strings.Replace(good, "'save'", "off", 1)))
	if f := r.Findings[0]; f.Line != 17 || f.Column != 11 || !strings.HasPrefix(f.Message, "c.yaml:17:11: ") {
		t.Errorf("%+v", f)
	}
}

func TestLoadDiffers(t *testing.T) {
	load := strings.Replace(good, "'save'", "'load'", 1)
	for name, c := range map[string]struct {
		loaded string
		paths  bool
		text   string // "": pass
	}{
		"mode alone":      {load, false, ""},
		"same value":      {strings.Replace(load, "4294967296", "0x100000000", 1), false, ""},
		"paths":           {strings.ReplaceAll(load, "/models/", "/m/"), true, ""},
		"paths, not free": {strings.ReplaceAll(load, "/models/", "/m/"), false, "models[0].path"},
		"region":          {strings.Replace(load, "274877906944", "137438953472", 1), true, "region_size_bytes"},
		"batch sizes":     {strings.Replace(load, "[1, 2]", "[1, 2, 4]", 1), true, "3 entries"},
		"utilization":     {strings.Replace(load, "  memory_utilization: 0.775\n", "", 1), true, "memory_utilization: is not set"},
		"model more":      {load + "extra: 1\n", true, "extra: is set"},
		"kind":            {strings.Replace(load, "[2048]", "2048", 1), true, "is a scalar"},
	} {
		got := LoadDiffers("s", "load.yaml", []byte(good), []byte(c.loaded), c.paths)
		inCatalog(t, got)
		if c.text == "" {
			if len(got) != 1 || got[0].Severity != schemas.SeverityPass {
				t.Errorf("%s: %+v", name, got)
			}
		} else if got[0].ID != "aegaeon.save-load" || !strings.Contains(got[0].Message, c.text) {
			t.Errorf("%s: %+v; want %q", name, got, c.text)
		}
	}
	if got := LoadDiffers("s", "l", []byte("["), []byte(good), false); len(got) != 1 || got[0].ID != "aegaeon.yaml" {
		t.Errorf("%+v", got)
	}
}

func TestCommand(t *testing.T) {
	for name, c := range map[string]struct {
		argv []string
		env  map[string]string
		id   string
		want schemas.Severity
	}{
		"plain":    {[]string{"aegaeon", "start", "--config", "c"}, map[string]string{"AEGAEON_DUMMY_WEIGHTS": "0"}, "aegaeon.command-option", "pass"},
		"option":   {[]string{"aegaeon", "--num-decode-engines=2"}, nil, "aegaeon.command-option", "warning"},
		"tensor":   {[]string{"aegaeon", "--tensor-parallel-size", "2"}, nil, "aegaeon.tensor-parallel", "error"},
		"dummy":    {nil, map[string]string{"AEGAEON_DUMMY_WEIGHTS": "1"}, "aegaeon.dummy-weights", "error"},
		"limits":   {nil, map[string]string{"AEGAEON_MAX_TOKENS_PER_SECOND": "5"}, "aegaeon.limits", "error"},
		"devices":  {nil, map[string]string{"CUDA_VISIBLE_DEVICES": "0", "AEGAEON_CUDA_VISIBLE_DEVICES": "1"}, "aegaeon.visible-devices", "error"},
		"same ids": {nil, map[string]string{"CUDA_VISIBLE_DEVICES": "0", "AEGAEON_CUDA_VISIBLE_DEVICES": "0"}, "aegaeon.command-option", "pass"},
	} {
		got := Command("s", c.argv, c.env)
		if len(got) != 1 || got[0].ID != c.id || got[0].Severity != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		inCatalog(t, got)
	}
}

func inCatalog(t *testing.T, findings []schemas.Finding) {
	t.Helper()
	for _, f := range findings {
		if !slices.ContainsFunc(Catalog(), func(e preflight.Entry) bool { return e.ID == f.ID }) {
			t.Errorf("%s stands in no catalog", f.ID)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("server: {cuda_graph: {mode: off, base_address: 0x1}}\nmodels: [{name: 1e9, id: ~}]\ndevices: [{}]\n"))
	if b, err := os.ReadFile("../../experiments/aegaeon/three-models.yaml"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := Check("s", "c.yaml", b)
		if len(r.Findings) == 0 {
			t.Fatal("no finding at all")
		}
		inCatalog(t, r.Findings)
		if r.Config != nil {
			inCatalog(t, Budgets("s", "c.yaml", *r.Config, []Model{{Name: "a/one", Parameters: 4e9, KVBytesPerToken: 1000, ContextLength: 10}}, Host{}, Load{Concurrency: 3, Sequence: 5}))
		}
		inCatalog(t, LoadDiffers("s", "c.yaml", []byte(good), b, true))
	})
}
