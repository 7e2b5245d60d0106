package foundry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"assay/internal/durable"
	"assay/internal/foundry"
)

const rankFolder = "rank_0"

// Spec is what an archive must have been saved with for it to be loaded.
type Spec = foundry.Spec

type graph struct {
	TopologyKey  string       `json:"topology_key"`
	Nodes        []node       `json:"nodes"`
	Dependencies []dependency `json:"dependencies,omitempty"` // of a template alone
	Generators   []any        `json:"generators"`
	Allocator    allocator    `json:"allocator_events"`
	Outputs      outputs      `json:"output_tensors"`
}

type node struct {
	ID     int    `json:"id"`
	Type   string `json:"type"`
	Params params `json:"params"`
}

type params struct {
	FunctionName string        `json:"function_name,omitempty"`
	BinaryHash   uint64        `json:"kernel_source_binary_hash,omitempty"`
	Kernel       []kernelParam `json:"kernelParams,omitempty"`
}

type kernelParam struct {
	Index    int    `json:"index"`
	Offset   int    `json:"offset"`
	Size     int    `json:"size"`
	ValueHex string `json:"value_hex"`
}

type dependency struct {
	From int `json:"from"`
	To   int `json:"to"`
}

type allocator struct {
	StartBaseAddr uint64       `json:"start_base_addr"`
	Events        []allocEvent `json:"events"`
}

type allocEvent struct {
	Type      string `json:"type"`
	Size      uint64 `json:"size"`
	Ptr       uint64 `json:"ptr"`
	Alignment uint64 `json:"alignment"`
}

type outputs struct {
	Type    string   `json:"type"`
	Tensors []tensor `json:"tensors"`
}

type tensor struct {
	DataPtr uint64 `json:"data_ptr"`
	Sizes   []int  `json:"sizes"`
	Strides []int  `json:"strides"`
	DType   string `json:"dtype"`
}

type manifest struct {
	Groups []foundry.Group `json:"topology_groups"`
}

// encode encodes values of this package's own, which cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("foundry: encode: " + err.Error())
	}
	return b
}

// Folder is that of a model's archive below dir.
func Folder(dir, model string) string { return filepath.Join(dir, foundry.Folder(model)) }

// kernels of a decode step.
var kernels = []string{"embed_tokens_kernel", "paged_attention_decode_kernel", "mlp_gate_up_kernel", "lm_head_gemm_kernel"}

func hash64(parts ...string) uint64 {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// allocation is how far memory is laid out for a graph of a batch.
const allocation = 2 << 20

// Save writes the archive of a model, into a folder that must not exist or be
// empty. It returns the number of graphs. The catalog is written last: without it
// the archive is incomplete.
func Save(dir string, s Spec) (int, error) {
	root := Folder(dir, s.Model)
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("save archive: %w", err)
	}
	if len(entries) > 0 {
		return 0, fmt.Errorf("save archive: %s is not empty: give a new archive_dir", root)
	}
	if err := durable.MkdirAll(filepath.Join(root, rankFolder)); err != nil {
		return 0, fmt.Errorf("save archive: %w", err)
	}
	c := foundry.Catalog{ABI: foundry.CatalogABI, Spec: s}
	for name, content := range contents(s) {
		if err := durable.WriteFile(filepath.Join(root, filepath.FromSlash(name)), content, 0o644); err != nil {
			return 0, fmt.Errorf("save archive: %w", err)
		}
		sum := sha256.Sum256(content)
		c.Files = append(c.Files, foundry.File{Path: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
	}
	slices.SortFunc(c.Files, func(a, b foundry.File) int {
		if a.Path < b.Path {
			return -1
		}
		return 1
	})
	if err := durable.WriteFile(filepath.Join(root, foundry.CatalogFile), append(encode(c), '\n'), 0o644); err != nil {
		return 0, fmt.Errorf("save archive: %w", err)
	}
	return len(s.BatchSizes), nil
}

// contents are the files of an archive by path.
func contents(s Spec) map[string][]byte {
	bin := deviceBinary{hash: hash64("binary", s.Binding), name: "decode.cubin", funcs: kernels, image: []byte("emulated device binary of " + s.Binding + "\n")}
	out := map[string][]byte{
		rankFolder + "/" + foundry.ImagesFile:  packImages([]deviceBinary{bin}),
		rankFolder + "/" + foundry.EntriesFile: packEntries([]deviceBinary{bin}),
	}
	key := fmt.Sprintf("%016x", hash64("topology", s.Binding))
	g := foundry.Group{TopologyKey: key}
	offset := uint64(allocation)
	for i, batch := range s.BatchSizes {
		name := fmt.Sprintf("graph_%d_FULL_t%d_r%d_UX_pcN", i, batch, batch)
		made := graphOf(s, bin.hash, key, batch, offset)
		offset += allocation
		out[rankFolder+"/"+name+".cugraph"] = packGraph(made)
		if i > 0 {
			made.Dependencies = nil
		}
		out[rankFolder+"/"+name+".json"] = append(encode(made), '\n')
		g.Members = append(g.Members, name+".json")
	}
	g.Template = g.Members[0]
	out[rankFolder+"/"+foundry.ManifestFile] = append(encode(manifest{Groups: []foundry.Group{g}}), '\n')
	out[rankFolder+"/"+foundry.OffsetFile] = append(encode(map[string]uint64{"final_alloc_offset": offset}), '\n')
	out[foundry.StateFile] = append(encode(map[string]any{
		"vllm_version": "emulated", "timestamp": 0, "cuda_version": "emulated", "gpu_name": "emulated", "gpu_total_memory": 0, "available_gpu_memory": []int{0},
		"num_gpu_blocks": 0, "num_cpu_blocks": 0, "gpu_memory_utilization": 0, "final_alloc_offset": offset,
	}), '\n')
	return out
}

func graphOf(s Spec, binaryHash uint64, key string, batch int, offset uint64) graph {
	g := graph{TopologyKey: key, Generators: []any{}}
	ptr := s.BaseAddress + offset
	for i, k := range kernels {
		value := hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, ptr+uint64(i)*256))
		g.Nodes = append(g.Nodes, node{ID: i, Type: "KernelNode", Params: params{FunctionName: k, BinaryHash: binaryHash, Kernel: []kernelParam{{Size: 8, ValueHex: value}}}})
		if i > 0 {
			g.Dependencies = append(g.Dependencies, dependency{From: i - 1, To: i})
		}
	}
	g.Allocator = allocator{StartBaseAddr: s.BaseAddress, Events: []allocEvent{{Type: "alloc", Size: allocation, Ptr: ptr, Alignment: 512}}}
	g.Outputs = outputs{Type: "single", Tensors: []tensor{{DataPtr: ptr, Sizes: []int{batch, 1}, Strides: []int{1, 1}, DType: "bfloat16"}}}
	return g
}
