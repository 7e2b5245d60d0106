package sourcetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"assay/schemas"
)

// Corruption is one way in which a validated run can be wrong.
type Corruption struct {
	Name string
	// ID is a finding that must be made, File what its message must name.
	ID, File string
	Spoil    func(dir string) error
}

const (
	report = "report.json"
	yaml   = schemas.ValidatedConfig
	rank   = "archive/Qwen%2FQwen3-4B/rank_0/"
	graph  = rank + "graph_1_FULL_t2_r2_UX_pcN"
)

// Corruptions are all of them.
func Corruptions() []Corruption {
	var out []Corruption
	out = append(out, missingFields()...)
	out = append(out, wrongFields()...)
	out = append(out, judgements()...)
	out = append(out, configurations()...)
	return append(out, files()...)
}

func edit(f func(m map[string]any)) func(string) error {
	return func(dir string) error { return EditReport(dir, f) }
}

// at walks to a table of the report; "models/0" is the first of a list.
func at(m map[string]any, path string) map[string]any {
	var v any = m
	for _, name := range strings.Split(path, "/") {
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			n := 0
			_, _ = fmt.Sscan(name, &n)
			v = x[n]
		}
	}
	t, _ := v.(map[string]any)
	return t
}

func missingFields() []Corruption {
	var out []Corruption
	for _, f := range []string{"schema_version", "passed", "created_at", "archive_root", "load_config", "load_config_sha256", "environment", "graph", "models", "switch_sequence", "checks", "files"} {
		out = append(out, Corruption{"report without " + f, "source.report-field", report, edit(func(m map[string]any) { delete(m, f) })})
	}
	for table, fields := range map[string][]string{
		"environment":       {"aegaeon_revision", "foundry_revision", "torch", "vllm", "cuda", "driver", "gpu_name", "compute_capability", "gpu_memory_bytes", "hook_sha256"},
		"graph":             {"batch_sizes", "seq_len_bucket", "base_address", "region_size_bytes", "scratch_size_bytes", "memory_utilization", "strict"},
		"models/0":          {"name", "weights_fingerprint", "ranks", "graphs_captured", "token_ids_equal", "replay_seen"},
		"switch_sequence/0": {"from", "to", "ok"},
		"checks/0":          {"id", "ok"},
		"files/0":           {"path", "size", "sha256"},
	} {
		for _, f := range fields {
			out = append(out, Corruption{"report without " + table + "/" + f, "source.report-field", report, edit(func(m map[string]any) { delete(at(m, table), f) })})
		}
	}
	return out
}

func wrongFields() []Corruption {
	set := func(path, field string, v any) func(string) error {
		return edit(func(m map[string]any) {
			if path == "" {
				m[field] = v
				return
			}
			at(m, path)[field] = v
		})
	}
	raw := func(text string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, report), []byte(text), 0o644) }
	}
	return []Corruption{
		{"passed as text", "source.report-field", report, set("", "passed", "true")},
		{"a time that is none", "source.report-field", report, set("", "created_at", "yesterday")},
		{"a later schema of assay", "source.report-field", report, set("", "schema_version", "assay/validated/v2")},
		{"batch sizes of zero", "source.report-field", report, set("graph", "batch_sizes", []any{0})},
		{"a negative region", "source.report-field", report, set("graph", "region_size_bytes", -1)},
		{"models as an object", "source.report-field", report, set("", "models", map[string]any{})},
		{"a hash that is none", "source.report-field", report, set("files/0", "sha256", "abc")},
		{"an empty driver", "source.report-field", report, set("environment", "driver", " ")},
		{"no report", "source.report-missing", report, func(dir string) error { return os.Remove(filepath.Join(dir, report)) }},
		{"a report that is empty", "source.report-unreadable", report, raw("")},
		{"a report that is no JSON", "source.report-unreadable", report, raw("passed: true\n")},
		{"a report that is a list", "source.report-field", report, raw("[]")},
		{"a report that is cut", "source.report-unreadable", report, raw(`{"passed": true, "checks": [`)},
		{"a report with something behind it", "source.report-unreadable", report, raw(`{} {}`)},
		{"a key twice", "source.report-unreadable", report, raw(`{"passed": false, "passed": true}`)},
		{"deep JSON", "source.report-unreadable", report, raw(strings.Repeat("[", 100000))},
		{"a report that is a folder", "source.report-unreadable", report, func(dir string) error {
			if err := os.Remove(filepath.Join(dir, report)); err != nil {
				return err
			}
			return os.Mkdir(filepath.Join(dir, report), 0o755)
		}},
	}
}

func judgements() []Corruption {
	model := func(f func(t map[string]any)) func(string) error {
		return edit(func(m map[string]any) { f(at(m, "models/1")) })
	}
	return []Corruption{
		{"passed is false", "source.report-passed", report, edit(func(m map[string]any) { m["passed"] = false })},
		{"passed with a failed check", "source.report-checks", report, edit(func(m map[string]any) { at(m, "checks/1")["ok"] = false })},
		{"passed without checks", "source.report-checks", report, edit(func(m map[string]any) { m["checks"] = []any{} })},
		{"a check twice", "source.report-checks", report, edit(func(m map[string]any) { l := m["checks"].([]any); m["checks"] = append(l, l[0]) })},
		{"no rank", "source.models", report, model(func(t map[string]any) { t["ranks"] = 0 })},
		{"too few graphs", "source.models", report, model(func(t map[string]any) { t["graphs_captured"] = 3 })},
		{"other tokens while saving", "source.models", report, model(func(t map[string]any) { at(t, "token_ids_equal")["off_save"] = false })},
		{"other tokens when loaded", "source.models", report, model(func(t map[string]any) { at(t, "token_ids_equal")["off_load"] = false })},
		{"no replay", "source.models", report, model(func(t map[string]any) { t["replay_seen"] = false })},
		{"a model twice", "source.models", report, edit(func(m map[string]any) { l := m["models"].([]any); m["models"] = append(l, l[0]) })},
		{"no models", "source.models", report, edit(func(m map[string]any) { m["models"] = []any{} })},
		{"a switch that failed", "source.switches", report, edit(func(m map[string]any) { at(m, "switch_sequence/2")["ok"] = false })},
		{"a switch to nowhere", "source.switches", report, edit(func(m map[string]any) { at(m, "switch_sequence/2")["to"] = "other" })},
		{"no switches", "source.switches", report, edit(func(m map[string]any) { m["switch_sequence"] = []any{} })},
		{"no switch back", "source.switches", report, edit(func(m map[string]any) {
			s := func(a, b int) any { return map[string]any{"from": Models[a], "to": Models[b], "ok": true} }
			m["switch_sequence"] = []any{s(0, 1), s(1, 2), s(2, 0)}
		})},
	}
}

func replace(name, from, to string) func(string) error {
	return func(dir string) error {
		p := filepath.Join(dir, filepath.FromSlash(name))
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if !strings.Contains(string(b), from) {
			return fmt.Errorf("%s does not hold %q", name, from)
		}
		return os.WriteFile(p, []byte(strings.ReplaceAll(string(b), from, to)), 0o644)
	}
}

// resealed is a change that the inventory was made to agree with.
func resealed(change func(string) error) func(string) error {
	return func(dir string) error {
		if err := change(dir); err != nil {
			return err
		}
		return Reseal(dir)
	}
}

func configurations() []Corruption {
	yes := func(from, to string) func(string) error { return resealed(replace(yaml, from, to)) }
	model := "  - name: google/gemma-3-4b-it\n    path: /models/gemma-3-4b-it\n    max_model_len: 2048\n"
	return []Corruption{
		{"another configuration", "source.config-hash", yaml, replace(yaml, "cpu_num_slabs: 8", "cpu_num_slabs: 9")},
		{"a hash that is off", "source.config-hash", yaml, edit(func(m map[string]any) { m["load_config_sha256"] = strings.Repeat("0", 64) })},
		{"no configuration", "source.config-missing", yaml, func(dir string) error { return os.Remove(filepath.Join(dir, yaml)) }},
		{"a configuration elsewhere", "source.config-missing", report, edit(func(m map[string]any) { m["load_config"] = "../" + yaml })},
		{"a configuration that is no YAML", "source.config-yaml", yaml, resealed(func(dir string) error { return os.WriteFile(filepath.Join(dir, yaml), []byte("models: [\n"), 0o644) })},
		{"mode save", "source.config-mode", yaml, yes("mode: 'load'", "mode: 'save'")},
		{"mode off", "source.config-mode", yaml, yes("mode: 'load'", "mode: 'off'")},
		{"a mode that YAML takes for a boolean", "source.config-yaml", yaml, yes("mode: 'load'", "mode: off")},
		{"simple engines", "source.config-mode", yaml, yes("  num_prefill_engines: 1\n  num_decode_engines: 1\n", "  num_engines: 2\n  num_prefill_engines: 0\n  num_decode_engines: 0\n")},
		{"dummy weights", "source.config-mode", yaml, yes("  cpu_num_slabs: 8\n", "  cpu_num_slabs: 8\n  dummy_weights: true\n")},
		{"a model without an archive", "source.config-models", yaml, yes(model, model+"  - name: other\n    path: /models/other\n")},
		{"a model left out", "source.config-models", yaml, resealed(func(dir string) error {
			if err := replace(yaml, model, "")(dir); err != nil {
				return err
			}
			return replace(yaml, ", google/gemma-3-4b-it]", "]")(dir)
		})},
		{"other startup models", "source.config-models", yaml, yes(", google/gemma-3-4b-it]", "]")},
		{"other batch sizes", "source.config-graph", yaml, yes("[1, 2, 4, 8]", "[1, 2, 4]")},
		{"another bucket", "source.config-graph", yaml, yes("[2048]", "[1024]")},
		{"several buckets", "source.config-yaml", yaml, yes("[2048]", "[1024, 2048]")},
		{"another base address", "source.config-graph", yaml, yes("0x400000000000", "0x500000000000")},
		{"another region", "source.config-graph", yaml, yes("274877906944", "137438953472")},
		{"another scratch", "source.config-graph", yaml, yes("4294967296", "2147483648")},
		{"an odd scratch", "source.config-yaml", yaml, yes("4294967296", "4294967297")},
		{"another memory utilization", "source.config-graph", yaml, yes("  cpu_num_slabs: 8\n", "  cpu_num_slabs: 8\n  memory_utilization: 0.9\n")},
		{"not strict", "source.config-graph", yaml, yes("    mode: 'load'\n", "    mode: 'load'\n    strict: false\n")},
		{"archives outside", "source.config-archive", yaml, yes("'archive'", "'../archive'")},
		{"archives of another folder", "source.config-archive", yaml, yes("'archive'", "'logs'")},
		{"archives of another machine's other run", "source.config-archive", yaml, yes("'archive'", "'/srv/other'")},
	}
}

func files() []Corruption {
	remove := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, filepath.FromSlash(name))) }
	}
	truncate := func(name string, to int64) func(string) error {
		return func(dir string) error { return os.Truncate(filepath.Join(dir, filepath.FromSlash(name)), to) }
	}
	link := func(name, target string) func(string) error {
		return func(dir string) error {
			p := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.RemoveAll(p); err != nil {
				return err
			}
			return os.Symlink(target, p)
		}
	}
	return []Corruption{
		{"a graph without .cugraph", "source.file-missing", graph + ".cugraph", remove(graph + ".cugraph")},
		{"a graph without .json", "source.file-missing", graph + ".json", remove(graph + ".json")},
		{"a pair that the inventory lost too, .cugraph", "source.archive-pair", graph + ".cugraph", resealed(remove(graph + ".cugraph"))},
		{"a pair that the inventory lost too, .json", "source.archive-pair", graph + ".json", resealed(remove(graph + ".json"))},
		{"a truncated .cugraph", "source.file-changed", graph + ".cugraph", truncate(graph+".cugraph", 100)},
		{"an empty .cugraph", "source.archive-pair", graph + ".cugraph", resealed(truncate(graph+".cugraph", 0))},
		{"a flipped byte", "source.file-changed", rank + "fatbin_image_packed.img", func(dir string) error {
			p := filepath.Join(dir, filepath.FromSlash(rank+"fatbin_image_packed.img"))
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			b[len(b)/2] ^= 1
			return os.WriteFile(p, b, 0o644)
		}},
		{"no packed entries", "source.file-missing", rank + "fatbin_entrypoint_packed.txt", remove(rank + "fatbin_entrypoint_packed.txt")},
		{"no catalog", "source.file-missing", "archive/Qwen%2FQwen3-4B/catalog.json", remove("archive/Qwen%2FQwen3-4B/catalog.json")},
		{"a model's archive gone", "source.file-missing", "archive/Qwen%2FQwen3.5-9B", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "archive", "Qwen%2FQwen3.5-9B")) }},
		{"no archives", "source.archive-root", "archive", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "archive")) }},
		{"archive root outside", "source.archive-root", report, edit(func(m map[string]any) { m["archive_root"] = "../archive" })},
		{"archive root absolute", "source.archive-root", report, edit(func(m map[string]any) { m["archive_root"] = "/srv/archive" })},
		{"archive root that is a file", "source.archive-root", yaml, edit(func(m map[string]any) { m["archive_root"] = yaml })},
		{"a file more", "source.file-extra", "archive/more.bin", func(dir string) error { return write(dir, "archive/more.bin", []byte("x")) }},
		{"a link out of the folder", "source.file-kind", graph + ".json", link(graph+".json", "/etc/hostname")},
		{"a link within", "source.file-kind", graph + ".json", link(graph+".json", "graph_0_FULL_t1_r1_UX_pcN.json")},
		{"a folder that is a link", "source.file-kind", "archive", link("archive", "..")},
		{"a configuration that is a link", "source.config-missing", yaml, link(yaml, "/etc/passwd")},
		{"a path out of the run", "source.file-path", report, edit(func(m map[string]any) { at(m, "files/0")["path"] = "../../etc/passwd" })},
		{"an absolute path", "source.file-path", report, edit(func(m map[string]any) { at(m, "files/0")["path"] = "/etc/passwd" })},
		{"a file listed twice", "source.file-path", report, edit(func(m map[string]any) { l := m["files"].([]any); m["files"] = append(l, l[0]) })},
		{"a size that is off", "source.file-changed", "archive/Qwen%2FQwen3-4B/catalog.json", edit(func(m map[string]any) { at(m, "files/0")["size"] = 1 })},
		{"a hash of a file that is off", "source.file-changed", "archive/Qwen%2FQwen3-4B/catalog.json", edit(func(m map[string]any) { at(m, "files/0")["sha256"] = strings.Repeat("a", 64) })},
		{"an inventory of other hashes", "source.inventory", "inventory.sha256", func(dir string) error {
			return write(dir, "inventory.sha256", []byte(strings.Repeat("0", 64)+"  "+yaml+"\n"))
		}},
		{"an inventory of other files", "source.inventory", "inventory.sha256", func(dir string) error {
			return write(dir, "inventory.sha256", []byte(strings.Repeat("0", 64)+"  other\n"))
		}},
		{"an inventory that is none", "source.inventory", "inventory.sha256", func(dir string) error { return write(dir, "inventory.sha256", []byte("hello\n")) }},
	}
}
