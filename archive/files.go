package archive

import (
	"errors"
	"fmt"
	"path"
	"sort"
	"strings"

	"assay/schemas"
)

// mount is a tree and where it stands in a run's file list.
type mount struct {
	path string
	tree schemas.Digest // blob of the tree document
	who  string         // for messages: the node or service it belongs to
}

// mountsOf lists the trees of a run in the order of its config.
func mountsOf(run schemas.Run) ([]mount, error) {
	var out []mount
	add := func(p string, tree schemas.Digest, who string) error {
		if (p == "") != (tree == "") {
			return fmt.Errorf("%s: a tree and its path must be given together (tree %q, path %q)", who, string(tree), p)
		}
		if p == "" {
			return nil
		}
		if err := checkPath(p); err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
		if top, _, _ := strings.Cut(p, "/"); reservedTop(top) {
			return fmt.Errorf("%s: path %q begins with a name that extracted runs use themselves", who, p)
		}
		if !tree.Valid() {
			return fmt.Errorf("%s: tree %q is no digest", who, string(tree))
		}
		out = append(out, mount{p, tree, who})
		return nil
	}
	for _, r := range run.Records {
		if err := add(r.Path, r.Record.Tree, "stage "+r.Node); err != nil {
			return nil, err
		}
	}
	for _, s := range run.Services {
		if err := add(s.Path, s.Tree, "service "+s.Unit); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func reservedTop(name string) bool {
	switch name {
	case nameReport, nameExperiment, nameSource:
		return true
	}
	return strings.HasPrefix(name, "assay-")
}

// fileList is the union of the trees, each below its path, with the folders
// that lead there. Where two trees name the same path they must agree.
func fileList(mounts []mount, tree func(mount) (schemas.Tree, error)) (schemas.Tree, error) {
	union := map[string]schemas.TreeEntry{}
	var blobs []schemas.Blob
	add := func(e schemas.TreeEntry, who string) error {
		if have, ok := union[e.Path]; ok && !sameEntry(have, e) {
			return fmt.Errorf("%s: another stage or service has a different %s", who, e.Path)
		} else if !ok {
			union[e.Path] = e
		}
		return nil
	}
	for _, m := range mounts {
		t, err := tree(m)
		if err != nil {
			return schemas.Tree{}, fmt.Errorf("%s: %w", m.who, err)
		}
		for p := m.path; p != "."; p = path.Dir(p) {
			if err := add(schemas.TreeEntry{Path: p, Kind: schemas.EntryDir}, m.who); err != nil {
				return schemas.Tree{}, err
			}
		}
		for _, e := range t.Entries {
			e.Path = m.path + "/" + e.Path
			if err := add(e, m.who); err != nil {
				return schemas.Tree{}, err
			}
		}
		blobs = append(blobs, t.Blobs...)
	}
	list := schemas.Tree{Schema: schemas.TreeV1, Entries: make([]schemas.TreeEntry, 0, len(union)), Blobs: uniqueBlobs(blobs)}
	for _, e := range union {
		list.Entries = append(list.Entries, e)
	}
	sort.Slice(list.Entries, func(i, j int) bool { return list.Entries[i].Path < list.Entries[j].Path })
	d, err := schemas.TreeDigest(list.Entries)
	list.Digest = d
	return list, errors.Join(err, sizeOfList(list))
}

func sizeOfList(list schemas.Tree) error {
	if len(list.Entries) > maxEntries {
		return fmt.Errorf("file list: %d entries, more than the limit of %d", len(list.Entries), maxEntries)
	}
	return nil
}

// sameEntry compares what a tree's digest covers.
func sameEntry(a, b schemas.TreeEntry) bool {
	return a.Path == b.Path && a.Kind == b.Kind && a.Executable == b.Executable &&
		a.Size == b.Size && a.Digest == b.Digest && a.Target == b.Target
}
