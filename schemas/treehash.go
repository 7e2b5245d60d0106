package schemas

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"strings"
)

// TreeHasher makes the digest of a tree, and its sums, from entries that come one
// by one, byte-sorted by path. See TreeDigest.
type TreeHasher struct {
	Files int
	Bytes int64 // of files

	h     hash.Hash
	buf   []byte
	n     int
	last  string
	first bool
}

// NewTreeHasher begins a tree without entries.
func NewTreeHasher() *TreeHasher {
	return &TreeHasher{h: sha256.New(), buf: []byte{'['}, first: true}
}

// Add takes the next entry. One that is not after the one before, or whose size
// no document can carry, is an error.
func (t *TreeHasher) Add(e TreeEntry) error {
	if !t.first && e.Path < t.last {
		return fmt.Errorf("tree digest: %s comes after %s: entries must be sorted", e.Path, t.last)
	}
	buf, err := appendEntry(comma(t.buf, t.n), e, false)
	if err != nil {
		return fmt.Errorf("tree digest: %s: %w", e.Path, err)
	}
	if len(buf) > 1<<14 {
		t.h.Write(buf)
		buf = buf[:0]
	}
	t.buf, t.last, t.first = buf, e.Path, false
	t.n++
	if e.Kind == EntryFile {
		t.Files++
		t.Bytes += e.Size
	}
	return nil
}

// Digest is the digest of the entries so far, after which nothing may be added.
func (t *TreeHasher) Digest() Digest {
	t.h.Write(append(t.buf, ']'))
	return DigestFromSum(t.h.Sum(nil))
}

// Below returns an entry as it stands in the sub-tree at prefix, and whether it
// is in there. See SubTree.
func (e TreeEntry) Below(prefix string) (TreeEntry, bool) {
	switch {
	case prefix == "":
		return e, true
	case len(e.Path) > len(prefix) && e.Path[len(prefix)] == '/' && e.Path[:len(prefix)] == prefix:
		e.Path = e.Path[len(prefix)+1:]
		return e, true
	case e.Path == prefix && e.Kind != EntryDir:
		e.Path = prefix[strings.LastIndexByte(prefix, '/')+1:]
		return e, true
	}
	return e, false
}

// SubTreeSums is TreeDigest and SumEntries of SubTree, without a copy of the
// entries, which must be sorted.
func SubTreeSums(entries []TreeEntry, prefix string) (d Digest, files int, bytes int64, err error) {
	h := NewTreeHasher()
	for _, e := range entries {
		if sub, ok := e.Below(prefix); ok {
			if err := h.Add(sub); err != nil {
				return "", 0, 0, err
			}
		}
	}
	return h.Digest(), h.Files, h.Bytes, nil
}
