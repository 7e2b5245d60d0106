package pipeline

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"assay/schemas"
)

// resolver replaces every ${...} of a configuration for one execution.
type resolver struct {
	*runner
	node    schemas.Node
	params  map[string]any
	views   map[string]ServiceView // services that the node uses, by name
	copies  *copies
	dryURLs bool
	secrets bool // whether secrets may be had; they never are for what enters a key
	// used collects the path parameters that were resolved: name -> absolute path.
	used map[string]string
}

func (v *resolver) lookup(ctx context.Context) func(schemas.Reference) (any, error) {
	return func(ref schemas.Reference) (any, error) {
		switch ref.Namespace {
		case schemas.RefParam:
			return v.param(ref.Names[0])
		case schemas.RefStage:
			return v.upstreamPath(ctx, ref.Names[0], ref.Names[1])
		case schemas.RefSource:
			if v.SourceDir == "" {
				return nil, fmt.Errorf("needs a source run: name one with --source-run")
			}
			return v.sourcePath(ref.Names[0]), nil
		case schemas.RefService:
			return v.serviceURL(ref.Names[0])
		case schemas.RefMachine:
			s, ok := v.Machine.Values[ref.Names[0]]
			if !ok {
				return nil, fmt.Errorf("the machine file has no value %q: add it under [values]", ref.Names[0])
			}
			return s, nil
		case schemas.RefSecret:
			if !v.secrets {
				return ref.Text, nil
			}
			return v.secret(ref.Names[0])
		}
		return nil, fmt.Errorf("unknown reference")
	}
}

// sourcePath is where a path of the source run lies.
func (r *runner) sourcePath(name string) string {
	if p, ok := r.SourcePaths[name]; ok {
		return p
	}
	return filepath.Join(r.SourceDir, filepath.FromSlash(name))
}

// sourcePaths are the paths of the source run that a configuration refers to.
func sourcePaths(config map[string]any) []string {
	var out []string
	for _, ref := range schemas.References(config) {
		if ref.Namespace == schemas.RefSource && !slices.Contains(out, ref.Names[0]) {
			out = append(out, ref.Names[0])
		}
	}
	return out
}

func (v *resolver) secret(name string) (string, error) {
	if v.Machine.Secret == nil {
		return "", fmt.Errorf("no machine file says where secret %q comes from", name)
	}
	s, err := v.Machine.Secret(name)
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seenSecrets == nil {
		v.seenSecrets = map[string]string{}
	}
	if s != "" && v.seenSecrets[name] != s {
		v.seenSecrets[name], v.redactor = s, nil
	}
	return s, nil
}

func (v *resolver) param(name string) (any, error) {
	x, ok := v.params[name]
	if !ok {
		return nil, fmt.Errorf("no parameter %q", name)
	}
	written, ok := schemas.ParamPath(x)
	if !ok {
		return x, nil
	}
	abs := v.absParam(name, written)
	if v.used != nil {
		v.used[name] = abs
	}
	return abs, nil
}

// absParam gives the place of a path parameter: where the loader says, when the
// trial's value is the file's own, else relative to the experiment's folder.
func (r *runner) absParam(name, written string) string {
	if own, _ := schemas.ParamPath(r.Experiment.Params[name]); own == written {
		if p, ok := r.ParamPaths[name]; ok {
			return p
		}
	}
	return r.abs(written)
}

func (r *runner) abs(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(r.BaseDir, filepath.FromSlash(path))
}

func (v *resolver) serviceURL(service string) (string, error) {
	if v.dry || v.dryURLs {
		return "http://127.0.0.1", nil
	}
	if view, ok := v.views[service]; ok {
		return view.URL, nil
	}
	return "", fmt.Errorf("service %q is not up", service)
}

// resolveEarly resolves text that some stage or service holds, with what is known
// before anything runs. Secrets stay as written: a check has no use for them.
func (r *runner) resolveEarly(text string, trial schemas.Trial) (string, error) {
	segments, err := schemas.ParseTemplate(text)
	if err != nil {
		return "", err
	}
	for _, g := range segments {
		if g.Ref == nil {
			continue
		}
		switch g.Ref.Namespace {
		case schemas.RefStage, schemas.RefService:
			return "", fmt.Errorf("%s: %w", g.Ref.Text, ErrNotYet)
		case schemas.RefSource:
			if r.SourceDir == "" {
				return "", fmt.Errorf("%s: %w: no source run was named", g.Ref.Text, ErrNotYet)
			}
		}
	}
	v := &resolver{runner: r, params: trialParams(r.Experiment, trial.Point)}
	return v.text(context.Background(), text)
}

func (v *resolver) text(ctx context.Context, s string) (string, error) {
	out, err := schemas.Substitute([]string{s}, v.lookup(ctx))
	if err != nil {
		return "", err
	}
	return out.([]string)[0], nil
}

// fields resolves a configuration: references replaced, defaults filled in, paths
// made absolute, types checked again now that every value is known.
func (v *resolver) fields(ctx context.Context, fields []schemas.Field, config map[string]any) (map[string]any, error) {
	if config == nil {
		config = map[string]any{}
	}
	m := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(config)) {
		x, err := schemas.SubstituteField(fieldOf(fields, name), config[name], v.lookup(ctx))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		m[name] = x
	}
	m = schemas.ApplyDefaults(fields, m)
	for _, f := range fields {
		x, ok := m[f.Name]
		if !ok {
			continue
		}
		if err := schemas.CheckValue(f, x); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		switch f.Type {
		case schemas.TypePath:
			m[f.Name] = v.abs(x.(string))
		case schemas.TypePathMap:
			pm := x.(map[string]any)
			for name, p := range pm {
				pm[name] = v.abs(p.(string))
			}
		}
	}
	return m, nil
}

func fieldOf(fields []schemas.Field, name string) schemas.Field {
	for _, f := range fields {
		if f.Name == name {
			return f
		}
	}
	return schemas.Field{Name: name}
}

// upstreamNodes lists the nodes of a stage that this node needs, in plan order.
func (v *resolver) upstreamNodes(stage string) []schemas.Node {
	var list []schemas.Node
	for _, id := range v.node.Needs {
		if n := v.nodes[id]; n.Stage == stage {
			list = append(list, n)
		}
	}
	return list
}

// upstreamPath is where an output will lie for this reader.
func (v *resolver) upstreamPath(ctx context.Context, stage, output string) (string, error) {
	nodes := v.upstreamNodes(stage)
	if v.dry {
		return filepath.Join(v.copies.dir, stage, output), nil // where it would lie; it enters no key
	}
	if v.node.Scope == schemas.ScopeRun && v.Experiment.Stage[stage].Scope == schemas.ScopeTrial {
		return v.fanIn(ctx, nodes, stage, output)
	}
	if len(nodes) != 1 {
		return "", fmt.Errorf("stage %s has no result for this trial", stage)
	}
	return v.outputPath(nodes[0], output)
}

func (v *resolver) outputPath(n schemas.Node, output string) (string, error) {
	rec := v.recordOf(n.ID)
	for _, o := range rec.Outputs {
		if o.Name == output {
			return v.copies.want(rec.Tree, o.Path), nil
		}
	}
	return "", fmt.Errorf("stage %s has no output %q; it has %s", n.Stage, output, outputNames(rec))
}

// fanIn is a folder with the outputs of all trials: an entry named after each
// trial, and trials.json that says which is which, in plan order.
func (v *resolver) fanIn(ctx context.Context, nodes []schemas.Node, stage, output string) (string, error) {
	var list []fanEntry
	for _, n := range nodes {
		path, err := v.outputPath(n, output)
		if err != nil {
			return "", err
		}
		for _, id := range n.Trials {
			t := v.trials[id]
			point, err := v.pointByContent(ctx, t)
			if err != nil {
				return "", err
			}
			list = append(list, fanEntry{Trial: id, Point: point, Repetition: t.Repetition, position: t.Position, target: path})
		}
	}
	slices.SortFunc(list, func(a, b fanEntry) int { return a.position - b.position })
	return v.copies.fan(stage+"."+output, list), nil
}

func outputNames(rec schemas.StageRecord) string {
	names := make([]string, 0, len(rec.Outputs))
	for _, o := range rec.Outputs {
		names = append(names, o.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func sortStrings(s []string) { sort.Strings(s) }
