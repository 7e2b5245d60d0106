package foundry

import (
	"path"
	"slices"
	"strings"

	"assay/internal/foundry"
	"assay/schemas"
)

// OfReport is what the report of a validated run says that its archives hold. gpuBytes
// is the memory of a GPU here, 0 for not known.
func OfReport(r schemas.Validated, gpuBytes uint64) Registered {
	g := r.Graph
	sizes := slices.Clone(g.BatchSizes)
	slices.Sort(sizes)
	want := Registered{Mode: Load, Proven: true, BatchSizes: slices.Compact(sizes), SeqLenBucket: &g.SeqLenBucket,
		BaseAddress: bytesOf(g.BaseAddress), RegionSizeBytes: bytesOf(g.RegionSizeBytes), ScratchSizeBytes: bytesOf(g.ScratchSizeBytes)}
	want.Saved = &foundry.Spec{BatchSizes: want.BatchSizes, SeqLenBucket: g.SeqLenBucket, BaseAddress: *want.BaseAddress, RegionSizeBytes: *want.RegionSizeBytes, ScratchSizeBytes: *want.ScratchSizeBytes}
	if gpuBytes > 0 {
		want.GPUMemoryBytes = &gpuBytes
	}
	ranks := 1
	for _, m := range r.Models {
		want.Models = append(want.Models, m.Name)
		ranks = max(ranks, m.Ranks)
	}
	if r.Emulated {
		ranks = 1 // the emulated engine saves one, however many decode
	}
	want.Ranks = &ranks
	below := path.Clean(r.ArchiveRoot) + "/"
	if below == "./" {
		below = ""
	}
	for _, f := range r.Files {
		if rest, ok := strings.CutPrefix(f.Path, below); ok {
			want.Files = append(want.Files, foundry.File{Path: rest, Size: f.Size, SHA256: f.SHA256})
		}
	}
	return want
}

func bytesOf(n int64) *uint64 {
	u := uint64(max(n, 0))
	return &u
}
