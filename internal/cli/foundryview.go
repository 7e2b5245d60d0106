package cli

import (
	"fmt"
	"slices"
	"strings"

	"assay/internal/foundry"
	"assay/schemas"
)

// inspectDoc is what an archive holds, for people and programs.
type inspectDoc struct {
	Path     string            `json:"path"`
	Layout   string            `json:"layout"`
	Files    int               `json:"files"`
	Bytes    int64             `json:"bytes"`
	Models   []inspectModel    `json:"models"`
	Findings []schemas.Finding `json:"findings"`
}

type inspectModel struct {
	Name  string `json:"name"`
	Dir   string `json:"dir"`
	Bytes int64  `json:"bytes"`
	// What the catalog says that it was saved with; absent without one.
	Binding      string        `json:"binding,omitempty"`
	SeqLenBucket int           `json:"seq_len_bucket,omitempty"`
	BaseAddress  string        `json:"base_address,omitempty"`
	RegionSize   string        `json:"region_size,omitempty"`
	ScratchSize  string        `json:"scratch_size,omitempty"`
	GPUName      string        `json:"gpu_name,omitempty"`
	CUDAVersion  string        `json:"cuda_version,omitempty"`
	Ranks        []inspectRank `json:"ranks"`
}

type inspectRank struct {
	Rank             int             `json:"rank"` // -1 where the folder does not tell
	Dir              string          `json:"dir"`
	BatchSizes       []int           `json:"batch_sizes"`
	Groups           int             `json:"topology_groups"`
	Kernels          int             `json:"kernels"`
	Low              string          `json:"low"`
	High             string          `json:"high"`
	FinalAllocOffset string          `json:"final_alloc_offset,omitempty"`
	Graphs           []inspectGraph  `json:"graphs"`
	Binaries         []inspectBinary `json:"binaries"`
}

type inspectGraph struct {
	Name      string          `json:"name"`
	BatchSize int             `json:"batch_size,omitempty"`
	Nodes     int             `json:"nodes"`
	Kernels   []inspectKernel `json:"kernels"`
	Start     string          `json:"start_base_addr"`
	Low       string          `json:"low"`
	High      string          `json:"high"`
}

type inspectKernel struct {
	Binary   string `json:"binary_hash"`
	Function string `json:"function_name"`
	Nodes    int    `json:"nodes"`
}

type inspectBinary struct {
	Hash      string `json:"hash"`
	Base      string `json:"base_function"`
	Functions int    `json:"functions"`
}

func inspection(name string, a foundry.Archive, findings []schemas.Finding) inspectDoc {
	doc := inspectDoc{Path: name, Layout: a.Layout, Files: len(a.Files), Bytes: a.Bytes, Findings: slices.Concat(bySubject(findings)...)}
	for _, m := range a.Models {
		d := inspectModel{Name: m.Name, Dir: m.Dir}
		for _, f := range a.Files {
			if m.Dir == "." || strings.HasPrefix(f.Path, m.Dir+"/") {
				d.Bytes += f.Size
			}
		}
		if k := m.Catalog; k != nil {
			d.Binding, d.SeqLenBucket = k.Binding, k.SeqLenBucket
			d.BaseAddress, d.RegionSize, d.ScratchSize = addressText(k.BaseAddress), addressText(k.RegionSizeBytes), addressText(k.ScratchSizeBytes)
		}
		if m.State != nil {
			d.GPUName, d.CUDAVersion = m.State.GPUName, m.State.CUDAVersion
		}
		for _, r := range m.Ranks {
			d.Ranks = append(d.Ranks, inspectionOf(r))
		}
		doc.Models = append(doc.Models, d)
	}
	return doc
}

func inspectionOf(r foundry.Rank) inspectRank {
	sizes, _ := r.BatchSizes()
	out := inspectRank{Rank: r.Index, Dir: r.Dir, BatchSizes: sizes, Groups: len(r.Groups)}
	if n := r.FinalAllocOffset; n != nil {
		out.FinalAllocOffset = addressText(*n)
	}
	kernels := map[foundry.Kernel]bool{}
	var low, high foundry.Address
	for _, g := range r.Graphs {
		d := inspectGraph{Name: g.Name}
		if g.Parsed != nil {
			d.BatchSize = g.Parsed.Batch()
		}
		if j := g.Graph; j != nil {
			d.Nodes, d.Start, d.Low, d.High = j.Nodes, j.Memory.Start.String(), j.Memory.Low.String(), j.Memory.High.String()
			for _, k := range j.Kernels {
				d.Kernels = append(d.Kernels, inspectKernel{k.Binary.String(), k.Function, k.Nodes})
				kernels[foundry.Kernel{Binary: k.Binary, Function: k.Function}] = true
			}
			if m := j.Memory; m.Allocs > 0 {
				if high == 0 || m.Low < low {
					low = m.Low
				}
				high = max(high, m.High)
			}
		}
		out.Graphs = append(out.Graphs, d)
	}
	out.Kernels, out.Low, out.High = len(kernels), low.String(), high.String()
	for _, b := range r.Binaries {
		out.Binaries = append(out.Binaries, inspectBinary{Hash: b.Hash.String(), Base: b.Base, Functions: len(b.Functions)})
	}
	return out
}

func inspectionText(doc inspectDoc) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: layout %s, %d models, %d files, %s\n", safeName(doc.Path), doc.Layout, len(doc.Models), doc.Files, schemas.Size(doc.Bytes))
	if len(doc.Models) > 0 {
		t := newTable("model", "rank", "graphs", "batch sizes", "kernels", "binaries", "addresses", "offset", "size").right(1, 2, 4, 5, 8)
		for _, m := range doc.Models {
			size := schemas.Size(m.Bytes).String()
			for _, r := range m.Ranks {
				t.row(firstText(m.Name, m.Dir), rankText(r), fmt.Sprint(len(r.Graphs)), listText(r.BatchSizes), fmt.Sprint(r.Kernels), fmt.Sprint(len(r.Binaries)),
					r.Low+" to "+r.High, firstText(r.FinalAllocOffset, "-"), size)
				size = ""
			}
			if len(m.Ranks) == 0 {
				t.row(firstText(m.Name, m.Dir), "-", "0", "-", "0", "0", "-", "-", size)
			}
		}
		fmt.Fprintf(&b, "%s", t)
	}
	problems := slices.DeleteFunc(slices.Clone(doc.Findings), func(f schemas.Finding) bool { return f.Severity == schemas.SeverityPass })
	if len(problems) == 0 {
		b.WriteString("no problems\n")
		return b.String()
	}
	fmt.Fprintf(&b, "%s\n%s", countSeverities(problems), findingsText(problems))
	return b.String()
}

func rankText(r inspectRank) string {
	if r.Rank < 0 {
		return "?"
	}
	return fmt.Sprint(r.Rank)
}

// addressText writes 64 bits as a text: a JSON number would lose some in most readers.
func addressText(n uint64) string { return foundry.Address(n).String() }

func listText(list []int) string {
	const most = 12
	if len(list) == 0 {
		return "-"
	}
	text := strings.Trim(fmt.Sprint(list[:min(most, len(list))]), "[]")
	if len(list) > most {
		text += fmt.Sprintf(" and %d more", len(list)-most)
	}
	return text
}
