package source

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"assay/internal/engines/aegaeon"
)

func (c *checker) configuration() {
	r := c.result.Report
	name := r.LoadConfig
	if name == "" {
		return // told already
	}
	if !clean(name) {
		c.fail("source.config-missing", ReportFile, "load_config: %q is no path inside the run", name)
		return
	}
	b, err := c.read(name, maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.fail("source.config-missing", name, "the report names it, and it is not there")
		return
	case err != nil:
		c.fail("source.config-missing", name, "%v", plainError(err))
		return
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != r.LoadConfigSHA256 {
		c.fail("source.config-hash", name, "it hashes to %s, the report says %s", hex.EncodeToString(sum[:]), r.LoadConfigSHA256)
	}
	config, err := aegaeon.ParseConfig(name, b)
	if err != nil {
		c.fail("source.config-yaml", "", "%v", err)
		return
	}
	c.result.Config = config
	c.engines(name, config)
	c.sameModels(name, config)
	c.sameLayout(name, config)
	c.archiveDir(name, config.Server.CUDAGraph.ArchiveDir)
}

func (c *checker) engines(name string, config aegaeon.Config) {
	s := config.Server
	switch {
	case s.CUDAGraph.Mode != "load":
		c.fail("source.config-mode", name, "server.cuda_graph.mode is %q: want 'load'", string(s.CUDAGraph.Mode))
	case s.NumEngines > 0:
		c.fail("source.config-mode", name, "server.num_engines is %d: simple engines replay no graphs", s.NumEngines)
	case s.DummyWeights:
		c.fail("source.config-mode", name, "server.dummy_weights is true: nothing measured with them counts")
	}
}

func (c *checker) sameModels(name string, config aegaeon.Config) {
	var have, want []string
	for _, m := range config.Models {
		have = append(have, m.Name)
	}
	for _, m := range c.result.Report.Models {
		want = append(want, m.Name)
	}
	for _, m := range have {
		if !slices.Contains(want, m) {
			c.fail("source.config-models", name, "model %s is in the configuration and not in the report: it has no archive", m)
		}
	}
	for _, m := range want {
		if !slices.Contains(have, m) {
			c.fail("source.config-models", name, "model %s is in the report and not in the configuration", m)
		}
	}
	start := config.Server.StartupModels
	if start == nil {
		return
	}
	if slices.Sort(have); !slices.Equal(slices.Sorted(slices.Values(*start)), have) {
		c.fail("source.config-models", name, "server.startup_models are not the models of the configuration")
	}
}

func (c *checker) sameLayout(name string, config aegaeon.Config) {
	g, r := config.Server.CUDAGraph, c.result.Report.Graph
	differ := func(key string, have, want any) {
		if fmt.Sprint(have) != fmt.Sprint(want) {
			c.fail("source.config-graph", name, "%s is %v, the report says %v", key, have, want)
		}
	}
	sizes := slices.Compact(slices.Sorted(slices.Values(g.BatchSizes)))
	differ("server.cuda_graph.batch_sizes", sizes, slices.Compact(slices.Sorted(slices.Values(r.BatchSizes))))
	if len(g.SeqLenBuckets) != 1 {
		c.fail("source.config-graph", name, "server.cuda_graph.seq_len_buckets has %d values: expect one maximum sequence length", len(g.SeqLenBuckets))
	} else {
		differ("server.cuda_graph.seq_len_buckets", g.SeqLenBuckets[0], r.SeqLenBucket)
	}
	differ("server.cuda_graph.base_address", uint64(g.BaseAddress), r.BaseAddress)
	differ("server.cuda_graph.region_size_bytes", uint64(g.RegionSizeBytes), r.RegionSizeBytes)
	differ("server.cuda_graph.scratch_size_bytes", uint64(g.ScratchSizeBytes), r.ScratchSizeBytes)
	differ("server.cuda_graph.strict", g.Strict, r.Strict)
	differ("server.memory_utilization", config.Server.MemoryUtilization, r.MemoryUtilization)
}

// archiveDir takes a path beside the report. One that is absolute is of the machine
// that saved: its end must be the archive root, and it is replaced when it is used.
func (c *checker) archiveDir(name, dir string) {
	root := c.result.Report.ArchiveRoot
	if !clean(root) {
		return // told with the archive root
	}
	parts := strings.Split(dir, "/")
	switch {
	case slices.Contains(parts, ".."):
		c.fail("source.config-archive", name, "server.cuda_graph.archive_dir: %q leads out of the run", dir)
	case strings.HasPrefix(dir, "/") && !strings.HasSuffix(path.Clean(dir), "/"+root):
		c.fail("source.config-archive", name, "server.cuda_graph.archive_dir: %s does not end in %s, the archive root of the report", dir, root)
	case !strings.HasPrefix(dir, "/") && path.Clean(dir) != root:
		c.fail("source.config-archive", name, "server.cuda_graph.archive_dir: %q is not %s, the archive root of the report", dir, root)
	}
}
