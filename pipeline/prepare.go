package pipeline

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"assay/schemas"
)

// prepare resolves the configuration, hashes every input and writes down the
// preimage of the key. It has no effect but reading.
func (e *execution) prepare(ctx context.Context) error {
	res := &resolver{runner: e.runner, node: e.node, params: e.params, views: e.views, used: map[string]string{}}
	fields, _ := schemas.FieldsOf(e.def.Kind)
	config, err := res.fields(ctx, fields, e.def.Config)
	if err != nil {
		return err
	}
	e.config = config
	var req Requirements
	if e.kind.Requires != nil {
		req = e.kind.Requires(config)
	}
	params := referredParams(e.def.Config, e.params)
	for _, name := range sortedNames(res.used) {
		in, err := e.addInput(ctx, "param."+name, "file", res.used[name])
		switch {
		case err == nil:
			params[name] = string(in.Digest)
		case e.checks() && ctx.Err() == nil:
			params[name] = "unreadable" // the check says so; nothing is ever reused by this key
		default:
			return err
		}
	}
	literal, err := literalPaths(e.def.Kind, e.def.Config, config)
	if err != nil {
		return err
	}
	e.pre = schemas.Preimage{
		Schema: schemas.KeyV1, Kind: e.kind.Name, KindVersion: e.kind.Version, Scope: e.node.Scope, Definition: keyedDefinition(e.def), Params: params,
		Upstream: map[string]string{}, Inputs: map[string]string{}, Env: map[string]string{}, Tools: map[string]string{}, Models: map[string]string{},
		Platform: schemas.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}, Seed: stageSeed(e.Experiment, e.kind, config, e.trialPtr()),
	}
	e.record.Seed = e.pre.Seed
	if err := e.addInputs(ctx, literal, req); err != nil {
		return err
	}
	e.addUpstream()
	e.addService()
	return e.addSources(ctx)
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

func (e *execution) addInput(ctx context.Context, name, origin, path string) (*input, error) {
	in, err := hashInput(ctx, name, origin, path)
	if err != nil {
		return nil, err
	}
	e.inputs = append(e.inputs, in)
	e.record.Inputs = append(e.record.Inputs, in.Input)
	e.paths[name] = path
	return in, nil
}

func (e *execution) addInputs(ctx context.Context, literal map[string]string, req Requirements) error {
	for name, p := range req.Inputs {
		literal[name] = p
	}
	for _, name := range sortedNames(literal) {
		if e.checks() {
			break // checks look at paths themselves: a missing one is a finding, not an error
		}
		in, err := e.addInput(ctx, name, "file", e.abs(literal[name]))
		if err != nil {
			return err
		}
		e.pre.Inputs[name] = string(in.Digest)
	}
	for _, tool := range req.Tools {
		path, err := exec.LookPath(tool)
		if err != nil {
			return fmt.Errorf("program %s: %w; install it or name it by path", tool, err)
		}
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		in, err := e.addInput(ctx, "tool."+filepath.Base(tool), "tool", path)
		if err != nil {
			return err
		}
		e.pre.Tools[filepath.Base(tool)] = string(in.Digest)
	}
	e.passed = map[string]string{}
	for _, name := range req.PassEnv {
		if v, ok := os.LookupEnv(name); ok {
			e.passed[name], e.pre.Env[name] = v, v
		}
	}
	return nil
}

// addUpstream puts the digests of everything the stage needs into the key, by
// logical name: upstream outputs, not upstream keys.
func (e *execution) addUpstream() {
	for _, id := range e.node.Needs {
		n, rec := e.nodes[id], e.recordOf(id)
		if e.kinds[n.Kind].Early {
			continue // a check is a gate: what it found is no input
		}
		for _, o := range rec.Outputs {
			name := n.Stage + "/" + o.Name
			if e.node.Scope == schemas.ScopeRun && n.Scope == schemas.ScopeTrial {
				name += "@" + trialLabel(e.trials[n.Trial])
			}
			e.pre.Upstream[name] = string(o.Digest)
			e.record.Inputs = append(e.record.Inputs, schemas.Input{Name: name, Origin: "stage", Digest: o.Digest, Bytes: o.Bytes, Files: o.Files})
		}
	}
}

func (e *execution) addService() {
	svc, ok := e.Experiment.Service[e.def.Service]
	if !ok {
		return
	}
	e.pre.Service = serviceDefinition(svc)
	for k, v := range referredParams(svc.Config, e.params) {
		if _, known := e.pre.Params[k]; !known {
			e.pre.Params[k] = v
		}
	}
	for _, m := range e.models {
		e.pre.Models[m.ID] = m.Name
		if m.Fingerprint != "" {
			e.pre.Models[m.ID] = m.Name + " " + string(m.Fingerprint)
		}
	}
}

func (e *execution) addSources(ctx context.Context) error {
	for _, ref := range schemas.References(e.def.Config) {
		if ref.Namespace != schemas.RefSource || e.SourceDir == "" {
			continue
		}
		in, err := e.addInput(ctx, "source."+ref.Names[0], "source", filepath.Join(e.SourceDir, filepath.FromSlash(ref.Names[0])))
		if err != nil {
			return err
		}
		if e.pre.Sources == nil {
			e.pre.Sources = map[string]string{}
		}
		e.pre.Sources[ref.Names[0]] = string(in.Digest)
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
	env := map[string]string{"LANG": "C.UTF-8", "TZ": "UTC", "TMPDIR": filepath.Join(e.workDir, "nodes", strings.ReplaceAll(e.node.ID, "@", "-"), "work")}
	for _, name := range passedThrough {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	for k, v := range e.passed {
		env[k] = v
	}
	res := &resolver{runner: e.runner, node: e.node, params: e.params, views: e.views, secrets: true}
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
