package preflight

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"assay/preflight/paths"
	"assay/preflight/workload"
	"assay/schemas"
)

// trials are those whose values are looked at: one without a point when the plan
// has none.
func (c *collector) trials() []schemas.Trial {
	if len(c.task.Trials) == 0 {
		return []schemas.Trial{{}}
	}
	return c.task.Trials
}

// path checks text that names a file or folder, as each trial sees it.
func (c *collector) path(subject, text string) {
	for _, t := range c.trials() {
		if p, ok := c.resolve(subject, text, t); ok && c.first(subject, c.task.Abs(p)) {
			c.at(subject, c.task.Abs(p))
		}
	}
}

// program checks text that names a program. A relative path lies below a folder
// that the program is started in, which is not there yet.
func (c *collector) program(subject, text, pathList string) {
	for _, t := range c.trials() {
		p, ok := c.resolve(subject, text, t)
		if !ok || (strings.Contains(p, "/") && !filepath.IsAbs(p)) || !c.first(subject, p) {
			continue
		}
		if !c.elsewhere(subject, "program "+p) {
			c.add(paths.Program(subject, p, pathList))
		}
	}
}

func checkParams(_ context.Context, c *collector) {
	params := c.task.Experiment.Params
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if m, ok := params[name].(map[string]any); ok && m["path"] != nil {
			c.path("param "+name, "${param."+name+"}")
		}
	}
}

func checkServices(_ context.Context, c *collector) {
	for _, name := range slices.Sorted(maps.Keys(c.task.Experiment.Service)) {
		svc := c.task.Experiment.Service[name]
		fields, _ := schemas.EngineFields(svc.Engine)
		subject := "service " + name
		c.pathFields(subject, fields, svc.Config)
		set := schemas.Settings(svc.Config)
		if argv := set.List("command"); len(argv) > 0 {
			c.program(subject+": program", argv[0], c.servicePath(name, set))
		}
		if port := set.Text("port"); port != "" {
			for _, t := range c.trials() {
				if p, ok := c.resolve(subject+": port", port, t); ok && c.first(subject+": port", p) {
					c.port(subject+": port", p)
				}
			}
		}
	}
}

// servicePath is where a service's program is looked for: the PATH that the
// machine file or the experiment sets for it, else that of the caller.
func (c *collector) servicePath(name string, set schemas.Settings) string {
	for _, text := range []string{c.task.ServiceEnv[name]["PATH"], set.Texts("env")["PATH"]} {
		if text == "" {
			continue
		}
		if v, err := c.task.Resolve(text, schemas.Trial{}); err == nil {
			return v
		}
	}
	return os.Getenv("PATH")
}

func checkStages(_ context.Context, c *collector) {
	for _, name := range slices.Sorted(maps.Keys(c.task.Experiment.Stage)) {
		def := c.task.Experiment.Stage[name]
		subject := "stage " + name
		switch def.Kind {
		case "preflight": // each looks at its own
			continue
		case "measure":
			c.measure(name, def)
			c.plan(name, def)
			continue
		case "command":
			c.command(subject, schemas.Settings(def.Config))
		}
		fields, _ := schemas.FieldsOf(def.Kind)
		c.pathFields(subject, fields, def.Config)
	}
}

func (c *collector) command(subject string, set schemas.Settings) {
	program := "/bin/sh"
	if argv := set.List("argv"); !set.Bool("shell") && len(argv) > 0 {
		program = argv[0]
	}
	c.program(subject+": program", program, os.Getenv("PATH"))
	for _, tool := range set.List("tools") {
		c.program(subject+": tool "+tool, tool, os.Getenv("PATH"))
	}
}

// pathFields checks every path and path map of a table.
func (c *collector) pathFields(subject string, fields []schemas.Field, config map[string]any) {
	set := schemas.Settings(config)
	for _, f := range fields {
		if !set.Has(f.Name) {
			continue
		}
		switch f.Type {
		case schemas.TypePath:
			c.path(subject+": "+f.Name, set.Text(f.Name))
		case schemas.TypePathMap:
			m := set.Texts(f.Name)
			for _, k := range slices.Sorted(maps.Keys(m)) {
				c.path(subject+": "+f.Name+" "+k, m[k])
			}
		}
	}
}

// measure reads the files of requests that exist already, as each trial sees them
// and as the stage will read them.
func (c *collector) measure(name string, def schemas.StageDef) {
	set := schemas.Settings(def.Config)
	for _, key := range []string{"workload", "prompts"} {
		if !set.Has(key) {
			continue
		}
		subject := "stage " + name + ": " + key
		for _, t := range c.trials() {
			p, ok := c.resolve(subject, set.Text(key), t)
			if !ok {
				continue
			}
			opts, ok := c.readOptions(subject, set, t)
			if !ok {
				continue
			}
			opts.ServiceModels = c.models(def, set, t)
			if limits := c.limits(c.task.Experiment.Service[def.Service], t); opts.MaxTotal == 0 && len(limits) > 0 {
				opts.MaxTotal = slices.Max(slices.Collect(maps.Values(limits))) // no model takes more
			}
			if abs := c.task.Abs(p); c.first(subject, fmt.Sprint(abs, opts)) {
				c.workload(subject, abs, opts)
			}
		}
	}
}

// readOptions are the keys that say how a file is read, resolved.
func (c *collector) readOptions(subject string, set schemas.Settings, t schemas.Trial) (workload.Options, bool) {
	known := schemas.Settings{}
	for _, k := range []string{"workload_form", "timestamp_unit", "max_input", "max_output", "max_total", "over_length"} {
		text, isText := set[k].(string)
		if !isText {
			known[k] = set[k]
			continue
		}
		v, ok := c.resolve(subject, text, t)
		if !ok {
			return workload.Options{}, false
		}
		known[k] = v
		if n, err := strconv.Atoi(v); err == nil {
			known[k] = float64(n)
		}
	}
	return workload.Options{
		Form: known.Text("workload_form"), Unit: known.Text("timestamp_unit"), MaxInput: known.Int("max_input"), MaxOutput: known.Int("max_output"),
		MaxTotal: known.Int("max_total"), Over: known.Text("over_length"), Window: set.List("window"),
	}, true
}

// models are the names that a measure stage will send to, as far as the file
// tells: its own list, or what the emulated engine is told to serve.
func (c *collector) models(def schemas.StageDef, set schemas.Settings, trial schemas.Trial) []string {
	if list := set.List("models"); len(list) > 0 {
		return list
	}
	svc := c.task.Experiment.Service[def.Service]
	if svc.Engine != "emulated" {
		return nil
	}
	var out []string
	for _, m := range schemas.Settings(svc.Config).Tables("models") {
		count := 1
		if m.Has("count") {
			text, err := c.task.Resolve(m.Text("count"), trial)
			if err != nil {
				return nil
			}
			if _, err := fmt.Sscan(text, &count); err != nil || count < 1 || count > 1000 {
				return nil
			}
		}
		for i := range count {
			out = append(out, fmt.Sprintf("%s/%d", m.Text("name"), i))
		}
	}
	return out
}
