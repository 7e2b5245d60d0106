package foundry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"assay/internal/durable"
	"assay/internal/engines/aegaeon"
	"assay/pipeline"
	"assay/schemas"
)

// The files of a validated run, beside schemas.ValidatedConfig and its archives.
const (
	ReportFile    = "report.json"
	SaveConfig    = "multi-model-save.yaml"
	InventoryFile = "inventory.sha256"
	ArchiveFolder = "archive"
)

// ValidateKind returns the kind validate.
func ValidateKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "validate", Version: 1,
		Outputs: func(map[string]any) []string { return []string{schemas.ValidatedOutput} },
		Run:     runValidate,
	}
}

// seen is what the graphs stages left, by mode: where each output lies.
type seen struct {
	graphs  map[string]schemas.Graphs
	outputs map[string]map[string]string
}

func runValidate(ctx context.Context, task *pipeline.Task) error {
	s, err := gather(ctx, task)
	if err != nil {
		return err
	}
	written, config, err := s.configuration()
	if err != nil {
		return err
	}
	j := &judge{byMode: s.graphs, config: config, models: modelNames(config)}
	v := schemas.Validated{SchemaVersion: schemas.ValidatedV1, CreatedAt: time.Now().UTC().Truncate(time.Millisecond), ArchiveRoot: ArchiveFolder, LoadConfig: schemas.ValidatedConfig,
		Graph: layoutOf(config), Checks: Judge(s.graphs, config), SwitchSequence: j.switches()}
	v.Emulated = s.graphs[schemas.GraphsOff].Emulated || s.graphs[schemas.GraphsSave].Emulated || s.graphs[schemas.GraphsLoad].Emulated
	v.Models = j.validatedModels(checkpoints(ctx, task), v.Emulated)
	environment, missing := environmentOf(task.Facts, v.Emulated)
	v.Environment = environment
	v.Checks = append(v.Checks, schemas.ValidatedCheck{ID: "environment", OK: len(missing) == 0, Detail: firstText(strings.Join(missing, "; "), "what the archives are bound to is on record")})
	v.Passed = !slices.ContainsFunc(v.Checks, func(c schemas.ValidatedCheck) bool { return !c.OK })
	dir, err := task.OutputDir(schemas.ValidatedOutput)
	if err != nil {
		return err
	}
	if err := assemble(s, written, dir, &v); err != nil {
		return err
	}
	for _, c := range v.Checks {
		fmt.Fprintf(task.Log, "%-18s %-5t %s\n", c.ID, c.OK, c.Detail)
	}
	if !v.Passed {
		return failedChecks(v.Checks)
	}
	return nil
}

func failedChecks(checks []schemas.ValidatedCheck) error {
	var errs []error
	for _, c := range checks {
		if !c.OK {
			errs = append(errs, fmt.Errorf("%s: %s", c.ID, c.Detail))
		}
	}
	return errors.Join(errs...)
}

// gather reads the answers of the graphs stages before this one.
func gather(ctx context.Context, task *pipeline.Task) (seen, error) {
	s := seen{graphs: map[string]schemas.Graphs{}, outputs: map[string]map[string]string{}}
	places := map[string]map[string]string{} // by stage
	var stages []string
	for _, up := range task.Upstream {
		if up.Kind != "graphs" {
			continue
		}
		if places[up.Stage] == nil {
			places[up.Stage] = map[string]string{}
			stages = append(stages, up.Stage)
		}
		if places[up.Stage][up.Name] != "" {
			return s, fmt.Errorf("stage %s ran in several trials: a validated run is of one", up.Stage)
		}
		p, err := up.Path(ctx)
		if err != nil {
			return s, err
		}
		places[up.Stage][up.Name] = p
	}
	for _, stage := range stages {
		b, err := readPlain(fileIn(places[stage][OutputAnswers], AnswersFile), maxLogBytes)
		if err != nil {
			return s, fmt.Errorf("stage %s: %w", stage, err)
		}
		var g schemas.Graphs
		if err := schemas.Validate("graphs", bytes.TrimSpace(b)); err != nil {
			return s, fmt.Errorf("stage %s: %w", stage, err)
		}
		if err := json.Unmarshal(b, &g); err != nil {
			return s, fmt.Errorf("stage %s: %w", stage, err)
		}
		if _, twice := s.graphs[g.Mode]; twice {
			return s, fmt.Errorf("two graphs stages of mode %s: want one of each of off, save and load", g.Mode)
		}
		s.graphs[g.Mode], s.outputs[g.Mode] = g, places[stage]
	}
	if len(stages) == 0 {
		return s, errors.New("no stage of kind graphs is in needs: name one of each mode, off, save and load")
	}
	return s, nil
}

// fileIn is a file of an output, which is that file itself or the folder it lies in.
func fileIn(place, name string) string {
	if path.Base(filepath.ToSlash(place)) == name {
		return place
	}
	return filepath.Join(place, name)
}

// configuration is the one that all modes were started with.
func (s seen) configuration() ([]byte, aegaeon.Config, error) {
	var written []byte
	var from string
	for _, mode := range modes {
		if s.outputs[mode] == nil {
			continue
		}
		b, err := readPlain(fileIn(s.outputs[mode][OutputConfig], ConfigFile), maxConfigBytes)
		if err != nil {
			return nil, aegaeon.Config{}, err
		}
		if written != nil && !bytes.Equal(b, written) {
			return nil, aegaeon.Config{}, fmt.Errorf("modes %s and %s were started with different configurations: only the mode may differ", from, mode)
		}
		written, from = b, mode
	}
	config, err := aegaeon.ParseConfig(ConfigFile, written)
	return written, config, err
}

func layoutOf(c aegaeon.Config) schemas.ValidatedGraph {
	g := c.Server.CUDAGraph
	out := schemas.ValidatedGraph{BatchSizes: slices.Compact(slices.Sorted(slices.Values(g.BatchSizes))), BaseAddress: int64(g.BaseAddress), RegionSizeBytes: int64(g.RegionSizeBytes),
		ScratchSizeBytes: int64(g.ScratchSizeBytes), MemoryUtilization: c.Server.MemoryUtilization, Strict: g.Strict}
	if len(g.SeqLenBuckets) > 0 {
		out.SeqLenBucket = g.SeqLenBuckets[0]
	}
	return out
}

// checkpoints are the models with what is known of their weights: from the experiment,
// else from the machine file.
func checkpoints(ctx context.Context, task *pipeline.Task) []pipeline.ModelIdentity {
	known := slices.Clone(task.Models)
	for _, name := range slices.Sorted(maps.Keys(task.Checkpoints)) {
		if task.Fingerprint == nil || slices.ContainsFunc(known, func(m pipeline.ModelIdentity) bool { return m.Name == name && m.Fingerprint != "" }) {
			continue
		}
		m := pipeline.ModelIdentity{ID: name, Name: name, Level: schemas.FingerprintHeader}
		var err error
		if m.Fingerprint, err = task.Fingerprint(ctx, task.Checkpoints[name], m.Level); err != nil {
			fmt.Fprintf(task.Log, "weights of %s: %v\n", name, err)
			continue
		}
		known = append(known, m)
	}
	return known
}

func (j *judge) validatedModels(known []pipeline.ModelIdentity, isEmulated bool) []schemas.ValidatedModel {
	var out []schemas.ValidatedModel
	for _, m := range j.config.Models {
		v := schemas.ValidatedModel{Name: m.Name, Path: m.Path, WeightsFingerprint: "unknown", Ranks: 1}
		if n := j.config.Server.NumDecodeEngines; n != nil {
			v.Ranks = j.config.Server.Nodes * *n
		}
		if isEmulated {
			v.WeightsFingerprint = "emulated"
		}
		for _, k := range known {
			if k.Name == m.Name && k.Fingerprint != "" {
				v.WeightsFingerprint = string(k.Fingerprint) + " " + k.Level
			}
		}
		v.GraphsCaptured = j.byMode[schemas.GraphsSave].Marker(MarkerCaptured).ByModel[m.Name].Graphs
		if v.GraphsCaptured == 0 && told(j.byMode[schemas.GraphsSave], MarkerCaptured, m.Name, len(j.models)) {
			v.GraphsCaptured = len(layoutOf(j.config).BatchSizes)
		}
		v.TokenIDsEqual.OffSave, v.TokenIDsEqual.OffLoad = j.equal(schemas.GraphsSave, m.Name), j.equal(schemas.GraphsLoad, m.Name)
		v.ReplaySeen = told(j.byMode[schemas.GraphsLoad], MarkerReplay, m.Name, len(j.models))
		out = append(out, v)
	}
	return out
}

// environmentOf is what archives are bound to, from the facts of the machine; on the
// emulated engine it is made up, like everything else.
func environmentOf(facts map[string]string, isEmulated bool) (env schemas.ValidatedEnvironment, missing []string) {
	get := func(name string) string {
		switch v := facts[name]; {
		case isEmulated:
			return "emulated"
		case v == "":
			missing = append(missing, "the machine file does not say "+name+" under [facts]")
			return ""
		default:
			return v
		}
	}
	env = schemas.ValidatedEnvironment{AegaeonRevision: get("aegaeon_revision"), FoundryRevision: get("foundry_revision"), Torch: get("torch"), VLLM: get("vllm"), CUDA: get("cuda"),
		Driver: get("driver"), GPUName: get("gpu_name"), ComputeCapability: get("compute_capability"), HookSHA256: get("hook_sha256")}
	if isEmulated {
		return env, nil
	}
	if text := get("gpu_memory_bytes"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			missing = append(missing, fmt.Sprintf("the machine file says gpu_memory_bytes = %q under [facts]: want a number of bytes", text))
		}
		env.GPUMemoryBytes = n
	}
	return env, missing
}

// assemble writes the folder: everything else first, then the inventory and the report
// of it.
func assemble(s seen, written []byte, dir string, v *schemas.Validated) error {
	for name, c := range map[string]aegaeon.Changes{schemas.ValidatedConfig: {Mode: schemas.GraphsLoad, ArchiveDir: ArchiveFolder}, SaveConfig: {Mode: schemas.GraphsSave, ArchiveDir: ArchiveFolder}} {
		b, _, err := aegaeon.Render(name, written, c)
		if err != nil {
			return err
		}
		if err := writeIn(dir, name, b); err != nil {
			return err
		}
		if name == schemas.ValidatedConfig {
			v.LoadConfigSHA256 = schemas.DigestOf(b).Hex()
		}
	}
	for _, mode := range modes {
		out := s.outputs[mode]
		if out == nil {
			continue
		}
		for from, to := range map[string]string{fileIn(out[OutputLog], LogFile): "logs/" + mode + ".log", fileIn(out[OutputAnswers], AnswersFile): "answers/" + mode + ".json"} {
			b, err := readPlain(from, maxLogBytes)
			if err != nil {
				return err
			}
			if err := writeIn(dir, to, b); err != nil {
				return err
			}
		}
	}
	archives := filepath.Join(dir, ArchiveFolder)
	if err := durable.MkdirAll(archives); err != nil {
		return &pipeline.InfraError{Op: "make the folder of archives", Err: err}
	}
	if from := s.outputs[schemas.GraphsSave][OutputArchive]; from != "" {
		if err := copyFolder(from, archives); err != nil {
			return err
		}
	}
	return closeInventory(dir, v)
}

func writeIn(dir, name string, b []byte) error {
	to := filepath.Join(dir, filepath.FromSlash(name))
	if err := durable.MkdirAll(filepath.Dir(to)); err != nil {
		return &pipeline.InfraError{Op: "write " + name, Err: err}
	}
	if err := durable.WriteFile(to, b, 0o644); err != nil {
		return &pipeline.InfraError{Op: "write " + name, Err: err}
	}
	return nil
}

// closeInventory lists every file, in the report and for sha256sum, and writes the report.
func closeInventory(dir string, v *schemas.Validated) error {
	var sums strings.Builder
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := hashFile(filepath.Join(dir, filepath.FromSlash(p)))
		if err != nil {
			return err
		}
		f.Path = p
		v.Files = append(v.Files, f)
		fmt.Fprintf(&sums, "%s  %s\n", f.SHA256, p)
		return nil
	})
	if err != nil {
		return fmt.Errorf("inventory: %w", err)
	}
	if err := writeIn(dir, InventoryFile, []byte(sums.String())); err != nil {
		return err
	}
	b, err := schemas.Encode(*v)
	if err != nil {
		return err
	}
	if err := schemas.Validate("validated", b); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return err
	}
	return writeIn(dir, ReportFile, append(out.Bytes(), '\n'))
}

func hashFile(p string) (schemas.ValidatedFile, error) {
	f, err := durable.OpenPlain(p)
	if err != nil {
		return schemas.ValidatedFile{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return schemas.ValidatedFile{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}
