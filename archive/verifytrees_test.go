package archive

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"assay/schemas"
)

// drawEntries draws a small tree of folders and files; content is a path's choice.
func drawEntries(t *rapid.T, label string) []schemas.TreeEntry {
	found := map[string]schemas.TreeEntry{}
	for range rapid.IntRange(0, 4).Draw(t, label) {
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a-b", "b"}), 1, 3).Draw(t, "names")
		for i := range names[:len(names)-1] {
			dir := strings.Join(names[:i+1], "/")
			found[dir] = schemas.TreeEntry{Path: dir, Kind: schemas.EntryDir}
		}
		p := strings.Join(names, "/")
		if _, ok := found[p]; !ok {
			found[p] = schemas.TreeEntry{Path: p, Kind: schemas.EntryFile, Digest: schemas.DigestOf(nil), Executable: rapid.Bool().Draw(t, "x")}
		}
	}
	list := []schemas.TreeEntry{}
	for _, e := range found {
		if dir := dirOf(e.Path); dir == "." || found[dir].Kind == schemas.EntryDir {
			list = append(list, e)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Path < list[j].Path })
	return list
}

func treeDoc(t *rapid.T, entries []schemas.TreeEntry) ([]byte, schemas.Tree) {
	tree := schemas.Tree{Schema: schemas.TreeV1, Entries: entries, Blobs: []schemas.Blob{}}
	var err error
	if tree.Digest, err = checkTreeShape(tree); err != nil {
		t.Skip(err) // a file that is a folder, too
	}
	var doc bytes.Buffer
	if err := schemas.WriteTree(&doc, tree); err != nil {
		t.Fatal(err)
	}
	return doc.Bytes(), tree
}

// The comparison of a file list with trees that are read one after the other finds
// what a comparison with their union would: the first path that differs.
func TestFileListAgainstTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		docs, trees := map[schemas.Digest][]byte{}, map[schemas.Digest]schemas.Tree{}
		run := schemas.Run{}
		mounted := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"s", "s/a", "s/a-b", "t"}), 1, 3, rapid.ID).Draw(t, "mounts")
		for i, p := range mounted {
			doc, tree := treeDoc(t, drawEntries(t, p))
			d := schemas.DigestOf(doc)
			docs[d], trees[d] = doc, tree
			run.Records = append(run.Records, schemas.RunRecord{Node: fmt.Sprint(i), Path: p, Record: schemas.StageRecord{Stage: p, Tree: d}})
		}
		mounts, err := mountsOf(run)
		if err != nil {
			t.Fatal(err)
		}
		union, err := fileList(mounts, func(m mount, each func(schemas.TreeEntry) error) (schemas.Tree, error) {
			for _, e := range trees[m.tree].Entries {
				if err := each(e); err != nil {
					return schemas.Tree{}, err
				}
			}
			return trees[m.tree], nil
		})
		if err != nil {
			t.Skip(err)
		}
		list, want := union, ""
		if rapid.Bool().Draw(t, "wrong") {
			list.Entries = nil
			at := rapid.IntRange(0, len(union.Entries)-1).Draw(t, "at")
			for i, e := range union.Entries {
				switch {
				case i == at && rapid.Bool().Draw(t, "missing"):
				case i == at:
					e.Executable = !e.Executable
					fallthrough
				default:
					list.Entries = append(list.Entries, e)
				}
			}
			want = union.Entries[at].Path
		}
		if rapid.Bool().Draw(t, "more") {
			e := schemas.TreeEntry{Path: rapid.SampledFrom([]string{"s/A", "s/a/aa", "zz"}).Draw(t, "extra"), Kind: schemas.EntryDir}
			list.Entries = append(append([]schemas.TreeEntry{}, list.Entries...), e)
			sort.Slice(list.Entries, func(i, j int) bool { return list.Entries[i].Path < list.Entries[j].Path })
			if want == "" || e.Path < want {
				want = e.Path
			}
		}
		v := &verifier{config: &run, files: &list, bad: map[schemas.Digest]bool{}}
		v.openDoc = func(d schemas.Digest, _ string) (io.ReadCloser, error) {
			if b, ok := docs[d]; ok {
				return io.NopCloser(bytes.NewReader(b)), nil
			}
			return nil, fs.ErrNotExist
		}
		x := v.newTreeVerifier()
		for _, doc := range stageDocs(run) {
			if doc.media == MediaTree {
				x.read(doc, schemas.Finding{})
			}
		}
		x.end()
		if x.differs != want || (want != "") != (len(v.findings) == 1) {
			t.Fatalf("differs at %q, want %q; findings %+v", x.differs, want, v.findings)
		}
	})
}
