package aegaeon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"assay/internal/durable"
	"assay/schemas"
)

// Config is a whole configuration, defaults filled in.
type Config struct {
	Server  Server   `yaml:"server"`
	Models  []Entry  `yaml:"models"`
	Devices []Device `yaml:"devices"`
}

// Server is its section of engines and policies. Sizes are bytes but for those whose
// names say otherwise.
type Server struct {
	Nodes                  int       `yaml:"nnodes"`
	NumEngines             int       `yaml:"num_engines"`
	NumPrefillEngines      *int      `yaml:"num_prefill_engines"`
	NumDecodeEngines       *int      `yaml:"num_decode_engines"`
	TensorParallelSize     int       `yaml:"tensor_parallel_size"`
	WorkerNumCPUs          int       `yaml:"worker_num_cpus"`
	CPUNumSlabs            int       `yaml:"cpu_num_slabs"`
	CPUSlabSizeBytes       int64     `yaml:"cpu_slab_size_bytes"`
	ModelCacheSizeGB       float64   `yaml:"model_cache_size_gb"`
	MemoryUtilization      float64   `yaml:"memory_utilization"`
	DummyWeights           bool      `yaml:"dummy_weights"`
	DecodeWorkStealing     bool      `yaml:"decode_work_stealing"`
	DecodeStealMinBatchGap int       `yaml:"decode_work_stealing_min_batch_gap"`
	ModelPlacementPolicy   string    `yaml:"model_placement_policy"`
	RequestRoutingPolicy   string    `yaml:"request_routing_policy"`
	StartupModels          *[]string `yaml:"startup_models"` // nil: all
	CUDAGraph              CUDAGraph `yaml:"cuda_graph"`
}

// CUDAGraph says what becomes of the graphs of decode steps.
type CUDAGraph struct {
	Mode             quoted  `yaml:"mode"`
	ArchiveDir       string  `yaml:"archive_dir"`
	BatchSizes       []int   `yaml:"batch_sizes"`
	SeqLenBuckets    []int   `yaml:"seq_len_buckets"`
	Strict           bool    `yaml:"strict"`
	BaseAddress      address `yaml:"base_address"`
	RegionSizeBytes  address `yaml:"region_size_bytes"`
	ScratchSizeBytes address `yaml:"scratch_size_bytes"`
}

// Entry is a model.
type Entry struct {
	Name        string   `yaml:"name"`
	Path        string   `yaml:"path"`
	Params      *float64 `yaml:"params"` // times 2^30
	Profile     string   `yaml:"profile"`
	MaxModelLen *int     `yaml:"max_model_len"`
	ToolParser  *string  `yaml:"tool_parser"`
}

// Device is a sort of accelerator.
type Device struct {
	Name      string  `yaml:"name"`
	Memory    float64 `yaml:"memory"`    // GiB
	Bandwidth float64 `yaml:"bandwidth"` // GiB/s
	Profile   string  `yaml:"profile"`
}

// quoted is a string that YAML 1.1 takes for a boolean unless it stands in quotes.
type quoted string

// Set gives it another value.
func (q *quoted) Set(s string) { *q = quoted(s) }

func (q *quoted) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Style == 0 && slices.Contains([]string{"off", "on", "yes", "no", "true", "false"}, strings.ToLower(n.Value)) {
		return fmt.Errorf("line %d: mode: %s without quotes is a boolean to YAML 1.1: write '%s'", n.Line, n.Value, n.Value)
	}
	return n.Decode((*string)(q))
}

// address is a number, or a hexadecimal one in quotes.
type address uint64

func (a *address) UnmarshalYAML(n *yaml.Node) error {
	v, err := strconv.ParseUint(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	if n.Kind != yaml.ScalarNode || err != nil {
		return fmt.Errorf("line %d: %.40q is no number of bytes", n.Line, n.Value)
	}
	*a = address(v)
	return nil
}

// ReadConfig reads a whole configuration and checks what does not need a machine.
// Errors in the content are *ConfigError. Keys that are not known are left alone, as
// the service does.
func ReadConfig(path string) (Config, error) {
	f, err := durable.OpenRegular(path)
	if err != nil {
		return Config{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	if len(b) > maxConfig {
		return Config{}, &ConfigError{File: path, Text: fmt.Sprintf("larger than %d bytes: not a configuration", maxConfig)}
	}
	return ParseConfig(path, b)
}

// ParseConfig is ReadConfig of content; file names it in errors.
func ParseConfig(file string, content []byte) (Config, error) {
	if _, err := ParseModels(file, content); err != nil { // with the lines of what is wrong
		return Config{}, err
	}
	one := 1
	c := Config{Server: Server{
		Nodes: 1, TensorParallelSize: 1, WorkerNumCPUs: 16, CPUNumSlabs: 128, CPUSlabSizeBytes: 1 << 30, MemoryUtilization: 0.775,
		DecodeStealMinBatchGap: 2, ModelPlacementPolicy: "least-loaded", RequestRoutingPolicy: "least-outstanding",
		CUDAGraph: CUDAGraph{Mode: "off", BatchSizes: []int{1, 2, 4, 8}, SeqLenBuckets: []int{128, 256, 512, 1024, 2048}, Strict: true, BaseAddress: 0x400000000000, RegionSizeBytes: 256 << 30, ScratchSizeBytes: 4 << 30},
	}}
	if err := yaml.NewDecoder(bytes.NewReader(content)).Decode(&c); err != nil {
		line, text := yamlError(err)
		var types *yaml.TypeError
		if errors.As(err, &types) && len(types.Errors) > 0 {
			line, text = yamlError(errors.New(types.Errors[0]))
		}
		return Config{}, &ConfigError{File: file, Line: line, Text: text}
	}
	if c.Server.NumPrefillEngines == nil {
		c.Server.NumPrefillEngines = &one
	}
	if c.Server.NumDecodeEngines == nil {
		c.Server.NumDecodeEngines = &one
	}
	if err := c.check(); err != nil {
		return Config{}, &ConfigError{File: file, Text: err.Error()}
	}
	return c, nil
}

const twoMiB = 2 << 20

func (c Config) check() error {
	s := c.Server
	p, d := *s.NumPrefillEngines, *s.NumDecodeEngines
	switch {
	case s.Nodes < 1:
		return fmt.Errorf("server.nnodes: %d: want 1 or more", s.Nodes)
	case s.NumEngines < 0 || p < 0 || d < 0:
		return errors.New("server: numbers of engines cannot be negative")
	case s.NumEngines > 0 && (p != 0 || d != 0):
		return errors.New("server: num_engines wants num_prefill_engines and num_decode_engines to be 0; they are 1 when left out")
	case s.NumEngines == 0 && (p < 1 || d < 1):
		return errors.New("server: want one prefill and one decode engine at least, or num_engines")
	case s.TensorParallelSize != 1:
		return fmt.Errorf("server.tensor_parallel_size: %d: only 1 is supported", s.TensorParallelSize)
	case s.DecodeStealMinBatchGap < 2:
		return fmt.Errorf("server.decode_work_stealing_min_batch_gap: %d: want 2 or more", s.DecodeStealMinBatchGap)
	case s.ModelPlacementPolicy != "least-loaded" && s.ModelPlacementPolicy != "round-robin":
		return fmt.Errorf("server.model_placement_policy: %q: want least-loaded or round-robin", s.ModelPlacementPolicy)
	case s.RequestRoutingPolicy != "least-outstanding" && s.RequestRoutingPolicy != "round-robin":
		return fmt.Errorf("server.request_routing_policy: %q: want least-outstanding or round-robin", s.RequestRoutingPolicy)
	case !(s.ModelCacheSizeGB >= 0):
		return fmt.Errorf("server.model_cache_size_gb: %s: want 0 or more", schemas.Decimal(s.ModelCacheSizeGB))
	}
	if err := c.checkStartup(); err != nil {
		return err
	}
	return s.CUDAGraph.check()
}

func (c Config) checkStartup() error {
	if c.Server.StartupModels == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, name := range *c.Server.StartupModels {
		switch {
		case seen[name]:
			return fmt.Errorf("server.startup_models: %q is there twice", name)
		case !slices.ContainsFunc(c.Models, func(m Entry) bool { return m.Name == name }):
			return fmt.Errorf("server.startup_models: %q is none of the models", name)
		}
		seen[name] = true
	}
	return nil
}

func (g CUDAGraph) check() error {
	aligned := func(a address) bool { return a > 0 && a%twoMiB == 0 }
	switch g.Mode {
	case "off":
		return nil
	case "save", "load":
	default:
		return fmt.Errorf("server.cuda_graph.mode: %q: want 'off', 'save' or 'load'", string(g.Mode))
	}
	switch {
	case g.ArchiveDir == "":
		return fmt.Errorf("server.cuda_graph.archive_dir: is missing: mode %s wants one", g.Mode)
	case len(g.BatchSizes) == 0 || slices.Min(g.BatchSizes) < 1:
		return errors.New("server.cuda_graph.batch_sizes: want positive whole numbers")
	case len(g.SeqLenBuckets) != 1:
		return errors.New("server.cuda_graph.seq_len_buckets: expect one maximum sequence length")
	case !aligned(g.BaseAddress) || !aligned(g.RegionSizeBytes) || !aligned(g.ScratchSizeBytes):
		return errors.New("server.cuda_graph: base_address, region_size_bytes and scratch_size_bytes must be multiples of 2 MiB")
	case g.ScratchSizeBytes >= g.RegionSizeBytes:
		return errors.New("server.cuda_graph.scratch_size_bytes: must be less than region_size_bytes")
	}
	return nil
}
