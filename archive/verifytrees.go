package archive

import (
	"fmt"
	"io"
	"path"
	"sort"
	"strings"

	"assay/schemas"
)

// treeVerifier checks every tree of a run while it is read, and keeps none: the
// outputs of the records that have it, and its part of the file list.
type treeVerifier struct {
	v      *verifier
	mounts map[schemas.Digest][]mount
	sound  map[schemas.Digest]bool // trees that were read
	// seen are the entries of the file list that a tree has; nil when the list
	// cannot be compared.
	seen    []bool
	differs string // the first path at which list and trees differ
}

func (v *verifier) newTreeVerifier() *treeVerifier {
	x := &treeVerifier{v: v, mounts: map[schemas.Digest][]mount{}, sound: map[schemas.Digest]bool{}}
	mounts, err := mountsOf(*v.config)
	if err != nil || v.files == nil {
		return x
	}
	x.seen = make([]bool, len(v.files.Entries))
	for _, m := range mounts {
		x.mounts[m.tree] = append(x.mounts[m.tree], m)
		for p := m.path; p != "."; p = path.Dir(p) {
			x.compare(x.at(p), p, schemas.TreeEntry{Path: p, Kind: schemas.EntryDir})
		}
	}
	return x
}

// read checks one tree; f is what a finding about it begins with.
func (x *treeVerifier) read(doc docRef, f schemas.Finding) {
	outputs := x.outputsOf(doc.digest)
	places := x.placesOf(doc.digest)
	in, err := x.v.openDoc(doc.digest, doc.title)
	var wrong error
	if err == nil {
		err = drainDoc(in, func(r io.Reader) error {
			_, wrong = scanTree(r, func(e schemas.TreeEntry) error {
				for _, p := range places {
					p.take(e)
				}
				return outputs.add(e)
			})
			return nil
		})
	}
	switch {
	case err != nil:
		x.v.bad[doc.digest] = true
		f.ID = faultID(err)
		x.v.fault(err, f)
	case wrong != nil:
		f.ID, f.Message = "archive.tree", wrong.Error()
		x.v.add(f)
	default:
		x.sound[doc.digest] = true
		x.checkOutputs(doc.digest, outputs)
	}
}

// place is where one tree stands in the file list, and how far it was compared.
type place struct {
	x    *treeVerifier
	path string // of the mount, with a slash
	next int    // in the file list
}

func (x *treeVerifier) placesOf(tree schemas.Digest) (out []*place) {
	if x.seen == nil {
		return nil
	}
	for _, m := range x.mounts[tree] {
		p := m.path + "/"
		out = append(out, &place{x, p, x.at(p)})
	}
	return out
}

// take compares the next entry of the tree with the file list: both are sorted.
func (p *place) take(e schemas.TreeEntry) {
	list := p.x.v.files.Entries
	for p.next < len(list) {
		rest, ok := strings.CutPrefix(list[p.next].Path, p.path)
		if !ok || rest >= e.Path {
			break
		}
		p.next++ // of another tree, or missing in this one: seen tells
	}
	if p.next < len(list) {
		if rest, ok := strings.CutPrefix(list[p.next].Path, p.path); ok && rest == e.Path {
			e.Path = list[p.next].Path
			p.x.compare(p.next, e.Path, e)
			return
		}
	}
	p.x.differ(p.path + e.Path)
}

// at is where a path is in the file list, or would be.
func (x *treeVerifier) at(p string) int {
	list := x.v.files.Entries
	return sort.Search(len(list), func(i int) bool { return list[i].Path >= p })
}

func (x *treeVerifier) compare(i int, p string, want schemas.TreeEntry) {
	if list := x.v.files.Entries; i < len(list) && sameEntry(list[i], want) {
		x.seen[i] = true
		return
	}
	x.differ(p)
}

func (x *treeVerifier) differ(p string) {
	if x.differs == "" || p < x.differs {
		x.differs = strings.Clone(p)
	}
}

// end says whether the file list is the union of the trees.
func (x *treeVerifier) end() {
	if x.seen == nil {
		return
	}
	for tree := range x.mounts {
		if !x.sound[tree] {
			return // has a finding of its own
		}
	}
	for i, seen := range x.seen {
		if !seen {
			x.differ(x.v.files.Entries[i].Path)
			break
		}
	}
	if x.differs == "" {
		return
	}
	f := schemas.Finding{ID: "archive.files", Subject: nameFiles, Blob: x.v.config.FileList, Path: nameFiles, Paths: []string{x.differs},
		Message: fmt.Sprintf("the file list is not the union of the trees: it first differs at %s", x.differs)}
	f.Stage, f.Trial = x.v.owner(x.differs)
	x.v.add(f)
}

// outputSums are the sums of the outputs in one tree by their paths.
type outputSums map[string]*schemas.TreeHasher

func (x *treeVerifier) outputsOf(tree schemas.Digest) outputSums {
	sums := outputSums{}
	for _, r := range x.v.config.Records {
		if r.Record.Tree != tree {
			continue
		}
		for _, o := range r.Record.Outputs {
			sums[o.Path] = schemas.NewTreeHasher()
		}
	}
	return sums
}

func (s outputSums) add(e schemas.TreeEntry) error {
	for p, h := range s {
		if sub, ok := e.Below(p); ok {
			if err := h.Add(sub); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOutputs compares the outputs of every record that has the tree.
func (x *treeVerifier) checkOutputs(tree schemas.Digest, sums outputSums) {
	digests := map[string]schemas.Digest{}
	for p, h := range sums {
		digests[p] = h.Digest()
	}
	for _, r := range x.v.config.Records {
		if r.Record.Tree != tree {
			continue
		}
		for _, o := range r.Record.Outputs {
			var err error
			if got := digests[o.Path]; got != o.Digest {
				err = fmt.Errorf("output %s hashes to %s, the record says %s", o.Name, got, o.Digest)
			} else if h := sums[o.Path]; h.Files != o.Files || h.Bytes != o.Bytes {
				err = fmt.Errorf("output %s has %d files of %d bytes, the record says %d of %d", o.Name, h.Files, h.Bytes, o.Files, o.Bytes)
			}
			if err != nil {
				x.v.add(schemas.Finding{ID: "archive.output", Subject: r.Node, Message: err.Error(), Blob: tree,
					Stage: r.Record.Stage, Trial: r.Record.Trial, Path: r.Path + "/" + o.Path})
			}
		}
	}
}
