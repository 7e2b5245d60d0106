package preflight

import (
	"context"
	"os"
	"slices"
	"testing"

	"assay/internal/engines/emulated/foundry"
	"assay/schemas"
)

const withGraphs = `server:
  cpu_num_slabs: 1
  cpu_slab_size_bytes: 1
  model_cache_size_gb: 0.001
  worker_num_cpus: 1
  cuda_graph: {mode: 'load', archive_dir: graphs, batch_sizes: [2, 1], seq_len_buckets: [2048], base_address: 0x400000000000, region_size_bytes: 1073741824, scratch_size_bytes: 4194304}
models: [{name: org/q, path: /nowhere, max_model_len: 2048}]
`

// A service that loads graphs wants them of every model that it lists, in the layout
// that it asks for; one that saves wants an empty folder.
func TestGraphsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		saved  []string // models
		config map[string]any
		id     string // that is an error; "" for none of foundry
		passes string
	}{
		"loads":                {saved: []string{"org/q"}, passes: "foundry.model-missing"},
		"another model":        {saved: []string{"org/other"}, id: "foundry.model-missing"},
		"nothing there":        {id: "foundry.load-folder"},
		"saves over":           {saved: []string{"org/q"}, config: map[string]any{"graph_mode": "save", "graph_archive": "graphs"}, id: "foundry.save-folder"},
		"saves":                {config: map[string]any{"graph_mode": "save", "graph_archive": "new"}, passes: "foundry.save-folder"},
		"saves where it likes": {saved: []string{"org/q"}, config: map[string]any{"graph_mode": "save"}},
		"off":                  {config: map[string]any{"graph_mode": "off"}},
		"another folder":       {saved: []string{"org/q"}, config: map[string]any{"graph_archive": "new"}, id: "foundry.load-folder"},
		"of an earlier stage":  {config: map[string]any{"graph_archive": "${stage.save.archive}"}},
	} {
		exp := experiment()
		config := map[string]any{"aegaeon_config": "a.yaml"}
		for k, v := range c.config {
			config[k] = v
		}
		exp.Service["real"] = schemas.Service{Engine: "emulated", Config: config}
		s := newStage(t, exp, map[string]any{"disk": "1B"})
		s.file(t, "w.csv", good)
		s.file(t, "a.yaml", withGraphs)
		for _, m := range c.saved {
			spec := foundry.Spec{Model: m, Binding: "w", BatchSizes: []int{1, 2}, SeqLenBucket: 2048, BaseAddress: 0x400000000000, RegionSizeBytes: 1 << 30, ScratchSizeBytes: 4 << 20}
			if _, err := foundry.Save(s.task.Abs("graphs"), spec); err != nil {
				t.Fatal(err)
			}
		}
		_ = run(context.Background(), s.task) // what it refuses stands in the output
		list := slices.DeleteFunc(s.output(t), func(f schemas.Finding) bool { return len(f.ID) < 8 || f.ID[:8] != "foundry." })
		bad := slices.DeleteFunc(slices.Clone(list), func(f schemas.Finding) bool { return f.Severity == schemas.SeverityPass })
		switch {
		case c.id != "" && (len(bad) != 1 || bad[0].ID != c.id || bad[0].Severity != schemas.SeverityError):
			t.Errorf("%s: %+v, want %s", name, bad, c.id)
		case c.id == "" && len(bad) > 0:
			t.Errorf("%s: false alarm: %+v", name, bad)
		case c.passes != "" && !slices.ContainsFunc(list, func(f schemas.Finding) bool { return f.ID == c.passes }):
			t.Errorf("%s: no pass of %s: %+v", name, c.passes, list)
		case c.id == "" && c.passes == "" && len(list) > 0:
			t.Errorf("%s: it was looked at: %+v", name, list)
		}
		if _, err := os.Stat(s.task.Abs("new")); err == nil {
			t.Errorf("%s: a folder was made", name)
		}
	}
}
