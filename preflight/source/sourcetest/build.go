// Package sourcetest makes validated runs, whole and spoilt, for tests.
package sourcetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"assay/internal/engines/emulated/foundry"
	"assay/schemas"
)

// Models are those of the run.
var Models = []string{"Qwen/Qwen3-4B", "Qwen/Qwen3.5-9B", "google/gemma-3-4b-it"}

const (
	bucket  = 2048
	base    = 0x400000000000
	region  = 256 << 30
	scratch = 4 << 30
)

var sizes = []int{1, 2, 4, 8}

// Config is the run's configuration.
const Config = `server:
  num_prefill_engines: 1
  num_decode_engines: 1
  cpu_num_slabs: 8
  model_cache_size_gb: 48
  cuda_graph:
    mode: 'load'
    archive_dir: 'archive'
    batch_sizes: [1, 2, 4, 8]
    seq_len_buckets: [2048]
    base_address: 0x400000000000
    region_size_bytes: 274877906944
    scratch_size_bytes: 4294967296
  startup_models: [Qwen/Qwen3-4B, Qwen/Qwen3.5-9B, google/gemma-3-4b-it]
models:
  - name: Qwen/Qwen3-4B
    path: /models/Qwen3-4B
    max_model_len: 2048
  - name: Qwen/Qwen3.5-9B
    path: /models/Qwen3.5-9B
    max_model_len: 2048
  - name: google/gemma-3-4b-it
    path: /models/gemma-3-4b-it
    max_model_len: 2048
`

// Report is a report of the run, without its files. It is of another tool when tool
// is not that of assay.
func Report(tool string) schemas.Validated {
	v := schemas.Validated{SchemaVersion: tool, Passed: true, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Emulated: true, ArchiveRoot: "archive", LoadConfig: schemas.ValidatedConfig,
		Environment: schemas.ValidatedEnvironment{AegaeonRevision: "emulated", FoundryRevision: "emulated", Torch: "emulated", VLLM: "emulated", CUDA: "emulated", Driver: "emulated", GPUName: "emulated", ComputeCapability: "emulated", HookSHA256: "emulated"},
		Graph:       schemas.ValidatedGraph{BatchSizes: sizes, SeqLenBucket: bucket, BaseAddress: base, RegionSizeBytes: region, ScratchSizeBytes: scratch, MemoryUtilization: 0.775, Strict: true},
		Checks:      []schemas.ValidatedCheck{{ID: "token-ids-equal", OK: true, Detail: "all"}, {ID: "load-markers", OK: true, Detail: "loaded and replay"}}}
	for i, m := range Models {
		vm := schemas.ValidatedModel{Name: m, Path: "/models/" + m, WeightsFingerprint: "emulated", Ranks: 1, GraphsCaptured: len(sizes), ReplaySeen: true}
		vm.TokenIDsEqual.OffSave, vm.TokenIDsEqual.OffLoad = true, true
		v.Models = append(v.Models, vm)
		for j, to := range Models {
			if i != j {
				v.SwitchSequence = append(v.SwitchSequence, schemas.ValidatedSwitch{From: m, To: to, OK: true})
			}
		}
	}
	return v
}

// Build writes a validated run of another tool.
func Build(dir string) error { return build(dir, Report("1")) }

// BuildOwn writes one as assay makes it.
func BuildOwn(dir string) error { return build(dir, Report(schemas.ValidatedV1)) }

func build(dir string, report schemas.Validated) error {
	for i, m := range Models {
		spec := foundry.Spec{Model: m, Binding: Binding(i), BatchSizes: sizes, SeqLenBucket: bucket, BaseAddress: base, RegionSizeBytes: region, ScratchSizeBytes: scratch}
		if _, err := foundry.Save(filepath.Join(dir, "archive"), spec); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{schemas.ValidatedConfig: Config, "logs/load.log": "loaded 4 Foundry decode graph shapes\nFoundry decode replay active\n"} {
		if err := write(dir, name, []byte(text)); err != nil {
			return err
		}
	}
	b, err := json.Marshal(report)
	if err != nil {
		return err
	}
	if err := write(dir, "report.json", b); err != nil {
		return err
	}
	return Reseal(dir)
}

// Copy writes a copy of a run that was built before: building syncs every file.
func Copy(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }

// Binding names the weights of the model of that place.
func Binding(i int) string {
	sum := sha256.Sum256([]byte{byte(i)})
	return hex.EncodeToString(sum[:])
}

func write(dir, name string, b []byte) error {
	p := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	return os.WriteFile(p, b, 0o644)
}

// Reseal makes the report and inventory.sha256 say what the files are: somebody who
// changes a file can do that too.
func Reseal(dir string) error {
	files, sums := []any{}, ""
	config := ""
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || p == "report.json" || p == "inventory.sha256" {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(p)))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		hash := hex.EncodeToString(sum[:])
		if p == schemas.ValidatedConfig {
			config = hash
		}
		files = append(files, map[string]any{"path": p, "size": len(b), "sha256": hash})
		sums += hash + "  " + p + "\n"
		return nil
	})
	if err != nil {
		return err
	}
	if err := write(dir, "inventory.sha256", []byte(sums)); err != nil {
		return err
	}
	return EditReport(dir, func(m map[string]any) { m["files"], m["load_config_sha256"] = files, config })
}

// EditReport changes the report in place.
func EditReport(dir string, edit func(m map[string]any)) error {
	p := filepath.Join(dir, "report.json")
	b, err := os.ReadFile(p)
	if err != nil {
		return err
	}
	var m map[string]any
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	edit(m)
	if b, err = json.MarshalIndent(m, "", " "); err != nil {
		return err
	}
	return os.WriteFile(p, b, 0o644)
}
