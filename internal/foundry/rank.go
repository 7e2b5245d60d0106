package foundry

import (
	"bufio"
	"cmp"
	"io"
	"math"
	"path"
	"slices"
	"strings"
)

// rank reads the folder of a rank.
func (d *describer) rank(dir string, index int, names []string) Rank {
	r := Rank{Index: index, Dir: dir, names: names}
	has := func(name string) bool { return slices.Contains(names, name) }
	if at := path.Join(dir, ManifestFile); has(ManifestFile) {
		r.manifest = d.whole(at, BadManifest, func(b []byte) (err error) {
			if r.Groups, err = ReadManifest(b); err == nil {
				err = d.keep(countMembers(r.Groups))
			}
			return err
		})
	} else {
		d.add(BadManifest, at, "archive incomplete: it is missing")
	}
	d.packed(&r, has)
	if at := path.Join(dir, OffsetFile); has(OffsetFile) {
		d.whole(at, BadOffset, func(b []byte) error {
			n, err := ReadOffset(b)
			if err == nil {
				r.FinalAllocOffset = &n
			}
			return err
		})
	}
	d.graphs(&r)
	return r
}

// packed reads the packed binaries. Without either of them a worker aborts.
func (d *describer) packed(r *Rank, has func(string) bool) {
	images, entries := path.Join(r.Dir, ImagesFile), path.Join(r.Dir, EntriesFile)
	if has(ImagesFile) {
		r.images = d.stream(images, BadImages, func(in io.Reader) (err error) {
			r.Images, err = ReadImages(bufio.NewReaderSize(in, 1<<16), d.files[images])
			return err
		})
	} else {
		d.add(BadImages, images, "archive incomplete: it is missing")
	}
	if has(EntriesFile) {
		r.entries = d.whole(entries, BadEntries, func(b []byte) (err error) {
			if r.Binaries, err = ReadEntries(b); err == nil {
				err = d.keep(countFunctions(r.Binaries))
			}
			return err
		})
	} else {
		d.add(BadEntries, entries, "archive incomplete: it is missing")
	}
}

// graphs reads both forms of every graph.
func (d *describer) graphs(r *Rank) {
	found := map[string]*GraphFiles{}
	graph := func(stem string) *GraphFiles {
		if found[stem] == nil {
			found[stem] = &GraphFiles{Name: stem}
			if n, ok := ParseGraphName(stem); ok {
				found[stem].Parsed = &n
			}
		}
		return found[stem]
	}
	members := map[string]bool{}
	for _, g := range r.Groups {
		for _, m := range g.Members {
			members[m] = true
		}
	}
	for _, name := range r.names { // first, so that what stands beside one is known
		if stem, ok := strings.CutSuffix(name, packedSuffix); ok {
			g := graph(stem)
			g.hasPacked = true
			d.whole(path.Join(r.Dir, name), BadPacked, func(b []byte) error {
				p, err := ReadPacked(b)
				if err == nil {
					g.Packed = &p
				}
				return err
			})
		}
	}
	for _, name := range r.names {
		stem, ok := strings.CutSuffix(name, jsonSuffix)
		if !ok || slices.Contains([]string{ManifestFile, OffsetFile, StateFile, CatalogFile}, name) {
			continue
		}
		_, named := ParseGraphName(stem)
		d.graph(path.Join(r.Dir, name), named || found[stem] != nil || members[name], func() *GraphFiles { return graph(stem) })
	}
	for _, stem := range sortedKeys(found) {
		r.Graphs = append(r.Graphs, *found[stem])
	}
	slices.SortStableFunc(r.Graphs, func(a, b GraphFiles) int {
		return cmp.Compare(a.index(), b.index())
	})
}

// index orders graphs; those without one come last.
func (g GraphFiles) index() int {
	if g.Parsed == nil {
		return math.MaxInt
	}
	return g.Parsed.Index
}

// graph reads the JSON form. A document that nothing says is a graph is one when it has
// nodes.
func (d *describer) graph(at string, must bool, of func() *GraphFiles) {
	var got Graph
	kind := BadJSON
	if must {
		kind = BadGraph
	}
	ok := d.whole(at, kind, func(b []byte) (err error) {
		if got, err = ReadGraph(b); err == nil {
			err = d.keep(len(got.Kernels))
		}
		if err != nil && !must && !got.any {
			return isDocument(b)
		}
		return err
	})
	if !must && !got.any {
		return
	}
	g := of()
	if g.hasJSON = true; ok {
		g.Graph = &got
	}
}
