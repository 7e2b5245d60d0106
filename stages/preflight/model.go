package preflight

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"

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
		f := paths.Check(subject, p)
		c.add(f)
		if f.Severity != schemas.SeverityPass {
			continue
		}
		c.add(weights(ctx, subject, p)...)
		if m.Fingerprint != "" {
			got, err := c.task.Fingerprint(ctx, p, m.Level())
			c.add(checkpoint.Pinned(subject, m.Level(), m.Fingerprint, got, err))
		}
	}
}

// weights checks a file by the form that its name says, and a folder as Hugging Face
// lays it out, unless it holds GGUF files and nothing of that.
func weights(ctx context.Context, subject, path string) []schemas.Finding {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		switch {
		case gguf.Is(path):
			return gguf.CheckPath(subject, path)
		case filepath.Ext(path) == ".safetensors":
			return checkpoint.CheckFile(ctx, subject, path).Findings
		}
		return nil // of a form that nobody here knows
	}
	found := gguf.CheckPath(subject, path)
	if _, err := os.Stat(filepath.Join(path, "config.json")); err != nil && len(found) > 0 {
		return found
	}
	src, err := checkpoint.Open(path)
	if err != nil {
		return append(found, checkpoint.Unreadable(subject, err))
	}
	return append(found, checkpoint.Check(ctx, subject, src).Findings...)
}
