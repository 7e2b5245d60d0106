package engines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/schemas"
)

const graphsConfig = `server:
  cuda_graph: {mode: 'off', seq_len_buckets: [64]}
models:
  - {name: Qwen/Qwen3-4B, path: /models/a}
`

func TestStartedConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name          string
		mode, archive string // of the service
		dir           string // archive_dir as written
		source        string
		want          string // end of the folder of archives
		err           string
	}{
		{name: "off", mode: "off", archive: "x"},
		{name: "save", mode: "save", want: "work/archive"},
		{name: "load of a stage", mode: "load", archive: "/stage/archive", want: "/stage/archive"},
		{name: "load of a source", mode: "load", source: "/source/archive", dir: "archive", want: "/source/archive"},
		{name: "load as written", mode: "load", dir: "/srv/archive", want: "/srv/archive"},
		{name: "load beside it", mode: "load", dir: "archive", want: "conf/archive"},
		{name: "load of nothing", mode: "load", err: "graph_archive: is missing"},
		{name: "as written"},
	} {
		base := t.TempDir()
		conf := filepath.Join(base, "conf", "c.yaml")
		if err := os.MkdirAll(filepath.Dir(conf), 0o755); err != nil {
			t.Fatal(err)
		}
		text := graphsConfig
		if tt.dir != "" {
			text = strings.Replace(text, "mode: 'off'", "mode: 'off', archive_dir: "+tt.dir, 1)
		}
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		l := Launch{LogDir: base, WorkDir: filepath.Join(base, "work"), SourceArchive: tt.source, ModelPaths: map[string]string{"Qwen/Qwen3-4B": "/srv/models/a"}}
		r, err := render(l, settings{AegaeonConfig: conf, GraphMode: tt.mode, GraphArchive: tt.archive})
		if tt.err != "" || err != nil {
			if tt.err == "" || err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		b, err := os.ReadFile(filepath.Join(base, StartedConfig))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(r.archive, tt.want) || tt.want == "" && r.archive != "" || !strings.Contains(string(b), "/srv/models/a") || !strings.Contains(string(b), r.archive) {
			t.Errorf("%s: %s: %s", tt.name, r.archive, b)
		}
		if r.record.Written != schemas.DigestOf([]byte(text)) || r.record.Started != schemas.DigestOf(b) || len(r.record.Replaced) == 0 {
			t.Errorf("%s: %+v", tt.name, r.record)
		}
		if got := r.withConfig("--config={config}"); got != "--config="+r.file {
			t.Errorf("%s", got)
		}
	}
	if _, err := render(Launch{}, settings{GraphMode: "load"}); err == nil {
		t.Error("a mode without a configuration was accepted")
	}
}

func TestStandInsForModels(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(graphsConfig+"devices: [{name: A100_40GB, memory: 39}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := EmulatedConfig(map[string]any{"aegaeon_config": file, "graph_mode": "load", "graph_archive": "/a"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Models[0].Base != "qwen2.5-7b" || c.CUDAGraph == nil || c.CUDAGraph.Mode != "load" || c.CUDAGraph.ArchiveDir != "/a" || c.Serving.Float("memory_gb") != 39 {
		t.Errorf("%+v", c)
	}
}
