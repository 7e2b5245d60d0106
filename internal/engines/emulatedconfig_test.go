package engines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const aegaeonYAML = `
server:
  nnodes: 2
  num_prefill_engines: 1
  num_decode_engines: 2
  decode_work_stealing: true
  request_routing_policy: round-robin
  startup_models: [org/A]
  cuda_graph: {mode: 'save', archive_dir: /nowhere, seq_len_buckets: [512]}
models:
  - {name: org/A, path: /srv/models/Yi-9B, max_model_len: 4096}
  - {name: b}
devices:
  - {name: H100_80GB, memory: 79, bandwidth: 32}
`

func TestEmulatedConfigOfAegaeon(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(aegaeonYAML), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := EmulatedConfig(map[string]any{"aegaeon_config": file, "time_scale": 10.0, "serving": map[string]any{"placement": "round-robin"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Personality != Aegaeon || c.TimeScale != 10 || len(c.Models) != 2 || c.Models[0].Base != "yi-9b" || c.Models[0].MaxModelLen != 4096 || c.Models[0].Undeployed || !c.Models[1].Undeployed {
		t.Errorf("%+v", c)
	}
	system, err := c.System()
	if err != nil {
		t.Fatal(err)
	}
	if system.Workers != 6 || system.PrefillWorkers != 2 || system.Nodes != 2 || !system.WorkStealing || system.Routing != "round-robin" || system.Placement != "round-robin" ||
		system.Device.MemoryGB != 79 || system.BandwidthGBps != 32 || system.Graphs == nil || system.Graphs.Ready || system.Graphs.MaxSeqLen != 512 {
		t.Errorf("%+v", system)
	}
	if g := c.CUDAGraph; g == nil || g.BaseAddress != 0x400000000000 || g.RegionSizeBytes != 256<<30 {
		t.Errorf("%+v", g)
	}
	for want, keys := range map[string]map[string]any{
		"both given":      {"aegaeon_config": file, "models": []any{map[string]any{"name": "x"}}},
		"no such file":    {"aegaeon_config": file + "x"},
		"models: is miss": {},
	} {
		if _, err := EmulatedConfig(keys); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
