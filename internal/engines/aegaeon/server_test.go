package aegaeon

import (
	"errors"
	"strings"
	"testing"
)

const whole = `
server:
  nnodes: 2
  num_prefill_engines: 1
  num_decode_engines: 2
  decode_work_stealing: true
  model_cache_size_gb: 20
  startup_models: [org/A]
  cuda_graph:
    mode: 'save'
    archive_dir: /srv/archives
    batch_sizes: [1, 2]
    seq_len_buckets: [2048]
    base_address: "0x400000000000"
models:
  - {name: org/A, path: /srv/models/qwen2.5-7b, max_model_len: 4096, gpu_clock_mhz: 1}
  - {name: b}
devices:
  - {name: A100_40GB, memory: 39, bandwidth: 32, profile: A100-PCIE-40GB}
`

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig("a.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Server
	if s.Nodes != 2 || *s.NumPrefillEngines != 1 || *s.NumDecodeEngines != 2 || !s.DecodeWorkStealing || s.DecodeStealMinBatchGap != 2 || s.CPUNumSlabs != 128 {
		t.Errorf("%+v", s)
	}
	if g := s.CUDAGraph; g.Mode != "save" || g.BaseAddress != 0x400000000000 || g.ScratchSizeBytes != 4<<30 || len(g.BatchSizes) != 2 {
		t.Errorf("%+v", g)
	}
	if len(c.Models) != 2 || *c.Models[0].MaxModelLen != 4096 || len(c.Devices) != 1 || c.Devices[0].Memory != 39 || (*s.StartupModels)[0] != "org/A" {
		t.Errorf("%+v", c)
	}
	c, err = ParseConfig("a.yaml", []byte("models: [{name: a}]"))
	if err != nil || *c.Server.NumPrefillEngines != 1 || *c.Server.NumDecodeEngines != 1 || c.Server.CUDAGraph.Mode != "off" || c.Server.StartupModels != nil {
		t.Errorf("defaults: %+v, %v", c.Server, err)
	}
}

func TestParseConfigErrors(t *testing.T) {
	edit := func(from, to string) string {
		if !strings.Contains(whole, from) {
			t.Fatalf("no %q", from)
		}
		return strings.Replace(whole, from, to, 1)
	}
	for want, content := range map[string]string{
		"without quotes":               edit("'save'", "off"),
		"want 'off', 'save'":           edit("'save'", "'keep'"),
		"line 2":                       "models: [{name: a}]\nserver: [1]",
		"one maximum sequence length":  edit("[2048]", "[1024, 2048]"),
		"archive_dir: is missing":      edit("archive_dir: /srv/archives", "strict: true"),
		"multiples of 2 MiB":           edit(`"0x400000000000"`, `"0x400000000001"`),
		"no number of bytes":           edit(`"0x400000000000"`, `many`),
		"num_engines wants":            edit("nnodes: 2", "num_engines: 2"),
		"want one prefill":             edit("num_prefill_engines: 1", "num_prefill_engines: 0"),
		"only 1 is supported":          edit("nnodes: 2", "tensor_parallel_size: 2"),
		"is none of the models":        edit("[org/A]", "[nobody]"),
		"is there twice":               edit("[org/A]", "[org/A, org/A]"),
		"least-loaded or round-robin":  edit("nnodes: 2", "model_placement_policy: best"),
		"least-outstanding or":         edit("nnodes: 2", "request_routing_policy: best"),
		"want 2 or more":               edit("nnodes: 2", "decode_work_stealing_min_batch_gap: 1"),
		"positive whole numbers":       edit("[1, 2]", "[]"),
		"name is missing":              edit("name: b", "path: b"),
		"nnodes: 0":                    edit("nnodes: 2", "nnodes: 0"),
		"model_cache_size_gb: -1":      edit("model_cache_size_gb: 20", "model_cache_size_gb: -1"),
		"less than region_size_bytes":  edit(`base_address: "0x400000000000"`, "scratch_size_bytes: 274877906944"),
		"numbers of engines cannot be": edit("num_decode_engines: 2", "num_decode_engines: -2"),
	} {
		_, err := ParseConfig("a.yaml", []byte(content))
		var bad *ConfigError
		if !errors.As(err, &bad) || (!strings.Contains(err.Error(), want) && !(want == "line 2" && bad.Line == 2)) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("models: [{name: a}]\nserver: {cuda_graph: {mode: off}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig("a.yaml", b)
		var bad *ConfigError
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("an error of another sort: %v", err)
		}
		if err == nil && len(c.Models) == 0 {
			t.Error("no models, and no error")
		}
	})
}
