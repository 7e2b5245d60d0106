package archive

import (
	"fmt"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"assay/schemas"
)

// Every entry with one part is in exactly one span, in order, and spans of a blob
// overlap exactly when an error says so.
func TestSpansByBlob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []schemas.TreeEntry
		want, overlaps := map[schemas.Part][]int{}, false
		for i := range rapid.IntRange(0, 12).Draw(t, "entries") {
			e := schemas.TreeEntry{Path: fmt.Sprint("f", i)}
			for range rapid.IntRange(0, 2).Draw(t, "parts") {
				e.Parts = append(e.Parts, schemas.Part{Blob: schemas.Digest(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "blob")),
					Offset: int64(rapid.IntRange(0, 30).Draw(t, "offset")), Length: int64(rapid.IntRange(1, 2).Draw(t, "length"))})
			}
			if len(e.Parts) == 1 {
				for p := range want {
					q := e.Parts[0]
					overlaps = overlaps || p != q && p.Blob == q.Blob && p.Offset < q.Offset+q.Length && q.Offset < p.Offset+p.Length
				}
				want[e.Parts[0]] = append(want[e.Parts[0]], i)
			}
			entries = append(entries, e)
		}
		spans, several, err := spansByBlob(entries)
		if (err != nil) != overlaps {
			t.Fatalf("%v, overlaps %t", err, overlaps)
		}
		if err != nil {
			return
		}
		got := map[schemas.Part][]int{}
		for d, list := range spans {
			if !sort.SliceIsSorted(list, func(i, j int) bool { return list[i].offset < list[j].offset }) {
				t.Errorf("the spans of %s are not sorted", d)
			}
			for _, sp := range list {
				got[schemas.Part{Blob: d, Offset: sp.offset, Length: sp.length}] = sp.entries
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for _, i := range several {
			if len(entries[i].Parts) < 2 {
				t.Errorf("entry %d is in %d parts", i, len(entries[i].Parts))
			}
		}
	})
}
