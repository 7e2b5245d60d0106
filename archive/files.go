package archive

import (
	"cmp"
	"fmt"
	"slices"
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
// that lead there. Where two trees name the same path they must agree; where the
// bytes lie is what the first says. tree hands on the entries of a tree.
func fileList(mounts []mount, tree func(m mount, each func(schemas.TreeEntry) error) (schemas.Tree, error)) (schemas.Tree, error) {
	l := &listing{folders: map[string]bool{}}
	var blobs []schemas.Blob
	for _, m := range mounts {
		l.leadTo(m.path)
		t, err := tree(m, func(e schemas.TreeEntry) error {
			e.Path = l.join(m.path, e.Path)
			return l.add(e)
		})
		if err != nil {
			return schemas.Tree{}, fmt.Errorf("%s: %w", m.who, err)
		}
		blobs = append(blobs, t.Blobs...)
	}
	list := schemas.Tree{Schema: schemas.TreeV1, Blobs: uniqueBlobs(blobs)}
	var err error
	if list.Entries, err = l.union(mounts); err != nil {
		return schemas.Tree{}, err
	}
	if list.Digest, err = checkTreeShape(list); err != nil {
		return schemas.Tree{}, fmt.Errorf("file list: %w", err)
	}
	return list, nil
}

// listing gathers the entries of a file list in the order of the mounts.
type listing struct {
	entries []schemas.TreeEntry
	folders map[string]bool // those that lead to a tree
	text    strings.Builder
}

func (l *listing) add(e schemas.TreeEntry) error {
	// A path may be in several trees, but who has twice the limit has too many.
	if len(l.entries) >= 2*maxEntries {
		return fmt.Errorf("file list: more entries than the limit of %d", maxEntries)
	}
	l.entries = append(l.entries, e)
	return nil
}

func (l *listing) leadTo(p string) {
	if p == "." || l.folders[p] {
		return
	}
	l.leadTo(dirOf(p))
	l.folders[p] = true
	l.entries = append(l.entries, schemas.TreeEntry{Path: p, Kind: schemas.EntryDir})
}

// join puts paths end to end in memory: many are one allocation.
func (l *listing) join(dir, name string) string {
	const slab = 1 << 16
	if n := len(dir) + 1 + len(name); l.text.Cap()-l.text.Len() < n {
		l.text.Reset()
		l.text.Grow(max(slab, n))
	}
	start := l.text.Len()
	l.text.WriteString(dir)
	l.text.WriteByte('/')
	l.text.WriteString(name)
	return l.text.String()[start:]
}

// union sorts the entries and drops those that are there twice.
func (l *listing) union(mounts []mount) ([]schemas.TreeEntry, error) {
	permute(l.entries, orderByPath(l.entries))
	out := l.entries[:0]
	for _, e := range l.entries {
		if len(out) == 0 || out[len(out)-1].Path != e.Path {
			out = append(out, e)
		} else if !sameEntry(out[len(out)-1], e) {
			return nil, fmt.Errorf("%s: another stage or service has a different %s", lastAt(mounts, e.Path), e.Path)
		}
	}
	clear(l.entries[len(out):])
	return out, nil
}

// orderByPath says which entry comes first, second and so on; those of one path
// keep their order. Numbers are sorted, since entries are long. Nil: as they are.
func orderByPath(list []schemas.TreeEntry) []int32 {
	if slices.IsSortedFunc(list, func(a, b schemas.TreeEntry) int { return strings.Compare(a.Path, b.Path) }) {
		return nil
	}
	order := make([]int32, len(list))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(strings.Compare(list[a].Path, list[b].Path), cmp.Compare(a, b))
	})
	return order
}

// permute puts list[order[i]] at i, without a second list.
func permute[T any](list []T, order []int32) {
	for i := range order {
		held := list[i]
		for at := i; order[at] >= 0; {
			next := order[at]
			order[at] = ^next // done
			if int(next) == i {
				list[at] = held
				break
			}
			list[at], at = list[next], int(next)
		}
	}
	for i := range order {
		order[i] = ^order[i]
	}
}

// lastAt is who names a path last.
func lastAt(mounts []mount, p string) string {
	for _, m := range slices.Backward(mounts) {
		if within(p, m.path) || within(m.path, p) {
			return m.who
		}
	}
	return "the file list"
}

// sameEntry compares what a tree's digest covers.
func sameEntry(a, b schemas.TreeEntry) bool {
	return a.Path == b.Path && a.Kind == b.Kind && a.Executable == b.Executable &&
		a.Size == b.Size && a.Digest == b.Digest && a.Target == b.Target
}
