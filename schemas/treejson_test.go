package schemas

import (
	"bytes"
	"sort"
	"testing"

	"pgregory.net/rapid"
)

// treeIdentity is the part of an entry that its tree's digest covers, for ever.
type treeIdentity struct {
	Path       string `json:"path"`
	Kind       string `json:"kind"`
	Executable bool   `json:"executable,omitempty"`
	Size       int64  `json:"size,omitempty"`
	Digest     Digest `json:"digest,omitempty"`
	Target     string `json:"target,omitempty"`
}

func drawTree(t *rapid.T) Tree {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z/<>&\x{2028}\x{0}-\x{1f}"\\\x{7f}]{0,12}`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	number := rapid.Int64Range(-MaxInteger, MaxInteger)
	part := rapid.Custom(func(t *rapid.T) Part {
		return Part{Blob: Digest(text.Draw(t, "blob")), Offset: number.Draw(t, "offset"), Length: number.Draw(t, "length")}
	})
	entry := rapid.Custom(func(t *rapid.T) TreeEntry {
		return TreeEntry{Path: text.Draw(t, "path"), Kind: text.Draw(t, "kind"), Executable: rapid.Bool().Draw(t, "x"), Size: number.Draw(t, "size"),
			Digest: Digest(text.Draw(t, "digest")), Target: text.Draw(t, "target"), Parts: rapid.SliceOfN(part, 0, 3).Draw(t, "parts")}
	})
	blob := rapid.Custom(func(t *rapid.T) Blob {
		return Blob{MediaType: text.Draw(t, "media"), Digest: Digest(text.Draw(t, "digest")), Size: number.Draw(t, "size"),
			ContentDigest: Digest(text.Draw(t, "content")), ContentSize: number.Draw(t, "content size")}
	})
	return Tree{Schema: text.Draw(t, "schema"), Digest: Digest(text.Draw(t, "digest")), Entries: rapid.SliceOfN(entry, 0, 5).Draw(t, "entries"), Blobs: rapid.SliceOfN(blob, 0, 3).Draw(t, "blobs")}
}

// WriteTree and TreeDigest write by hand what the general encoder would.
func TestTreeEncodersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t)
		want, err := Encode(tree)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := WriteTree(&got, tree); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("%v\n got %q\nwant %q", err, got.Bytes(), want)
		}
		ids := []treeIdentity{}
		for _, e := range tree.Entries {
			ids = append(ids, treeIdentity{Path: e.Path, Kind: e.Kind, Executable: e.Executable, Size: e.Size, Digest: e.Digest, Target: e.Target})
		}
		sort.SliceStable(ids, func(i, j int) bool { return ids[i].Path < ids[j].Path })
		want, err = Canonical(ids)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := TreeDigest(tree.Entries); err != nil || d != DigestOf(want) {
			t.Fatalf("digest %s, %v, want that of %s", d, err, want)
		}
	})
}

func TestTreeEncodersRefuseWhatRounds(t *testing.T) {
	big := []TreeEntry{{Path: "f", Kind: EntryFile, Size: MaxInteger + 1}}
	if _, err := TreeDigest(big); err == nil {
		t.Error("a size that a document cannot carry has a digest")
	}
	if err := WriteTree(&bytes.Buffer{}, Tree{Entries: big}); err == nil {
		t.Error("a size that a document cannot carry was written")
	}
}
