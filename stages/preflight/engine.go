package preflight

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"assay/preflight/aegaeon"
	"assay/preflight/pypto"
	"assay/schemas"
)

// checkEngines checks what engines are configured and started with.
func checkEngines(ctx context.Context, c *collector) {
	for _, name := range slices.Sorted(maps.Keys(c.task.Experiment.Service)) {
		svc := c.task.Experiment.Service[name]
		set := schemas.Settings(svc.Config)
		for _, t := range c.trials() {
			argv := c.resolveAll(set.List("command"), t)
			if svc.Engine == "pypto" && len(argv) > 0 {
				c.pypto(ctx, name, argv, t)
			}
			if set.Has("aegaeon_config") {
				c.aegaeon(ctx, name, svc, argv, t)
			}
		}
	}
}

// resolveAll leaves text that cannot be resolved yet as it is.
func (c *collector) resolveAll(list []string, t schemas.Trial) []string {
	out := slices.Clone(list)
	for i, text := range out {
		if v, err := c.task.Resolve(text, t); err == nil {
			out[i] = v
		}
	}
	return out
}

// environment is what a service is started with beside the caller's own variables,
// as far as it can be told now; what is secret stays a reference.
func (c *collector) environment(name string, t schemas.Trial) map[string]string {
	out := map[string]string{}
	set := schemas.Settings(c.task.Experiment.Service[name].Config)
	for _, from := range []map[string]string{set.Texts("env"), c.task.ServiceEnv[name]} {
		for k, text := range from {
			v, err := c.task.Resolve(text, t)
			if out[k] = v; err != nil {
				out[k] = text
			}
		}
	}
	return out
}

// aegaeon checks a configuration, and what it asks of the host where the service is
// started on it.
func (c *collector) aegaeon(ctx context.Context, name string, svc schemas.Service, argv []string, t schemas.Trial) {
	subject := "service " + name + ": configuration"
	set := schemas.Settings(svc.Config)
	file, err := c.task.Resolve(set.Text("aegaeon_config"), t)
	if err != nil {
		return // which is said where paths are checked
	}
	file = c.task.Abs(file)
	if _, err := os.Stat(file); err != nil {
		return // likewise
	}
	result := aegaeon.Read(subject, file)
	// That of a source run is started with its places replaced, and was checked so when
	// the source run was opened.
	if !ofSource(set.Text("aegaeon_config")) && c.first(subject, file) {
		c.add(result.Findings...)
	}
	if result.Config == nil {
		return
	}
	config := *result.Config
	if mode, err := c.task.Resolve(set.Text("graph_mode"), t); err == nil && mode != "" {
		config.Server.CUDAGraph.Mode.Set(mode)
	}
	load := c.loadOf(name, t)
	if !c.first(subject+": budgets", fmt.Sprint(file, load, config.Server.CUDAGraph.Mode, argv)) {
		return
	}
	if svc.Engine == "emulated" || len(argv) > 0 {
		c.graphs(ctx, name, svc, config, file, t)
	}
	models := c.known(config, t)
	if svc.Engine == "emulated" || len(argv) == 0 { // nothing of this host is used
		c.add(aegaeon.Shapes(subject, file, config, models, load)...)
		return
	}
	env := c.environment(name, t)
	c.add(aegaeon.Command("service "+name+": command", argv, env)...)
	host := c.host(argv, env)
	c.add(aegaeon.Budgets(subject, file, config, models, host, load)...)
	if dir, err := c.task.Resolve(set.Text("cwd"), t); err == nil && dir != "" { // where the engine looks for them
		if root := filepath.Join(c.task.Abs(dir), "profiles"); isFolder(root) {
			c.add(aegaeon.Profiles(subject, file, root, config, host.GPUName)...)
		}
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// ofSource says whether a path is of the source run.
func ofSource(path string) bool {
	return slices.ContainsFunc(schemas.References(path), func(r schemas.Reference) bool { return r.Namespace == schemas.RefSource })
}

// known is what the headers of checkpoints say of a configuration's models.
func (c *collector) known(config aegaeon.Config, t schemas.Trial) []aegaeon.Model {
	own := c.ownCheckpoints(t)
	var out []aegaeon.Model
	for _, m := range config.Models {
		facts := c.facts[cmp.Or(own[m.Name], c.task.Checkpoints[m.Name], m.Path)]
		layers := cmp.Or(facts.FullAttentionLayers+facts.SlidingLayers, facts.Layers)
		out = append(out, aegaeon.Model{Name: m.Name, Parameters: facts.Parameters, ContextLength: facts.ContextLength,
			KVBytesPerToken: aegaeon.KVBytes(layers, cmp.Or(facts.KVHeads, facts.Heads), facts.HeadDim)})
	}
	return out
}

// loadOf is the worst that the stages which use a service ask for at once, as far as
// their keys tell.
func (c *collector) loadOf(service string, t schemas.Trial) aegaeon.Load {
	var out aegaeon.Load
	for _, def := range c.task.Experiment.Stage {
		if def.Service != service {
			continue
		}
		set := schemas.Settings(def.Config)
		number := func(key string) int {
			n, ok := set[key].(float64)
			if text, isText := set[key].(string); !ok && isText {
				if v, err := c.task.Resolve(text, t); err == nil {
					whole, _ := strconv.Atoi(v)
					return whole
				}
			}
			return int(n)
		}
		out.Concurrency = max(out.Concurrency, number("concurrency"))
		out.Sequence = max(out.Sequence, number("max_total"))
		if in, made := number("input_tokens"), number("output_tokens"); in > 0 && made > 0 {
			out.Sequence = max(out.Sequence, in+made)
		}
	}
	return out
}

// pypto checks a command of PyPTO Serving against the checkpoint that it names.
func (c *collector) pypto(ctx context.Context, name string, argv []string, t schemas.Trial) {
	subject := "service " + name + ": command"
	load := c.loadOf(name, t)
	if !c.first(subject+": options", fmt.Sprint(argv, load)) {
		return
	}
	facts := pypto.Facts{Env: c.environment(name, t), Load: pypto.Load{Concurrency: load.Concurrency, Sequence: load.Sequence}}
	if f := c.task.Host; f != nil {
		for _, npu := range f.NPUs {
			facts.Devices = append(facts.Devices, npu.Index)
		}
	}
	if i := slices.Index(argv, "--model"); i >= 0 && i+1 < len(argv) {
		dir := argv[i+1]
		if at := "service " + name + ": model"; filepath.IsAbs(dir) && c.first(at, dir) {
			c.weightsAt(ctx, at, dir)
		}
		if known, ok := c.facts[dir]; ok {
			_, err := os.Stat(filepath.Join(dir, "model.safetensors.index.json"))
			index := err == nil
			facts.Architecture, facts.Quantization, facts.ContextLength = known.Architecture, known.Quantization, known.ContextLength
			facts.Index, facts.Shards = &index, known.Files
		}
	}
	c.add(pypto.Command(subject, argv, facts)...)
	if dir := facts.Env["PYPTO_PROG_BUILD_DIR"]; filepath.IsAbs(dir) {
		c.add(pypto.CompileCache(subject, dir)...)
	}
}
