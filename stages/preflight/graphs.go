package preflight

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	engine "assay/internal/engines/aegaeon"
	"assay/preflight/foundry"
	"assay/schemas"
)

// graphs checks the folder of archives that a service saves to or loads from, where it
// can be told before the run: that of a source run was looked into when it was opened,
// that of an earlier stage does not exist yet, and a save has a new one of its own.
func (c *collector) graphs(ctx context.Context, name string, svc schemas.Service, config engine.Config, file string, t schemas.Trial) {
	g := config.Server.CUDAGraph
	mode := string(g.Mode)
	set := schemas.Settings(svc.Config)
	given := set.Text("graph_archive")
	if (mode != foundry.Save && mode != foundry.Load) || ofSource(given) || ofSource(set.Text("aegaeon_config")) || (given == "" && (mode == foundry.Save || c.sourced())) {
		return
	}
	dir, err := c.task.Resolve(given, t)
	if err != nil {
		return // an earlier stage makes it
	}
	if dir = c.task.Abs(dir); given == "" {
		if dir = filepath.FromSlash(g.ArchiveDir); g.ArchiveDir == "" {
			return // which is said where the configuration is checked
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(filepath.Dir(file), dir)
		}
	}
	subject := "service " + name + ": archives"
	if !c.first(subject, fmt.Sprint(dir, mode)) || c.elsewhere(subject, "the folder of archives "+dir) {
		return
	}
	fsys := os.DirFS(dir) // of one that cannot be opened, or is not there, it says so
	if root, err := os.OpenRoot(dir); err == nil {
		defer root.Close()
		fsys = root.FS()
	}
	c.add(foundry.Check(ctx, subject, fsys, c.registered(mode, svc, config))...)
}

// sourced says whether a service of the experiment is started from the source run, whose
// archives are then loaded.
func (c *collector) sourced() bool {
	for _, svc := range c.task.Experiment.Service {
		if ofSource(schemas.Settings(svc.Config).Text("aegaeon_config")) {
			return true
		}
	}
	return false
}

// registered is what a configuration wants of archives: every model that it lists, not
// only those it starts with.
func (c *collector) registered(mode string, svc schemas.Service, config engine.Config) foundry.Registered {
	g := config.Server.CUDAGraph
	base, region, scratch := uint64(g.BaseAddress), uint64(g.RegionSizeBytes), uint64(g.ScratchSizeBytes)
	want := foundry.Registered{Mode: mode, Models: []string{}, BatchSizes: g.BatchSizes, BaseAddress: &base, RegionSizeBytes: &region, ScratchSizeBytes: &scratch}
	for _, m := range config.Models {
		want.Models = append(want.Models, m.Name)
	}
	if len(g.SeqLenBuckets) == 1 {
		want.SeqLenBucket = &g.SeqLenBuckets[0]
	}
	ranks := 1 // the emulated engine saves one, however many decode
	if n := config.Server.NumDecodeEngines; n != nil && svc.Engine != "emulated" {
		ranks = *n
	}
	if config.Server.Nodes <= 1 || svc.Engine == "emulated" { // which node saves which rank is not known
		want.Ranks = &ranks
	}
	if gpu, err := strconv.ParseUint(c.task.Facts["gpu_memory_bytes"], 10, 64); err == nil {
		want.GPUMemoryBytes = &gpu
	}
	return want
}
