package source

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"assay/schemas"
)

// archives holds every file against the inventory.
func (c *checker) archives() {
	r := c.result.Report
	there, ok := c.walk()
	if !ok {
		return
	}
	if r.ArchiveRoot != "" {
		c.archiveRoot(there)
	}
	listed := map[string]schemas.ValidatedFile{}
	for _, f := range r.Files {
		switch _, twice := listed[f.Path]; {
		case !clean(f.Path):
			c.fail("source.file-path", ReportFile, "files: %q is no path inside the run", f.Path)
			continue
		case twice:
			c.fail("source.file-path", ReportFile, "files: %s is there twice", f.Path)
		}
		listed[f.Path] = f
	}
	for _, p := range slices.Sorted(maps.Keys(listed)) {
		if c.ctx.Err() != nil {
			return
		}
		size, ok := there[p]
		switch f := listed[p]; {
		case !ok:
			c.fail("source.file-missing", p, "the inventory lists it, and it is not there")
		case size != f.Size:
			c.fail("source.file-changed", p, "it has %d bytes, the inventory says %d", size, f.Size)
		default:
			c.hash(p, f.SHA256)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(there)) {
		if _, ok := listed[p]; !ok && p != ReportFile && p != inventoryFile {
			c.fail("source.file-extra", p, "the inventory does not list it")
		}
	}
	if _, ok := there[inventoryFile]; ok {
		c.inventory(listed)
	}
}

// walk lists the files with their sizes. Anything that is neither file nor folder is
// refused.
func (c *checker) walk() (map[string]int64, bool) {
	there, whole := map[string]int64{}, true
	err := fs.WalkDir(c.fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = c.ctx.Err()
		}
		switch {
		case err != nil:
			if c.ctx.Err() == nil {
				c.cannot(p, err)
				whole = false
				return nil
			}
			return err
		case d.IsDir():
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			c.fail("source.file-kind", p, "it is a symbolic link")
			return nil
		case !d.Type().IsRegular():
			c.fail("source.file-kind", p, "it is neither a file nor a folder")
			return nil
		case len(there) >= maxFiles:
			return fmt.Errorf("more than %d files", maxFiles)
		}
		info, err := d.Info()
		if err != nil {
			c.cannot(p, err)
			return nil
		}
		there[p] = info.Size()
		return nil
	})
	if err != nil {
		c.cannot(".", err)
		return nil, false
	}
	return there, whole
}

func (c *checker) archiveRoot(there map[string]int64) {
	root := c.result.Report.ArchiveRoot
	if !clean(root) {
		c.fail("source.archive-root", ReportFile, "archive_root: %q is no path inside the run", root)
		return
	}
	n := 0
	graphs := map[string]bool{}
	for p, size := range there {
		if !strings.HasPrefix(p, root+"/") {
			continue
		}
		n++
		if size == 0 {
			c.fail("source.archive-pair", p, "it is empty")
		}
		if base := path.Base(p); strings.HasSuffix(base, ".cugraph") || strings.HasPrefix(base, "graph_") && strings.HasSuffix(base, ".json") && base != "graph_manifest.json" {
			graphs[strings.TrimSuffix(strings.TrimSuffix(p, ".json"), ".cugraph")] = true
		}
	}
	if n == 0 {
		c.fail("source.archive-root", root, "there is no file of archives in it")
	}
	for _, g := range slices.Sorted(maps.Keys(graphs)) {
		for _, suffix := range []string{".json", ".cugraph"} {
			if _, ok := there[g+suffix]; !ok {
				c.fail("source.archive-pair", g+suffix, "it is missing, and a graph is a pair of .json and .cugraph")
			}
		}
	}
}

// inventory holds the list for sha256sum against the report's own.
func (c *checker) inventory(listed map[string]schemas.ValidatedFile) {
	b, err := c.read(inventoryFile, maxReportBytes)
	if err != nil {
		c.cannot(inventoryFile, err)
		return
	}
	left := maps.Clone(listed)
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		sum, name, ok := strings.Cut(line, "  ")
		f, known := listed[name]
		switch {
		case !ok:
			c.fail("source.inventory", inventoryFile, "line %d is no SHA-256, two spaces and a path", n)
		case !known:
			c.fail("source.inventory", inventoryFile, "line %d: the report does not list %s", n, name)
		case !strings.EqualFold(sum, f.SHA256):
			c.fail("source.inventory", inventoryFile, "line %d: another SHA-256 of %s than in the report", n, name)
		}
		delete(left, name)
	}
	for _, p := range slices.Sorted(maps.Keys(left)) {
		c.fail("source.inventory", inventoryFile, "%s is in the report and not listed", p)
	}
}
