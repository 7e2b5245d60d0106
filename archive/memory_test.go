package archive

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"assay/schemas"
)

// The limit holds while anybody holds a large tree, and no longer; one that is
// lower, or was set by somebody else meanwhile, is left alone.
func TestMemoryBound(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	want := func(limit int64, when string) {
		t.Helper()
		if got := debug.SetMemoryLimit(-1); got != limit {
			t.Errorf("%s: the limit is %d, want %d", when, got, limit)
		}
	}
	boundMemory(false)()
	want(before, "small")
	one, two := boundMemory(true), boundMemory(true)
	want(treeMemoryBytes, "two held")
	one()
	one()
	want(treeMemoryBytes, "one let go, twice")
	two()
	want(before, "none held")

	debug.SetMemoryLimit(1 << 20)
	one = boundMemory(true)
	want(1<<20, "a lower one")
	one()
	want(1<<20, "a lower one, let go")

	debug.SetMemoryLimit(before)
	one = boundMemory(true)
	debug.SetMemoryLimit(300 << 20)
	one()
	want(300<<20, "set by somebody else")
}

// BenchmarkTreeInMemory reads a tree document of 100,000 files, and says what a
// file takes while the tree is held and in all that was allocated for it.
func BenchmarkTreeInMemory(b *testing.B) {
	const files = 100_000
	d := schemas.DigestOf(nil)
	tree := schemas.Tree{Schema: schemas.TreeV1, Blobs: []schemas.Blob{{Digest: d, MediaType: MediaPart, Size: 1}}}
	for i := range files {
		tree.Entries = append(tree.Entries, schemas.TreeEntry{Path: fmt.Sprintf("file-%06d", i), Kind: schemas.EntryFile, Size: 1,
			Digest: schemas.DigestOf([]byte{byte(i)}), Parts: []schemas.Part{{Blob: d, Length: 1}}})
	}
	var err error
	if tree.Digest, err = checkTreeShape(tree); err != nil {
		b.Fatal(err)
	}
	var doc bytes.Buffer
	if err := schemas.WriteTree(&doc, tree); err != nil {
		b.Fatal(err)
	}
	tree = schemas.Tree{}
	b.SetBytes(int64(doc.Len()))
	var before, after runtime.MemStats
	var held, allocated uint64
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		got, err := parseTree(doc.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(got)
		held, allocated = after.HeapAlloc-before.HeapAlloc, after.TotalAlloc-before.TotalAlloc
	}
	b.ReportMetric(float64(held)/files, "held_B/file")
	b.ReportMetric(float64(allocated)/files, "allocated_B/file")
}
