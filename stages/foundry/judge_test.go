package foundry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"assay/internal/engines/aegaeon"
	"assay/preflight/source"
	"assay/schemas"
)

const config = `server:
  cuda_graph:
    batch_sizes: [1, 2]
    seq_len_buckets: [64]
models:
  - name: a
  - name: org/a
  - name: b
`

var names = []string{"a", "org/a", "b"}

func parsed(t *testing.T) aegaeon.Config {
	t.Helper()
	c, err := aegaeon.ParseConfig("c.yaml", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// whole is what three modes leave when all is well.
func whole() map[string]schemas.Graphs {
	logs := map[string]string{schemas.GraphsOff: "ready\n"}
	for _, m := range names {
		logs[schemas.GraphsSave] += "INFO " + m + " rank 0: captured 2 Foundry decode graphs\nINFO " + m + " rank 0: Foundry decode replay active\n"
		logs[schemas.GraphsLoad] += "INFO " + m + " rank 0: loaded 2 Foundry decode graph shapes\nINFO " + m + " rank 0: Foundry decode replay active\n"
	}
	out := map[string]schemas.Graphs{}
	for _, mode := range modes {
		g := schemas.Graphs{Schema: schemas.GraphsV1, Mode: mode, Models: names, InputTokens: 8, OutputTokens: 3, Markers: CountMarkers([]byte(logs[mode]), names)}
		after := ""
		for _, m := range visits(names) {
			g.Answers = append(g.Answers, schemas.GraphsAnswer{Model: m, After: after, PromptDigest: schemas.DigestOf([]byte(m)), PromptTokens: 8, Outcome: schemas.OutcomeOK, TokenIDs: []int{len(m), 2, 3}})
			after = m
		}
		out[mode] = g
	}
	return out
}

func failed(checks []schemas.ValidatedCheck) []string {
	var out []string
	for _, c := range checks {
		if !c.OK {
			out = append(out, c.ID)
		}
	}
	return out
}

func TestJudge(t *testing.T) {
	change := func(mode string, f func(g *schemas.Graphs)) func(map[string]schemas.Graphs) {
		return func(all map[string]schemas.Graphs) { g := all[mode]; f(&g); all[mode] = g }
	}
	log := func(mode, text string) func(map[string]schemas.Graphs) {
		return change(mode, func(g *schemas.Graphs) { g.Markers = CountMarkers([]byte(text), names) })
	}
	nameless := strings.Repeat("captured Foundry decode graphs\nFoundry decode replay active\n", 3)
	for name, tt := range map[string]struct {
		change func(map[string]schemas.Graphs)
		want   []string
	}{
		"all is well":                  {func(map[string]schemas.Graphs) {}, nil},
		"a log that names no model":    {log(schemas.GraphsSave, nameless), nil},
		"one that tells too little":    {log(schemas.GraphsSave, nameless[:len(nameless)/3]), []string{"save-markers"}},
		"no load":                      {func(all map[string]schemas.Graphs) { delete(all, schemas.GraphsLoad) }, []string{"modes"}},
		"a model left out":             {change(schemas.GraphsSave, func(g *schemas.Graphs) { g.Models = names[:2] }), []string{"models", "answers"}},
		"a request that failed":        {change(schemas.GraphsLoad, func(g *schemas.Graphs) { g.Answers[3].Outcome = schemas.OutcomeReset }), []string{"answers", "switches"}},
		"an answer that is not there":  {change(schemas.GraphsOff, func(g *schemas.Graphs) { g.Answers = g.Answers[:7] }), []string{"answers"}},
		"one token":                    {change(schemas.GraphsOff, func(g *schemas.Graphs) { g.Answers[1].TokenIDs = []int{5} }), []string{"tokens-generated", "token-ids-equal", "switches"}},
		"longer than the bucket":       {change(schemas.GraphsSave, func(g *schemas.Graphs) { g.Answers[0].PromptTokens = 62 }), []string{"bucket", "prompts-equal"}},
		"another prompt":               {change(schemas.GraphsLoad, func(g *schemas.Graphs) { g.Answers[0].PromptDigest = schemas.DigestOf(nil) }), []string{"prompts-equal"}},
		"other tokens while saving":    {change(schemas.GraphsSave, func(g *schemas.Graphs) { g.Answers[2].TokenIDs = []int{1, 2, 4} }), []string{"token-ids-equal"}},
		"other tokens on the way back": {change(schemas.GraphsLoad, func(g *schemas.Graphs) { g.Answers[2].TokenIDs = []int{1, 2, 4} }), []string{"token-ids-equal", "switches"}},
		"replay without graphs":        {log(schemas.GraphsOff, "Foundry decode replay active\n"), []string{"off-markers"}},
		"capture when loading":         {log(schemas.GraphsLoad, "b captured 1 Foundry decode graph\n"), []string{"load-markers"}},
		"no replay of one model": {func(all map[string]schemas.Graphs) {
			g := all[schemas.GraphsLoad]
			text := ""
			for _, m := range names {
				text += m + ": loaded 2 Foundry decode graph shapes\n"
			}
			g.Markers = CountMarkers([]byte(text+"a: Foundry decode replay active\n"), names)
			all[schemas.GraphsLoad] = g
		}, []string{"load-markers"}},
	} {
		all := whole()
		tt.change(all)
		if got := failed(Judge(all, parsed(t))); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestVisits: each model follows every other, and is followed by it.
func TestVisits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var models []string
		for i := range rapid.IntRange(1, 8).Draw(t, "models") {
			models = append(models, fmt.Sprint(i))
		}
		order := visits(models)
		seen := map[[2]string]bool{}
		for i := 1; i < len(order); i++ {
			if order[i] == order[i-1] {
				t.Fatalf("%v: a model follows itself", order)
			}
			seen[[2]string{order[i-1], order[i]}] = true
		}
		if want := len(models) * (len(models) - 1); len(seen) != want || order[0] != models[0] {
			t.Fatalf("%v: %d pairs, want %d", order, len(seen), want)
		}
	})
}

func TestMarkersNameTheLongestModel(t *testing.T) {
	m := schemas.Graphs{Markers: CountMarkers([]byte("x org/a rank 0: captured 4 Foundry decode graphs\r\na captured Foundry decode graph\nnothing\n"), names)}.Marker(MarkerCaptured)
	if m.Lines != 2 || m.ByModel["org/a"] != (schemas.GraphsCount{Lines: 1, Graphs: 4}) || m.ByModel["a"] != (schemas.GraphsCount{Lines: 1}) {
		t.Errorf("%+v", m)
	}
}

// TestAssembledRunsAreSources assembles a run and holds it against the rules that a
// source run is held against.
func TestAssembledRunsAreSources(t *testing.T) {
	in, dir := t.TempDir(), t.TempDir()
	s := seen{graphs: whole(), outputs: map[string]map[string]string{}}
	put := func(name, text string) string {
		p := filepath.Join(in, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, mode := range modes {
		doc, err := schemas.Encode(s.graphs[mode])
		if err != nil {
			t.Fatal(err)
		}
		s.outputs[mode] = map[string]string{OutputAnswers: put(mode+"/"+AnswersFile, string(doc)), OutputLog: put(mode+"/"+LogFile, "log\n"), OutputConfig: put(mode+"/"+ConfigFile, config)}
	}
	put("archive/a/rank_0/graph_0.json", "{}")
	put("archive/a/rank_0/graph_0.cugraph", "x")
	s.outputs[schemas.GraphsSave][OutputArchive] = filepath.Join(in, "archive")
	written, c, err := s.configuration()
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{byMode: s.graphs, config: c, models: modelNames(c)}
	v := schemas.Validated{SchemaVersion: schemas.ValidatedV1, Passed: true, Emulated: true, ArchiveRoot: ArchiveFolder, LoadConfig: schemas.ValidatedConfig, Graph: layoutOf(c), Checks: Judge(s.graphs, c), SwitchSequence: j.switches(), Models: j.validatedModels(nil, true)}
	v.Environment, _ = environmentOf(nil, true)
	if err := assemble(s, written, dir, &v); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r, err := source.Check(t.Context(), root.FS(), "it")
	if err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r.Findings, err)
	}
	if m := r.Report.Models[1]; m.Name != "org/a" || m.GraphsCaptured != 2 || !m.ReplaySeen || len(r.Report.Files) != 10 {
		t.Errorf("%+v, %d files", m, len(r.Report.Files))
	}
	// Another configuration in one of the modes.
	put(schemas.GraphsLoad+"/"+ConfigFile, config+"devices: []\n")
	if _, _, err := s.configuration(); err == nil || !strings.Contains(err.Error(), "only the mode may differ") {
		t.Errorf("%v", err)
	}
}

func TestEnvironmentOfARealEngine(t *testing.T) {
	facts := map[string]string{"aegaeon_revision": "a", "foundry_revision": "f", "torch": "t", "vllm": "v", "cuda": "c", "driver": "d", "gpu_name": "g", "compute_capability": "8.0", "gpu_memory_bytes": "42949672960", "hook_sha256": "h"}
	env, missing := environmentOf(facts, false)
	if len(missing) > 0 || env.GPUMemoryBytes != 42949672960 || env.HookSHA256 != "h" {
		t.Errorf("%+v, %v", env, missing)
	}
	for name := range facts {
		less := map[string]string{}
		for k, v := range facts {
			if k != name {
				less[k] = v
			}
		}
		if _, missing := environmentOf(less, false); len(missing) != 1 || !strings.Contains(missing[0], name) {
			t.Errorf("without %s: %v", name, missing)
		}
	}
	facts["gpu_memory_bytes"] = "40GB"
	if _, missing := environmentOf(facts, false); len(missing) != 1 {
		t.Errorf("%v", missing)
	}
}

func TestCopyFolderRefusesLinks(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := os.Symlink("/etc/hostname", filepath.Join(from, "x")); err != nil {
		t.Fatal(err)
	}
	if err := copyFolder(from, to); err == nil || !strings.Contains(err.Error(), "neither a file nor a folder") {
		t.Errorf("%v", err)
	}
}
