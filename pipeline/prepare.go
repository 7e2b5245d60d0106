package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"assay/schemas"
)

// prepare resolves the configuration, hashes every input and writes down the
// preimage of the key. It has no effect but reading.
func (e *execution) prepare(ctx context.Context) error {
	res := e.resolver(false)
	res.used = map[string]string{}
	fields, _ := schemas.FieldsOf(e.def.Kind)
	config, err := res.fields(ctx, fields, e.def.Config)
	if err != nil {
		return err
	}
	e.config = config
	e.models = e.identifyModels(ctx, e.params)
	literal, err := literalPaths(e.def.Kind, e.def.Config, config)
	if err != nil {
		return err
	}
	e.pre = schemas.Preimage{
		Schema: schemas.KeyV1, Kind: e.kind.Name, KindVersion: e.kind.Version, Scope: e.node.Scope, Definition: keyedDefinition(e.def), Params: schemas.ReferredParams(e.def.Config, e.params),
		Upstream: map[string]string{}, Inputs: map[string]string{}, Env: map[string]string{}, Tools: map[string]string{}, Models: map[string]string{},
		Platform: schemas.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}, Seed: stageSeed(e.Experiment, e.kind, config, e.trialPtr()),
	}
	e.record.Seed = e.pre.Seed
	e.addService(res)
	if err := e.addParams(ctx, res.used); err != nil {
		return err
	}
	if err := e.addInputs(ctx, literal); err != nil {
		return err
	}
	if err := e.addTools(ctx); err != nil {
		return err
	}
	if err := e.addUpstream(ctx); err != nil {
		return err
	}
	return e.addSources(ctx)
}

// resolver resolves what this execution's configuration refers to.
func (e *execution) resolver(secrets bool) *resolver {
	return &resolver{runner: e.runner, node: e.node, params: e.params, views: e.views, copies: e.copies, secrets: secrets, dryURLs: e.dryURLs}
}

// checks says whether the stage looks at paths itself: what is missing is then a
// finding of it, not an error before it.
func (e *execution) checks() bool { return e.kind.Early && !e.kind.Measured }

func (e *execution) trialPtr() *schemas.Trial {
	if e.node.Trial == "" {
		return nil
	}
	return &e.trial
}

// addInput hashes one input. Within a run a path has one content: a later stage
// that finds another cannot be compared with an earlier one.
func (e *execution) addInput(ctx context.Context, name, origin, path string) (*input, error) {
	in, err := hashInput(ctx, name, origin, path, e.inputCache())
	if err != nil {
		return nil, err
	}
	e.inputs = append(e.inputs, in)
	e.record.Inputs = append(e.record.Inputs, in.Input)
	e.paths[name] = path
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, ok := e.seenInputs[path]; ok && before != in.identity() {
		return nil, &TaintedError{Inputs: []string{name + " (since an earlier stage of this run read it)"}}
	}
	e.seenInputs[path] = in.identity()
	return in, nil
}

// addParams puts path parameters into the key by their content.
func (e *execution) addParams(ctx context.Context, used map[string]string) error {
	for _, name := range sortedNames(used) {
		in, err := e.addInput(ctx, "param."+name, "file", used[name])
		switch {
		case err == nil:
			e.pre.Params[name] = in.identity()
		case e.checks() && ctx.Err() == nil:
			e.pre.Params[name] = "unreadable" // the check says so; nothing is ever reused by this key
		default:
			return err
		}
	}
	return nil
}

func (e *execution) addInputs(ctx context.Context, literal map[string]string) error {
	if e.checks() {
		return nil // checks look at paths themselves: a missing one is a finding, not an error
	}
	for _, name := range sortedNames(literal) {
		in, err := e.addInput(ctx, name, "file", e.abs(literal[name]))
		if err != nil {
			return err
		}
		e.pre.Inputs[name] = in.identity()
	}
	return nil
}

// addTools puts programs into the key by their content, each by its place in the
// list: two may have one base name. One that is a stage's output is in the key by
// that already.
func (e *execution) addTools(ctx context.Context) error {
	var req Requirements
	if e.kind.Requires != nil {
		req = e.kind.Requires(e.config)
	}
	e.passed = map[string]string{}
	for _, name := range req.PassEnv {
		if v, ok := os.LookupEnv(name); ok {
			e.passed[name], e.pre.Env[name] = v, v
		}
	}
	for i, tool := range req.Tools {
		if e.copies.holds(tool) {
			continue
		}
		path, err := e.findTool(ctx, tool)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("tool.%d.%s", i, filepath.Base(tool))
		in, err := e.addInput(ctx, name, "tool", path)
		if err != nil {
			return err
		}
		e.pre.Tools[name] = in.identity()
	}
	return nil
}

// findTool looks a program up as the child will: in the PATH that the stage sets,
// or passes on.
func (e *execution) findTool(ctx context.Context, tool string) (string, error) {
	if strings.ContainsRune(tool, filepath.Separator) {
		return e.abs(tool), nil
	}
	path := os.Getenv("PATH")
	if own, ok := stringMap(e.def.Config["env"])["PATH"]; ok {
		var err error
		if path, err = e.resolver(false).text(ctx, own); err != nil {
			return "", fmt.Errorf("env PATH: %w", err)
		}
	}
	for _, dir := range filepath.SplitList(path) {
		p := filepath.Join(dir, tool)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return filepath.Abs(p)
		}
	}
	return "", fmt.Errorf("program %s: not found in PATH; install it or name it by path", tool)
}

// isGate says whether a stage only lets this one begin: findings of a check are no
// input, unless it names them.
func (r *runner) isGate(n, need schemas.Node) bool {
	if !r.kinds[need.Kind].Early {
		return false
	}
	for _, ref := range schemas.References(r.Experiment.Stage[n.Stage].Config) {
		if ref.Namespace == schemas.RefStage && ref.Names[0] == need.Stage {
			return false
		}
	}
	return true
}

// addUpstream puts the digests of everything the stage needs into the key, by
// logical name: upstream outputs, not upstream keys.
func (e *execution) addUpstream(ctx context.Context) error {
	for _, id := range e.node.Needs {
		n, rec := e.nodes[id], e.recordOf(id)
		if e.isGate(e.node, n) {
			continue
		}
		labels := []string{""}
		if e.node.Scope == schemas.ScopeRun && n.Scope == schemas.ScopeTrial {
			labels = nil
			for _, id := range n.Trials {
				label, err := e.label(ctx, e.trials[id])
				if err != nil {
					return err
				}
				labels = append(labels, "@"+id+","+label) // which trial is called what is seen too
			}
		}
		for _, o := range rec.Outputs {
			for _, label := range labels {
				name := n.Stage + "/" + o.Name + label
				e.pre.Upstream[name] = string(o.Digest)
				e.record.Inputs = append(e.record.Inputs, schemas.Input{Name: name, Origin: "stage", Digest: o.Digest, Bytes: o.Bytes, Files: o.Files})
			}
		}
	}
	return nil
}

// pointByContent is a trial's point with every path in it replaced by the identity
// of its content.
func (r *runner) pointByContent(ctx context.Context, t schemas.Trial) (map[string]any, error) {
	params, point := trialParams(r.Experiment, t.Point), map[string]any{}
	for name := range t.Point {
		point[name] = params[name]
		written, ok := schemas.ParamPath(params[name])
		if !ok {
			continue
		}
		in, err := hashInput(ctx, "param."+name, "file", r.absParam(name, written), r.inputCache())
		if err != nil {
			return nil, err
		}
		point[name] = in.identity()
	}
	return point, nil
}

// label names a trial in a key.
func (r *runner) label(ctx context.Context, t schemas.Trial) (string, error) {
	point, err := r.pointByContent(ctx, t)
	if err != nil {
		return "", err
	}
	t.Point = point
	return trialLabel(t), nil
}

// addService puts the service into the key as far as it is written down. Stages
// that use one are never reused: a key cannot hold all that a service is.
func (e *execution) addService(res *resolver) {
	svc, ok := e.Experiment.Service[e.def.Service]
	if !ok {
		return
	}
	e.pre.Service = serviceDefinition(svc)
	for k, v := range schemas.ReferredParams(svc.Config, e.params) {
		e.pre.Params[k] = v
		if written, ok := schemas.ParamPath(v); ok {
			res.used[k] = e.absParam(k, written)
		}
	}
	for _, m := range e.models {
		e.pre.Models[m.ID] = m.Name + " " + firstText(string(m.Fingerprint), "unknown")
	}
}

// sourceArchive is how the archives of a source run stand among a stage's inputs.
const sourceArchive = "(archives)"

// addSources puts what the stage and its service read of the source run into the key
// by its content. A service that is started with a file of it reads its archives too.
func (e *execution) addSources(ctx context.Context) error {
	names := sourcePaths(e.def.Config)
	places := map[string]string{}
	if ofService := sourcePaths(e.Experiment.Service[e.def.Service].Config); len(ofService) > 0 {
		names = append(names, ofService...)
		if e.SourceArchive != "" {
			names, places[sourceArchive] = append(names, sourceArchive), e.SourceArchive
		}
	}
	for _, name := range names {
		if e.SourceDir == "" || e.pre.Sources[name] != "" {
			continue
		}
		place := places[name]
		if place == "" {
			place = e.sourcePath(name)
		}
		in, err := e.addInput(ctx, "source."+name, "source", place)
		if err != nil {
			return err
		}
		if e.pre.Sources == nil {
			e.pre.Sources = map[string]string{}
		}
		e.pre.Sources[name] = string(in.Digest)
	}
	return nil
}

// changedInputs names the inputs that are no longer what was hashed.
func (e *execution) changedInputs(ctx context.Context) []string {
	var names []string
	for _, in := range e.inputs {
		if in.changed(context.WithoutCancel(ctx)) {
			names = append(names, in.Name)
		}
	}
	slices.Sort(names)
	return names
}

// passedThrough are the variables every child sees: where programs and the home
// folder are. They change no result, and stand in no key.
var passedThrough = []string{"PATH", "HOME", "USER", "LOGNAME", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// environment is what a child of this stage sees: a fixed base, the variables
// the stage passes through, and the ones it sets, secrets resolved.
func (e *execution) environment(ctx context.Context) ([]string, error) {
	env := map[string]string{"LANG": "C.UTF-8", "TZ": "UTC", "TMPDIR": filepath.Join(e.base, "work")}
	for _, name := range passedThrough {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	for k, v := range e.passed {
		env[k] = v
	}
	res := e.resolver(true)
	for name, v := range stringMap(e.def.Config["env"]) {
		s, err := res.text(ctx, v)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", name, err)
		}
		env[name] = s
	}
	if e.record.Seed != nil {
		env["ASSAY_SEED"] = fmt.Sprint(*e.record.Seed)
	}
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list, nil
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
