package engines

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"assay/internal/engines/aegaeon"
	"assay/internal/engines/emulated"
	"assay/internal/serving"
)

// EmulatedConfig reads the keys of an emulated engine, with those of Aegaeon's
// configuration, if there is one, put in their place. Keys beside it win over what it
// says.
func EmulatedConfig(keys map[string]any) (emulated.Config, error) {
	file, _ := keys["aegaeon_config"].(string)
	if file == "" {
		return emulated.FromMap(keys)
	}
	if keys["models"] != nil {
		return emulated.Config{}, errors.New("models and aegaeon_config are both given: say one")
	}
	a, err := aegaeon.ReadConfig(file)
	if err != nil {
		return emulated.Config{}, fmt.Errorf("aegaeon_config: %w", err)
	}
	if mode, _ := keys["graph_mode"].(string); mode != "" {
		if a.Server.CUDAGraph.Mode.Set(mode); len(a.Server.CUDAGraph.SeqLenBuckets) == 0 {
			return emulated.Config{}, errors.New("aegaeon_config: server.cuda_graph.seq_len_buckets: is empty")
		}
	}
	if dir, _ := keys["graph_archive"].(string); dir != "" {
		a.Server.CUDAGraph.ArchiveDir = dir
	}
	merged := fromAegaeon(a)
	for name, v := range keys {
		table, isTable := v.(map[string]any)
		if under, both := merged[name].(map[string]any); isTable && both {
			maps.Copy(under, table)
		} else {
			merged[name] = v
		}
	}
	for _, name := range []string{"aegaeon_config", "graph_mode", "graph_archive"} {
		delete(merged, name)
	}
	return emulated.FromMap(merged)
}

// fromAegaeon says what Aegaeon's configuration says in the keys of an emulated
// engine.
func fromAegaeon(a aegaeon.Config) map[string]any {
	s := a.Server
	system := map[string]any{"nodes": s.Nodes, "routing": s.RequestRoutingPolicy, "placement": s.ModelPlacementPolicy, "model_cache_gb": s.ModelCacheSizeGB}
	if s.NumEngines > 0 {
		system["policy"], system["workers"] = serving.PolicyServerlessLLM, s.Nodes*s.NumEngines
	} else {
		p, d := *s.NumPrefillEngines, *s.NumDecodeEngines
		system["policy"], system["workers"], system["prefill_workers"] = serving.PolicyAegaeon, s.Nodes*(p+d), s.Nodes*p
		system["work_stealing"], system["work_stealing_min_batch_gap"] = s.DecodeWorkStealing, s.DecodeStealMinBatchGap
	}
	if len(a.Devices) > 0 {
		device(system, a.Devices[0])
	}
	out := map[string]any{"personality": Aegaeon, "models": modelsOf(a), "serving": system}
	if g := s.CUDAGraph; g.Mode == "save" || g.Mode == "load" {
		sizes := []any{}
		for _, n := range g.BatchSizes {
			sizes = append(sizes, n)
		}
		out["cuda_graph"] = map[string]any{
			"mode": string(g.Mode), "archive_dir": g.ArchiveDir, "batch_sizes": sizes, "seq_len_bucket": g.SeqLenBuckets[0],
			"base_address": uint64(g.BaseAddress), "region_size_bytes": uint64(g.RegionSizeBytes), "scratch_size_bytes": uint64(g.ScratchSizeBytes),
		}
	}
	return out
}

// device takes one whose latencies the model knows by the beginning of its name; any
// other keeps its memory and bandwidth and takes the times of the default.
func device(system map[string]any, d aegaeon.Device) {
	for _, known := range serving.Devices {
		if _, err := serving.Published(known.Name, nil); err == nil && strings.HasPrefix(strings.ToLower(d.Name), known.Name) {
			system["device"] = known.Name
		}
	}
	if d.Memory > 0 {
		system["memory_gb"] = d.Memory
	}
	if d.Bandwidth > 0 {
		system["bandwidth_gb_per_s"] = d.Bandwidth
	}
}

// standIns are base models of about the size of models that have no published
// latencies.
var standIns = map[string]string{
	"qwen3-4b": "qwen2.5-7b", "qwen3_4b": "qwen2.5-7b",
	"qwen3.5-9b": "yi-9b", "qwen3_5_9b": "yi-9b",
	"gemma-3-4b": "qwen2.5-7b", "gemma_3_4b": "qwen2.5-7b", "gemma-3-4b-it": "qwen2.5-7b",
}

func modelsOf(a aegaeon.Config) []any {
	var out []any
	for _, m := range a.Models {
		e := map[string]any{"name": m.Name}
		for _, named := range []string{m.Profile, path.Base(m.Path), path.Base(m.Name)} {
			named = strings.ToLower(named)
			if like, ok := standIns[named]; ok {
				named = like
			}
			if _, err := serving.FindBaseModel(named); err == nil {
				e["base"] = named
				break
			}
		}
		if m.MaxModelLen != nil {
			e["max_model_len"] = *m.MaxModelLen
		}
		if start := a.Server.StartupModels; start != nil && !slices.Contains(*start, m.Name) {
			e["undeployed"] = true
		}
		out = append(out, e)
	}
	return out
}
