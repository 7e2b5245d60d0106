package emulated

import (
	"errors"
	"fmt"
	"slices"

	"assay/internal/serving"
)

// The modes of CUDAGraph.
const (
	graphsOff  = "off"
	graphsSave = "save"
	graphsLoad = "load"
)

// alignment of the addresses and sizes of a graph's memory.
const graphAlignment = 2 << 20

var defaultBatchSizes = []int{1, 2, 4, 8}

// checkSystem is what the keys beside models cannot say for themselves.
func (c Config) checkSystem() error {
	if c.Serving == nil {
		if c.Personality == PersonalityAegaeon {
			return errors.New("serving: is missing: personality aegaeon is a system of workers")
		}
		for i, m := range c.Models {
			if m.Base != "" || m.Undeployed {
				return fmt.Errorf("models[%d]: base and undeployed mean nothing without serving: give the system that serves", i)
			}
		}
	} else if _, err := c.System(); err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	if c.Profile != nil {
		if c.Personality != PersonalityPyPTO && c.Personality != PersonalityVLLM {
			return errors.New("profile: only the personalities pypto and vllm can be profiled")
		}
		if _, err := parseLevels(c.Profile.Level); err != nil {
			return fmt.Errorf("profile.level: %w", err)
		}
	}
	return c.checkGraphs()
}

func (c Config) checkGraphs() error {
	g := c.CUDAGraph
	if g == nil || g.Mode == graphsOff {
		return nil
	}
	aligned := func(n uint64) bool { return n > 0 && n%graphAlignment == 0 }
	switch {
	case c.Personality != PersonalityAegaeon || c.Serving == nil || c.Serving.Text("policy") != serving.PolicyAegaeon:
		return errors.New("cuda_graph: graphs are for personality aegaeon with serving of policy aegaeon: decode workers alone have them")
	case g.ArchiveDir == "":
		return fmt.Errorf("cuda_graph.archive_dir: is missing: mode %s wants a folder of archives", g.Mode)
	case slices.ContainsFunc(g.BatchSizes, func(n int) bool { return n < 1 || n > 1<<16 }):
		return errors.New("cuda_graph.batch_sizes: want whole numbers of 1 or more")
	case !aligned(g.BaseAddress) || !aligned(g.RegionSizeBytes) || !aligned(g.ScratchSizeBytes):
		return errors.New("cuda_graph: base_address, region_size_bytes and scratch_size_bytes must be multiples of 2 MiB")
	case g.ScratchSizeBytes >= g.RegionSizeBytes:
		return errors.New("cuda_graph.scratch_size_bytes: must be less than region_size_bytes")
	}
	return nil
}

// batchSizes are sorted and without repetitions.
func (g *CUDAGraph) batchSizes() []int {
	if len(g.BatchSizes) == 0 {
		return slices.Clone(defaultBatchSizes)
	}
	sizes := slices.Clone(g.BatchSizes)
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func (c Config) bases() []serving.Alias {
	out := make([]serving.Alias, len(c.Models))
	for i, m := range c.Models {
		out[i] = serving.Alias{Name: m.Name, Base: m.Base}
		if m.Base == "" {
			out[i].Base = serving.AliasBase(i)
		}
	}
	return out
}

// System is the model of the serving system that Serving describes.
func (c Config) System() (serving.Config, error) {
	set := c.Serving
	s := serving.ConfigOf(set, set.Text("policy"), set.Int("workers"), set.Int("prefill_workers"))
	s.TPOTTargetS = set.Duration("tpot").Seconds()
	if s.LoadGBps = s.BandwidthGBps; set.Has("load_gb_per_s") {
		s.LoadGBps = set.Float("load_gb_per_s")
	}
	var err error
	if s.Device, err = serving.DeviceOf(set, set.Text("device")); err != nil {
		return s, err
	}
	in := serving.Input{Models: c.bases()}
	bases, err := in.BaseModels()
	if err != nil {
		return s, err
	}
	fits, _, err := serving.LatenciesOf(set, s.Device.Name, bases)
	if err != nil {
		return s, err
	}
	if s.Models, err = in.Served(fits); err != nil {
		return s, err
	}
	for i, m := range c.Models {
		if m.Undeployed {
			s.Undeployed = append(s.Undeployed, i)
		}
	}
	if g := c.CUDAGraph; g != nil && g.Mode != graphsOff {
		s.Graphs = &serving.Graphs{BatchSizes: g.batchSizes(), MaxSeqLen: g.SeqLenBucket, Factor: g.DecodeFactor, Ready: g.Mode == graphsLoad}
	}
	return s, s.Check()
}
