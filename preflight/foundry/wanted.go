package foundry

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"assay/internal/foundry"
	"assay/schemas"
)

const twoMiB = 2 << 20

// alignment looks at the layout that is asked for, or was saved with.
func alignment(c *checker) {
	check := func(at string, base, region, scratch *uint64) {
		for _, v := range []struct {
			name string
			n    *uint64
		}{{"base_address", base}, {"region_size_bytes", region}, {"scratch_size_bytes", scratch}} {
			if v.n != nil && (*v.n == 0 || *v.n%twoMiB != 0) {
				c.add("foundry.alignment", bad, at, "%s %d is not a positive multiple of 2 MiB", v.name, *v.n)
			}
		}
		if region != nil && scratch != nil && *scratch >= *region {
			c.add("foundry.alignment", bad, at, "scratch_size_bytes %d does not fit region_size_bytes %d", *scratch, *region)
		}
		if base != nil && region != nil && *base+*region < *base {
			c.add("foundry.alignment", bad, at, "the region of %d bytes at %#x ends beyond the last address", *region, *base)
		}
	}
	check("", c.want.BaseAddress, c.want.RegionSizeBytes, c.want.ScratchSizeBytes)
	for _, m := range c.a.Models {
		if k := m.Catalog; k != nil {
			check(path.Join(m.Dir, foundry.CatalogFile), &k.BaseAddress, &k.RegionSizeBytes, &k.ScratchSizeBytes)
		}
	}
}

// inventory holds the files against the record that is handed over. Catalogs are
// inventories themselves, which were looked at when they were read.
func inventory(c *checker) {
	catalogs := c.a.Layout == foundry.LayoutCatalog
	if c.want.Files != nil {
		for _, p := range foundry.Held(c.want.Files, c.a.Files) {
			if at := (schemas.Finding{ID: prefix + p.Kind, Path: p.Path}); !slices.ContainsFunc(c.findings, func(f schemas.Finding) bool { return f.ID == at.ID && f.Path == at.Path }) {
				c.problem(p)
			}
		}
	} else if !catalogs && c.want.Mode == Load {
		c.add("foundry.inventory", unknown, "", "nothing records which files were saved: a changed one cannot be told")
	}
	held := !slices.ContainsFunc([]string{foundry.Missing, foundry.Changed, foundry.Extra}, func(kind string) bool { return c.found(prefix + kind) })
	if held && (catalogs || c.want.Files != nil) {
		c.add(prefix+foundry.Changed, schemas.SeverityPass, "", "%d files are what was saved", len(c.a.Files))
	}
}

// form tells of folders that are of no known form. Mixed ones may still have all that is
// wanted.
func form(c *checker) {
	if c.a.Layout == foundry.LayoutUnknown {
		c.add("foundry.layout", unknown, "", "the folder is of no known form: which models and ranks it is for cannot be told of all of it")
	}
}

// region is the one that a model's addresses have to lie in: what is asked for, else
// what its catalog says.
func (c *checker) region(m foundry.Model) (base, size uint64, ok bool) {
	switch {
	case c.want.BaseAddress != nil && c.want.RegionSizeBytes != nil:
		return *c.want.BaseAddress, *c.want.RegionSizeBytes, true
	case m.Catalog != nil:
		return m.Catalog.BaseAddress, m.Catalog.RegionSizeBytes, true
	}
	return 0, 0, false
}

// addresses holds the memory of all graphs against the region.
func addresses(c *checker) {
	known, graphs := true, 0
	for _, m := range c.a.Models {
		base, size, ok := c.region(m)
		known = known && ok
		for _, r := range m.Ranks {
			if !ok {
				break
			}
			graphs += len(r.Graphs)
			for _, p := range r.Outside(base, size) {
				c.problem(p)
			}
		}
	}
	switch {
	case !known && c.want.Mode == Load:
		c.add("foundry.address", unknown, "", "base_address and region_size_bytes are not known: addresses of graphs cannot be checked")
	case known && graphs > 0 && !c.found("foundry.address"):
		c.add("foundry.address", schemas.SeverityPass, "", "memory of %d graphs lies in the region", graphs)
	}
}

// offsets holds how far memory was laid out against the region and the GPU.
func offsets(c *checker) {
	told := 0
	for _, m := range c.a.Models {
		_, size, ok := c.region(m)
		for _, r := range m.Ranks {
			if r.FinalAllocOffset == nil {
				continue
			}
			told++
			at, offset := path.Join(r.Dir, foundry.OffsetFile), *r.FinalAllocOffset
			if ok && offset > size {
				c.add(prefix+foundry.BadOffset, bad, at, "layout mismatch: final_alloc_offset %d is beyond the region of %d bytes", offset, size)
			}
			c.gpu(at, offset, m)
		}
	}
	if told > 0 && !c.found(prefix+foundry.BadOffset) {
		c.add(prefix+foundry.BadOffset, schemas.SeverityPass, "", "%d ranks say how far memory was laid out", told)
	}
}

func (c *checker) gpu(at string, offset uint64, m foundry.Model) {
	scratch := uint64(0)
	switch {
	case c.want.ScratchSizeBytes != nil:
		scratch = *c.want.ScratchSizeBytes
	case m.Catalog != nil:
		scratch = m.Catalog.ScratchSizeBytes
	}
	if gpu := c.want.GPUMemoryBytes; gpu != nil && offset > scratch && offset-scratch > *gpu {
		c.add("foundry.gpu-memory", bad, at, "final_alloc_offset %d without %d of scratch is more than the GPU's %d bytes", offset, scratch, *gpu)
	}
}

// registered tells what is not known of the configuration.
func registered(c *checker) {
	var out []string
	if c.want.Models == nil {
		out = append(out, "models")
	}
	if c.want.Ranks == nil {
		out = append(out, "ranks")
	}
	if c.want.BatchSizes == nil {
		out = append(out, "batch sizes")
	}
	if len(out) > 0 {
		c.add("foundry.registered", unknown, "", "it is not known which %s will be loaded", strings.Join(out, ", "))
	}
}

// covered looks for a graph of every model, rank and batch size.
func covered(c *checker) {
	for _, name := range c.want.Models {
		m, severity := c.find(name)
		if m == nil {
			text := "archive incomplete: there is none of model %s"
			if severity == unknown {
				text = "it cannot be told whether there is an archive of model %s: no folder is named for it"
			}
			c.add("foundry.model-missing", severity, "", text, name)
			continue
		}
		c.ranks(name, *m)
	}
	if c.want.Models != nil && !c.found("foundry.model-missing") && !c.found("foundry.rank-missing") && !c.found("foundry.batch-missing") {
		c.add("foundry.model-missing", schemas.SeverityPass, "", "every rank and batch size that is registered of %d models is there", len(c.want.Models))
	}
}

// find looks for the archive of a model. Only catalogs say for certain that there is none.
func (c *checker) find(name string) (*foundry.Model, schemas.Severity) {
	for i, m := range c.a.Models {
		if m.Name == name || (m.Catalog == nil && slices.Contains(folderNames(name), path.Base(m.Dir))) {
			return &c.a.Models[i], ""
		}
	}
	if one := c.a.Models; len(one) == 1 && len(c.want.Models) == 1 && one[0].Catalog == nil && one[0].Name == "" {
		return &one[0], "" // the folder is the archive of one model
	}
	if c.a.Layout == foundry.LayoutCatalog || len(c.a.Models) < len(c.want.Models) {
		return nil, bad
	}
	return nil, unknown
}

// folderNames are names that a folder of a model may have.
func folderNames(model string) []string {
	return []string{foundry.Folder(model), path.Base(model), strings.ReplaceAll(model, "/", "_"), strings.ReplaceAll(model, "/", "--"), strings.ReplaceAll(model, "/", "-")}
}

func (c *checker) ranks(name string, m foundry.Model) {
	if slices.ContainsFunc(m.Ranks, func(r foundry.Rank) bool { return r.Index < 0 }) {
		c.add("foundry.rank-missing", unknown, m.Dir, "it cannot be told which ranks of model %s the graphs are for", name)
	} else if c.want.Ranks != nil {
		const more = 8 // of those that are missing are told
		for n := range min(*c.want.Ranks, len(m.Ranks)+more) {
			if !slices.ContainsFunc(m.Ranks, func(r foundry.Rank) bool { return r.Index == n }) {
				c.add("foundry.rank-missing", bad, path.Join(m.Dir, foundry.RankFolder(n)), "archive incomplete: there is no rank %d of model %s", n, name)
			}
		}
	}
	for _, r := range m.Ranks {
		if c.want.Ranks != nil && r.Index >= *c.want.Ranks {
			continue
		}
		have, known := r.BatchSizes()
		severity, text := bad, "archive incomplete: there is no graph for a batch of %d of model %s"
		if !known {
			severity, text = unknown, "it cannot be told whether there is a graph for a batch of %d of model %s: names of graphs do not say it"
		}
		for _, n := range c.want.BatchSizes {
			if !slices.Contains(have, n) {
				c.add("foundry.batch-missing", severity, r.Dir, text, n, name)
			}
		}
	}
}

// savedWith compares the layout that is asked for with the one of the save.
func savedWith(c *checker) {
	for _, m := range c.a.Models {
		at, saved := m.Dir, c.want.Saved
		if m.Catalog != nil {
			at, saved = path.Join(m.Dir, foundry.CatalogFile), &m.Catalog.Spec
		}
		if saved == nil {
			c.add("foundry.saved-with", unknown, at, "the memory layout and bucket that it was saved with are recorded nowhere")
			continue
		}
		for _, d := range c.differences(*saved) {
			c.add("foundry.saved-with", bad, at, "layout mismatch: %s", d)
		}
	}
	if len(c.a.Models) > 0 && !c.found("foundry.saved-with") {
		c.add("foundry.saved-with", schemas.SeverityPass, "", "memory layout, bucket and batch sizes are those of the save, as far as they are given")
	}
}

func (c *checker) differences(saved foundry.Spec) []string {
	var out []string
	differ := func(name string, saved, want any) {
		out = append(out, fmt.Sprintf("%s was %v when it was saved, and is %v", name, saved, want))
	}
	w := c.want
	if w.BaseAddress != nil && *w.BaseAddress != saved.BaseAddress {
		differ("base_address", foundry.Address(saved.BaseAddress), foundry.Address(*w.BaseAddress))
	}
	if w.RegionSizeBytes != nil && *w.RegionSizeBytes != saved.RegionSizeBytes {
		differ("region_size_bytes", saved.RegionSizeBytes, *w.RegionSizeBytes)
	}
	if w.ScratchSizeBytes != nil && *w.ScratchSizeBytes != saved.ScratchSizeBytes {
		differ("scratch_size_bytes", saved.ScratchSizeBytes, *w.ScratchSizeBytes)
	}
	if w.SeqLenBucket != nil && *w.SeqLenBucket != saved.SeqLenBucket {
		differ("the bucket", saved.SeqLenBucket, *w.SeqLenBucket)
	}
	if w.BatchSizes != nil {
		want := slices.Clone(w.BatchSizes)
		slices.Sort(want)
		if want = slices.Compact(want); !slices.Equal(want, saved.BatchSizes) {
			differ("batch_sizes", saved.BatchSizes, want)
		}
	}
	return out
}
