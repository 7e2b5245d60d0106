package archive

import (
	"cmp"
	"fmt"
	"slices"

	"assay/schemas"
)

// span is a stretch of a blob's content and the entries whose whole content it is.
type span struct {
	offset, length int64
	entries        []int
}

// spansByBlob sorts the files that are whole in one blob by that blob and by
// where they begin; files in several parts are returned apart. All spans are one
// allocation, and all their entries another: there may be a million.
func spansByBlob(entries []schemas.TreeEntry) (spans map[schemas.Digest][]span, several []int, err error) {
	count := map[schemas.Digest]int{}
	total := 0
	for i := range entries {
		switch len(entries[i].Parts) {
		case 0:
		case 1:
			count[entries[i].Parts[0].Blob]++
			total++
		default:
			several = append(several, i)
		}
	}
	room := make([]int, total)
	byBlob := make(map[schemas.Digest][]int, len(count))
	for d, n := range count {
		byBlob[d], room = room[:0:n], room[n:]
	}
	for i := range entries {
		if p := entries[i].Parts; len(p) == 1 {
			byBlob[p[0].Blob] = append(byBlob[p[0].Blob], i)
		}
	}
	all := make([]span, 0, total)
	spans = make(map[schemas.Digest][]span, len(byBlob))
	for d, list := range byBlob {
		start := len(all)
		all = appendSpans(all, entries, list)
		spans[d] = all[start:len(all):len(all)]
		if a, b, ok := overlap(spans[d]); ok {
			return nil, nil, fmt.Errorf("%s and %s overlap in blob %s", entries[a].Path, entries[b].Path, d)
		}
	}
	return spans, several, nil
}

// appendSpans sorts the entries of one blob, and puts those with the same content
// together.
func appendSpans(all []span, entries []schemas.TreeEntry, list []int) []span {
	slices.SortFunc(list, func(a, b int) int {
		p, q := &entries[a].Parts[0], &entries[b].Parts[0]
		return cmp.Or(cmp.Compare(p.Offset, q.Offset), cmp.Compare(p.Length, q.Length), cmp.Compare(a, b))
	})
	for len(list) > 0 {
		p, n := entries[list[0]].Parts[0], 1
		for n < len(list) && entries[list[n]].Parts[0] == p {
			n++
		}
		all = append(all, span{p.Offset, p.Length, list[:n:n]})
		list = list[n:]
	}
	return all
}

func overlap(spans []span) (a, b int, ok bool) {
	for i := 1; i < len(spans); i++ {
		if spans[i].offset < spans[i-1].offset+spans[i-1].length {
			return spans[i-1].entries[0], spans[i].entries[0], true
		}
	}
	return 0, 0, false
}
