package foundry

import (
	"errors"
	"fmt"
)

// Group is a group of graphs with the same nodes and dependencies in the manifest.
type Group struct {
	TopologyKey string   `json:"topology_key"`
	Template    string   `json:"template"`
	Members     []string `json:"members"`
}

const maxMembers = 1 << 20

// ReadManifest reads graph_manifest.json.
func ReadManifest(b []byte) ([]Group, error) {
	var out []Group
	members := 0
	err := fields(b, []string{"topology_groups"}, func(p *parser, key string) error {
		if key != "topology_groups" {
			return p.skip()
		}
		return p.list(func() error {
			g, err := readGroup(p)
			if members += 1 + len(g.Members); err == nil && members > maxMembers {
				return p.wrong("more than %d members", maxMembers)
			}
			out = append(out, g)
			return err
		})
	})
	return out, err
}

func readGroup(p *parser) (g Group, err error) {
	err = p.object(func(key string) (err error) {
		switch key {
		case "topology_key":
			g.TopologyKey, err = p.text()
		case "template":
			g.Template, err = p.text()
		case "members":
			err = p.list(func() error {
				s, err := p.text()
				if g.Members = append(g.Members, s); err == nil && len(g.Members) > maxMembers {
					return p.wrong("more than %d members", maxMembers)
				}
				return err
			})
		default:
			err = p.skip()
		}
		return err
	})
	if err == nil && (g.Template == "" || len(g.Members) == 0) {
		return g, p.wrong("a group without template or members")
	}
	return g, err
}

// ReadOffset reads final_alloc_offset.json.
func ReadOffset(b []byte) (offset uint64, err error) {
	err = fields(b, []string{"final_alloc_offset"}, func(p *parser, key string) (err error) {
		if key == "final_alloc_offset" {
			offset, err = p.whole()
			return err
		}
		return p.skip()
	})
	return offset, err
}

// State is what warmup_state.json says of the engine and the GPU that a model was saved
// with.
type State struct {
	VLLMVersion      string  `json:"vllm_version"`
	CUDAVersion      string  `json:"cuda_version"`
	GPUName          string  `json:"gpu_name"`
	GPUMemoryBytes   uint64  `json:"gpu_total_memory"`
	FinalAllocOffset *uint64 `json:"final_alloc_offset"`
}

// ReadState reads warmup_state.json. No field has to be there: each integration writes
// its own.
func ReadState(b []byte) (State, error) {
	var s State
	text := func(p *parser, into *string) (err error) {
		if p.peek() != '"' {
			return p.skip()
		}
		*into, err = p.text()
		return err
	}
	err := fields(b, nil, func(p *parser, key string) (err error) {
		switch key {
		case "vllm_version":
			return text(p, &s.VLLMVersion)
		case "cuda_version":
			return text(p, &s.CUDAVersion)
		case "gpu_name":
			return text(p, &s.GPUName)
		case "gpu_total_memory":
			s.GPUMemoryBytes, err = p.whole()
			return err
		case "final_alloc_offset":
			var n uint64
			n, err = p.whole()
			s.FinalAllocOffset = &n
			return err
		}
		return p.skip()
	})
	return s, err
}

// CatalogABI is the version of a catalog.
const CatalogABI = 1

// Spec is what an archive must have been saved with for it to be loaded.
type Spec struct {
	Model string `json:"model"`
	// Binding says which weights the graphs are bound to.
	Binding          string `json:"binding"`
	BatchSizes       []int  `json:"batch_sizes"` // sorted
	SeqLenBucket     int    `json:"seq_len_bucket"`
	BaseAddress      uint64 `json:"base_address"`
	RegionSizeBytes  uint64 `json:"region_size_bytes"`
	ScratchSizeBytes uint64 `json:"scratch_size_bytes"`
}

// Catalog lists what an archive of assay's own holds, and what it was saved with.
type Catalog struct {
	ABI int `json:"abi"`
	Spec
	Files []File `json:"files"` // sorted by path
}

// File is one file and its content.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

const (
	maxBatch   = 1 << 20
	maxBatches = 1 << 12
)

// ReadCatalog reads catalog.json. The ABI is not judged.
func ReadCatalog(b []byte) (Catalog, error) {
	var c Catalog
	need := []string{"abi", "model", "batch_sizes", "seq_len_bucket", "base_address", "region_size_bytes", "scratch_size_bytes", "files"}
	err := fields(b, need, func(p *parser, key string) (err error) {
		switch key {
		case "abi":
			c.ABI, err = small(p)
		case "model":
			c.Model, err = p.text()
		case "binding":
			c.Binding, err = p.text()
		case "batch_sizes":
			err = p.list(func() error {
				n, err := small(p)
				if c.BatchSizes = append(c.BatchSizes, n); err == nil && (n < 1 || n > maxBatch || len(c.BatchSizes) > maxBatches) {
					return p.wrong("a batch of %d, or more than %d of them", n, maxBatches)
				}
				return err
			})
		case "seq_len_bucket":
			c.SeqLenBucket, err = small(p)
		case "base_address":
			c.BaseAddress, err = p.whole()
		case "region_size_bytes":
			c.RegionSizeBytes, err = p.whole()
		case "scratch_size_bytes":
			c.ScratchSizeBytes, err = p.whole()
		case "files":
			err = p.list(func() error { return c.file(p) })
		default:
			err = p.skip()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil && c.Model == "" {
		return c, errors.New("model is empty")
	}
	return c, err
}

// small is a number that an int holds on every machine.
func small(p *parser) (int, error) {
	n, err := p.whole()
	if err == nil && n > 1<<31-1 {
		return 0, p.wrong("%d is too large", n)
	}
	return int(n), err
}

func (c *Catalog) file(p *parser) error {
	var f File
	err := p.object(func(key string) (err error) {
		switch key {
		case "path":
			f.Path, err = p.text()
		case "sha256":
			f.SHA256, err = p.text()
		case "size":
			var n uint64
			if n, err = p.whole(); err == nil && n > 1<<62 {
				return p.wrong("%d bytes", n)
			}
			f.Size = int64(n)
		default:
			err = p.skip()
		}
		return err
	})
	if c.Files = append(c.Files, f); err == nil && len(c.Files) > MaxFiles {
		return p.wrong("more than %d files", MaxFiles)
	}
	return err
}
