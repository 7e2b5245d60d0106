package foundry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"assay/internal/foundry"
)

// Load checks a model's archive against what it shall be, and returns the number of
// its graphs. Errors say "archive incomplete", "obsolete ABI", "layout mismatch" or
// "binding mismatch", as the loader's do, or what else is wrong.
func Load(dir string, s Spec) (int, error) {
	folder := Folder(dir, s.Model)
	if err := load(folder, s); err != nil {
		return 0, fmt.Errorf("load archive %s: %w", folder, err)
	}
	return len(s.BatchSizes), nil
}

func load(folder string, s Spec) error {
	root, err := os.OpenRoot(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("archive incomplete: model %s has no %s", s.Model, foundry.CatalogFile)
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return check(root.FS(), s)
}

// check holds the folder of a model against what it shall be.
func check(fsys fs.FS, s Spec) error {
	a, err := foundry.Describe(context.Background(), fsys)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(a.Models, func(m foundry.Model) bool { return m.Dir == "." })
	switch {
	case i < 0 || a.Models[i].Catalog == nil:
		for _, p := range a.Problems {
			if p.Path == foundry.CatalogFile {
				return fmt.Errorf("%s: %s", p.Path, p.Text)
			}
		}
		return fmt.Errorf("archive incomplete: model %s has no %s", s.Model, foundry.CatalogFile)
	case len(a.Models) > 1 || len(a.Models[i].Ranks) != 1:
		return errors.New("archive incomplete: want one model with one rank")
	}
	m := a.Models[i]
	if err := matches(*m.Catalog, s); err != nil {
		return err
	}
	return agrees(m.Ranks[0], a.Problems, s)
}

// matches holds what an archive was saved with against what it shall be loaded with.
func matches(c foundry.Catalog, s Spec) error {
	switch {
	case c.ABI != foundry.CatalogABI:
		return fmt.Errorf("obsolete ABI %d: want %d", c.ABI, foundry.CatalogABI)
	case c.Model != s.Model || c.Binding != s.Binding:
		return fmt.Errorf("binding mismatch: saved for %s (%s), wanted for %s (%s)", c.Model, c.Binding, s.Model, s.Binding)
	case c.BaseAddress != s.BaseAddress || c.RegionSizeBytes != s.RegionSizeBytes || c.ScratchSizeBytes != s.ScratchSizeBytes || c.SeqLenBucket != s.SeqLenBucket:
		return errors.New("layout mismatch: base_address, region_size_bytes, scratch_size_bytes and the bucket must be those of the save")
	}
	for _, n := range s.BatchSizes {
		if !slices.Contains(c.BatchSizes, n) {
			return fmt.Errorf("archive incomplete: there is no graph for a batch of %d", n)
		}
	}
	if !slices.Equal(c.BatchSizes, s.BatchSizes) {
		return errors.New("layout mismatch: batch_sizes must be those of the save")
	}
	return nil
}

// agrees wants all files, their memory in the region, no problems, and all graphs.
func agrees(r foundry.Rank, problems []foundry.Problem, s Spec) error {
	first := slices.DeleteFunc(slices.Clone(problems), func(p foundry.Problem) bool { return p.Kind != foundry.Missing })
	first = append(first, r.Outside(s.BaseAddress, s.RegionSizeBytes)...)
	if offset := r.FinalAllocOffset; len(first) == 0 && offset != nil && *offset > s.RegionSizeBytes {
		return fmt.Errorf("layout mismatch: final_alloc_offset %d is beyond the region of %d bytes", *offset, s.RegionSizeBytes)
	}
	if all := append(first, problems...); len(all) > 0 {
		return fmt.Errorf("%s: %s", all[0].Path, all[0].Text)
	}
	switch have, known := r.BatchSizes(); {
	case !known || !slices.Equal(have, s.BatchSizes):
		return fmt.Errorf("archive incomplete: graphs for batches of %d, want %d", have, s.BatchSizes)
	case r.FinalAllocOffset == nil:
		return fmt.Errorf("archive incomplete: there is no %s", foundry.OffsetFile)
	}
	return nil
}
