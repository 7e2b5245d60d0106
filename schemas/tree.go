package schemas

import (
	"slices"
	"sort"
)

// Kinds of tree entries.
const (
	EntryFile    = "file"
	EntryDir     = "dir"
	EntrySymlink = "symlink"
)

// TreeDigest returns the digest of a tree: the SHA-256 of the RFC 8785 JSON of
// the array of its entries, byte-sorted by path, each an object with path, kind
// and, where they are not empty, executable, size, digest and target. Where the
// bytes are stored (parts) is not part of it. Entries need not be sorted.
func TreeDigest(entries []TreeEntry) (Digest, error) {
	byPath := func(i, j int) bool { return entries[i].Path < entries[j].Path }
	if !sort.SliceIsSorted(entries, byPath) {
		entries = slices.Clone(entries)
		sort.SliceStable(entries, byPath)
	}
	d, _, _, err := SubTreeSums(entries, "")
	return d, err
}

// SubTree returns the entries below prefix with the prefix cut from their
// paths, in their order; all of them for an empty prefix. The entry of the
// prefix itself is left out when it is a folder; when it is a file or a link it
// is the only entry returned, under its base name. So the digest of a sub-tree
// equals the digest of the same folder stored alone.
func SubTree(entries []TreeEntry, prefix string) []TreeEntry {
	if prefix == "" {
		return entries
	}
	var out []TreeEntry
	for _, e := range entries {
		if sub, ok := e.Below(prefix); ok {
			out = append(out, sub)
		}
	}
	return out
}

// SumEntries counts the files of a tree and their bytes.
func SumEntries(entries []TreeEntry) (files int, bytes int64) {
	for _, e := range entries {
		if e.Kind == EntryFile {
			files++
			bytes += e.Size
		}
	}
	return files, bytes
}
