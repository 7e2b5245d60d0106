package preflight

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"assay/internal/engines/aegaeon"
	"assay/preflight/checkpoint"
	"assay/preflight/gguf"
	"assay/preflight/paths"
	"assay/schemas"
)

func checkModels(ctx context.Context, c *collector) {
	for _, id := range slices.Sorted(maps.Keys(c.task.Experiment.Model)) {
		if m := c.task.Experiment.Model[id]; m.Checkpoint != "" {
			c.checkpoint(ctx, "model "+id+": checkpoint", m)
		}
	}
}

// checkpoint checks what a model's checkpoint is, as each trial sees it, and whether
// it is the one that the experiment pins.
func (c *collector) checkpoint(ctx context.Context, subject string, m schemas.Model) {
	for _, t := range c.trials() {
		p, ok := c.resolve(subject, m.Checkpoint, t)
		if !ok {
			continue
		}
		p = c.task.Abs(p)
		if !c.first(subject, p) {
			continue
		}
		if !c.weightsAt(ctx, subject, p) {
			c.recordedPin(subject, p, m)
			continue
		}
		if m.Fingerprint != "" {
			got, err := c.task.Fingerprint(ctx, p, m.Level())
			c.add(checkpoint.Pinned(subject, m.Level(), m.Fingerprint, got, err))
		}
	}
}

// weightsAt checks a checkpoint as a path first, and says whether there is one.
func (c *collector) weightsAt(ctx context.Context, subject, path string) bool {
	if c.recorded(subject, path) {
		return false
	}
	f := paths.Check(subject, path)
	c.add(f)
	if f.Severity != schemas.SeverityPass {
		return false
	}
	list, facts := weights(ctx, subject, path)
	c.add(list...)
	c.facts[path] = facts
	return true
}

// weights checks a file by the form that its name says, and a folder as Hugging Face
// lays it out, unless it holds GGUF files and nothing of that.
func weights(ctx context.Context, subject, path string) ([]schemas.Finding, checkpoint.Facts) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		switch {
		case gguf.Is(path):
			return gguf.CheckPath(subject, path), checkpoint.Facts{}
		case filepath.Ext(path) == ".safetensors":
			result := checkpoint.CheckFile(ctx, subject, path)
			return result.Findings, result.Facts
		}
		return nil, checkpoint.Facts{} // of a form that nobody here knows
	}
	found := gguf.CheckPath(subject, path)
	if _, err := os.Stat(filepath.Join(path, "config.json")); err != nil && len(found) > 0 {
		return found, checkpoint.Facts{}
	}
	src, err := checkpoint.Open(path)
	if err != nil {
		return append(found, checkpoint.Unreadable(subject, err)), checkpoint.Facts{}
	}
	result := checkpoint.Check(ctx, subject, src)
	return append(found, result.Findings...), result.Facts
}

// checkServed checks the models that a configuration of Aegaeon lists: their folders,
// where a service is started with them as they stand there, and their parameters,
// wherever the checkpoint is known.
func checkServed(ctx context.Context, c *collector) {
	for _, name := range slices.Sorted(maps.Keys(c.task.Experiment.Service)) {
		svc := c.task.Experiment.Service[name]
		set := schemas.Settings(svc.Config)
		if !set.Has("aegaeon_config") {
			continue
		}
		started := svc.Engine == "aegaeon" && len(set.List("command")) > 0
		for _, t := range c.trials() {
			c.served(ctx, "service "+name, set.Text("aegaeon_config"), started, t)
		}
	}
}

func (c *collector) served(ctx context.Context, subject, config string, started bool, t schemas.Trial) {
	file, err := c.task.Resolve(config, t)
	if err != nil {
		return // which is said where paths are checked
	}
	cfg, err := aegaeon.ReadConfig(c.task.Abs(file))
	if err != nil {
		return // likewise
	}
	own := c.ownCheckpoints(t)
	for _, entry := range cfg.Models {
		path, replaced := own[entry.Name]
		if path = cmp.Or(path, c.task.Checkpoints[entry.Name], entry.Path); path == "" {
			continue
		}
		at := subject + ": model " + entry.Name
		if started && !replaced && c.first(at, path) {
			c.weightsAt(ctx, at, path)
		}
		if facts, known := c.facts[path]; known && entry.Params != nil && c.first(at+": params", fmt.Sprint(path, *entry.Params)) {
			c.add(checkpoint.Params(at, *entry.Params, facts))
		}
	}
}

// ownCheckpoints are those of the experiment by the names of models, which stand in
// place of what configurations of services say.
func (c *collector) ownCheckpoints(t schemas.Trial) map[string]string {
	out := map[string]string{}
	for _, m := range c.task.Experiment.Model {
		name, err := c.task.Resolve(m.Name, t)
		path, pathErr := c.task.Resolve(m.Checkpoint, t)
		if err == nil && pathErr == nil && m.Checkpoint != "" {
			out[name] = c.task.Abs(path)
		}
	}
	return out
}
