package source

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"assay/preflight"
	"assay/preflight/source/sourcetest"
	"assay/schemas"
)

func check(t *testing.T, dir string) Result {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r, err := Check(context.Background(), root.FS(), "it")
	if err != nil {
		t.Fatal(err)
	}
	inCatalog(t, r.Findings)
	return r
}

func inCatalog(t *testing.T, findings []schemas.Finding) {
	t.Helper()
	for _, f := range findings {
		if !slices.ContainsFunc(Catalog(), func(e preflight.Entry) bool { return e.ID == f.ID }) {
			t.Errorf("%s is in no catalog", f.ID)
		}
		if f.Severity != schemas.SeverityPass && f.Remedy == "" {
			t.Errorf("%s: %s: no remedy", f.ID, f.Message)
		}
	}
}

func TestIntactRuns(t *testing.T) {
	for name, build := range map[string]func(string) error{"other": sourcetest.Build, "own": sourcetest.BuildOwn} {
		dir := t.TempDir()
		if err := build(dir); err != nil {
			t.Fatal(err)
		}
		r := check(t, dir)
		if !r.OK() || len(r.Findings) == 0 || len(r.Report.Models) != 3 || len(r.Config.Models) != 3 {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

// TestOtherForms are reports that say the same in other ways.
func TestOtherForms(t *testing.T) {
	whole := t.TempDir()
	if err := sourcetest.Build(whole); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(m map[string]any){
		"a number as version":       func(m map[string]any) { m["schema_version"] = 3 },
		"ranks as a list":           func(m map[string]any) { m["models"].([]any)[0].(map[string]any)["ranks"] = []any{0} },
		"an address in hexadecimal": func(m map[string]any) { m["graph"].(map[string]any)["base_address"] = "0x4000_0000_0000" },
		"a configuration in one": func(m map[string]any) {
			m["load_config"] = map[string]any{"path": m["load_config"], "sha256": "sha256:" + strings.ToUpper(m["load_config_sha256"].(string))}
			delete(m, "load_config_sha256")
		},
		"more fields":                func(m map[string]any) { m["notes"] = []any{map[string]any{"a": nil}} },
		"a number as capability":     func(m map[string]any) { m["environment"].(map[string]any)["compute_capability"] = 8.5 },
		"a time with an offset":      func(m map[string]any) { m["created_at"] = "2026-01-02T03:04:05.123+02:00" },
		"checks without details":     func(m map[string]any) { delete(m["checks"].([]any)[0].(map[string]any), "detail") },
		"models without a path":      func(m map[string]any) { delete(m["models"].([]any)[0].(map[string]any), "path") },
		"more graphs than one batch": func(m map[string]any) { m["models"].([]any)[0].(map[string]any)["graphs_captured"] = 8 },
	} {
		dir := filepath.Join(t.TempDir(), "run")
		if err := sourcetest.Copy(whole, dir); err != nil {
			t.Fatal(err)
		}
		if err := sourcetest.EditReport(dir, edit); err != nil {
			t.Fatal(err)
		}
		if r := check(t, dir); !r.OK() {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

// TestAbsoluteArchiveOfAnotherMachine is what a run of a tool that writes such paths has.
func TestAbsoluteArchiveOfAnotherMachine(t *testing.T) {
	dir := t.TempDir()
	if err := sourcetest.Build(dir); err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(dir, schemas.ValidatedConfig)
	if err := os.WriteFile(p, []byte(strings.Replace(sourcetest.Config, "'archive'", "'/srv/runs/7/archive'", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sourcetest.Reseal(dir); err != nil {
		t.Fatal(err)
	}
	if r := check(t, dir); !r.OK() {
		t.Errorf("%+v", r.Findings)
	}
}

func TestCorruptions(t *testing.T) {
	all := sourcetest.Corruptions()
	if len(all) < 40 {
		t.Errorf("%d corruptions", len(all))
	}
	whole := t.TempDir()
	if err := sourcetest.Build(whole); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			if err := sourcetest.Copy(whole, dir); err != nil {
				t.Fatal(err)
			}
			if err := c.Spoil(dir); err != nil {
				t.Fatal(err)
			}
			r := check(t, dir)
			if !slices.ContainsFunc(r.Findings, func(f schemas.Finding) bool {
				return f.ID == c.ID && f.Severity == schemas.SeverityError && strings.Contains(f.Message, c.File)
			}) {
				t.Errorf("want %s of %s: %+v", c.ID, c.File, r.Findings)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	real := func(edit func(r *schemas.Validated, t *Target)) (schemas.Validated, Target) {
		r := sourcetest.Report("1")
		r.Emulated = false
		r.Environment = schemas.ValidatedEnvironment{AegaeonRevision: "a", FoundryRevision: "f", Torch: "2.11.0", VLLM: "0.26.0", CUDA: "12.9", Driver: "535", GPUName: "A100", ComputeCapability: "8.0", GPUMemoryBytes: 40 << 30, HookSHA256: strings.Repeat("a", 64)}
		t := Target{Facts: map[string]string{"aegaeon_revision": "a", "foundry_revision": "f", "torch": "2.11.0", "vllm": "0.26.0", "cuda": "12.9", "driver": "535", "gpu_name": "A100", "compute_capability": "8.0", "gpu_memory_bytes": "42949672960", "hook_sha256": "sha256:" + strings.Repeat("A", 64)},
			Fingerprints: map[string]string{}, Models: sourcetest.Models[:1], Sequence: 2048, Batch: 8}
		for i := range r.Models {
			r.Models[i].WeightsFingerprint = string(schemas.DigestOf([]byte{byte(i)})) + " header"
			t.Fingerprints[r.Models[i].Name] = r.Models[i].WeightsFingerprint
		}
		if edit != nil {
			edit(&r, &t)
		}
		return r, t
	}
	tests := []struct {
		name, want string // ID severity, "" for passes alone
		edit       func(r *schemas.Validated, t *Target)
	}{
		{"the same", "", nil},
		{"another model", "source.model-absent error", func(_ *schemas.Validated, t *Target) { t.Models = []string{"other"} }},
		{"longer sequences", "source.shape error", func(_ *schemas.Validated, t *Target) { t.Sequence = 2049 }},
		{"larger batches", "source.batch warning", func(_ *schemas.Validated, t *Target) { t.Batch = 9 }},
		{"another driver", "source.environment error", func(_ *schemas.Validated, t *Target) { t.Facts["driver"] = "580" }},
		{"an unknown driver", "source.environment unknown", func(_ *schemas.Validated, t *Target) { delete(t.Facts, "driver") }},
		{"on the emulated engine", "source.environment error", func(_ *schemas.Validated, t *Target) { t.Emulated = true }},
		{"other weights", "source.weights error", func(_ *schemas.Validated, t *Target) {
			t.Fingerprints[sourcetest.Models[1]] = string(schemas.DigestOf([]byte("x"))) + " header"
		}},
		{"weights by another scheme", "source.weights unknown", func(r *schemas.Validated, _ *Target) { r.Models[2].WeightsFingerprint = "rev 7" }},
		{"unknown weights", "source.weights unknown", func(_ *schemas.Validated, t *Target) { t.Fingerprints = nil }},
		{"a small device", "source.memory error", func(_ *schemas.Validated, t *Target) { t.Facts["gpu_memory_bytes"] = "4294967296" }},
		{"an unknown device", "source.memory unknown", func(_ *schemas.Validated, t *Target) { t.Facts["gpu_memory_bytes"] = "" }},
	}
	for _, tt := range tests {
		r, target := real(tt.edit)
		var got []string
		list := Compare(r, "it", target)
		inCatalog(t, list)
		for _, f := range list {
			if f.Severity != schemas.SeverityPass {
				got = append(got, f.ID+" "+string(f.Severity))
			}
		}
		if tt.want == "" && len(got) > 0 || tt.want != "" && !slices.Contains(got, tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	dir := f.TempDir()
	if err := sourcetest.Build(dir); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, ReportFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"passed":true,"graph":{"batch_sizes":[1e9,"0x10"]},"load_config":{"path":1},"models":[{"ranks":[]}]}`))
	f.Add([]byte(`{"a":[{"b":{}},[]],"b":{"a":1,"a":2}}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, problems := parse(b)
		if len(problems) > 0 {
			return
		}
		if v.SchemaVersion == "" || v.ArchiveRoot == "" || v.LoadConfig == "" || len(v.LoadConfigSHA256) != 64 {
			t.Errorf("nothing is wrong with %q: %+v", b, v)
		}
	})
}
