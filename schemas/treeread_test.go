package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func readTree(r io.Reader) (Tree, error) {
	entries := []TreeEntry{}
	t, err := ReadTree(r, func(_ *Tree, e TreeEntry) error {
		entries = append(entries, e)
		return nil
	})
	t.Entries = entries
	return t, err
}

// ReadTree gives what the general decoder would, however the bytes arrive.
func TestTreeIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc, err := Encode(drawTree(t))
		if err != nil {
			t.Fatal(err)
		}
		var want Tree
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatal(err)
		}
		for _, r := range []io.Reader{bytes.NewReader(doc), iotest.OneByteReader(bytes.NewReader(doc)), iotest.DataErrReader(bytes.NewReader(doc))} {
			got, err := readTree(r)
			if err != nil {
				t.Fatalf("%v\n%s", err, doc)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
		}
		cut := rapid.IntRange(0, len(doc)-1).Draw(t, "cut")
		if _, err := readTree(bytes.NewReader(doc[:cut])); err == nil {
			t.Fatalf("read the first %d of %d bytes of %s", cut, len(doc), doc)
		}
	})
}

// An entry may be longer than the window, and its strings belong to it alone.
func TestTreeWithLongEntries(t *testing.T) {
	tree := Tree{Schema: TreeV1, Blobs: []Blob{{Digest: "b"}}}
	for i := range 3 {
		e := TreeEntry{Path: fmt.Sprint("f", i), Kind: EntryFile, Target: strings.Repeat(fmt.Sprint(i), treeSlab+i)}
		for n := range treeWindow / 16 {
			e.Parts = append(e.Parts, Part{Blob: "b", Offset: int64(n), Length: int64(i)})
		}
		tree.Entries = append(tree.Entries, e)
	}
	var doc bytes.Buffer
	if err := WriteTree(&doc, tree); err != nil {
		t.Fatal(err)
	}
	got, err := readTree(&doc)
	if diff := cmp.Diff(tree, got); diff != "" || err != nil {
		t.Fatalf("%v %s", err, diff)
	}
	endless := io.MultiReader(strings.NewReader(`{"blobs":[],"digest":"`), endlessReader{})
	if _, err := readTree(endless); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("an endless string: %v", err)
	}
}

type endlessReader struct{}

func (endlessReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func TestTreeOfAnotherForm(t *testing.T) {
	const whole = `{"blobs":[{"digest":"d","media_type":"m","size":1}],"digest":"x","entries":[{"digest":"d","kind":"file","parts":[{"blob":"d","length":1,"offset":0}],"path":"f","size":1}],"schema":"s"}`
	if _, err := readTree(strings.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{`{"blobs"`, ` {"blobs"`}, {`"size":1}],"d`, `"size":01}],"d`}, {`"size":1}],"schema"`, `"size":0}],"schema"`}, {`"offset":0`, `"offset":-0`}, {`"offset":0`, `"offset":0.0`},
		{`"offset":0`, `"offset":9007199254740992`}, {`"path":"f"`, `"path":"\u0066"`}, {`"path":"f"`, `"path":"\/"`}, {`"path":"f"`, `"path":"\u000A"`}, {`"path":"f"`, `"path":"\u000a"`},
		{`"path":"f"`, "\"path\":\"\xff\""}, {`"path":"f"`, "\"path\":\"\n\""}, {`"path":"f"`, `"path":"f","path":"g"`}, {`"digest":"d","kind"`, `"digest":"","kind"`}, {`"kind"`, `"executable":false,"kind"`},
		{`[{"blob":"d","length":1,"offset":0}]`, `[]`}, {`"schema":"s"`, `"schema":"s","more":1`}, {`"s"}`, `"s"}{}`}, {`"s"}`, `"s"} `}, {`"kind":"file"`, `"kind":null`}, {`"offset":0`, `"offset":`},
	} {
		doc := strings.Replace(whole, c[0], c[1], 1)
		if doc == whole {
			t.Fatalf("%s is not in the document", c[0])
		}
		if _, err := readTree(strings.NewReader(doc)); err == nil || !strings.Contains(err.Error(), "byte ") {
			t.Errorf("%s: %v, want an error that says at which byte", doc, err)
		}
	}
}

// Memory for an entry is its strings: neither reading nor writing makes objects of
// its own for each.
func TestTreeAllocations(t *testing.T) {
	const files = 10_000
	d := DigestOf(nil)
	tree := Tree{Schema: TreeV1, Digest: d, Blobs: []Blob{{Digest: d, MediaType: "m"}}}
	for i := range files {
		tree.Entries = append(tree.Entries, TreeEntry{Path: fmt.Sprintf("folder/file-%06d", i), Kind: EntryFile, Size: 1, Digest: d, Parts: []Part{{Blob: d, Length: 1}}})
	}
	var doc bytes.Buffer
	if err := WriteTree(&doc, tree); err != nil {
		t.Fatal(err)
	}
	for name, once := range map[string]func() error{
		"write": func() error { return WriteTree(io.Discard, tree) },
		"read": func() error {
			_, err := ReadTree(bytes.NewReader(doc.Bytes()), func(*Tree, TreeEntry) error { return nil })
			return err
		},
		"digest": func() error { _, err := TreeDigest(tree.Entries); return err },
	} {
		var err error
		if n := testing.AllocsPerRun(3, func() { err = once() }); n > files/50 || err != nil {
			t.Errorf("%s: %.0f allocations for %d files, %v", name, n, files, err)
		}
	}
}

// Whatever is accepted is what would be written, and what the general decoder reads.
func FuzzReadTree(f *testing.F) {
	f.Add([]byte(`{"blobs":[],"digest":"","entries":[],"schema":"assay/tree/v1"}`))
	f.Add([]byte(`{"blobs":[{"content_digest":"c","content_size":2,"digest":"d","media_type":"m","size":1}],"digest":"x","entries":[{"digest":"d","executable":true,"kind":"file","parts":[{"blob":"d","length":1,"offset":0}],"path":"f\"\u0001é","size":1,"target":"t"}],"schema":"s"}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := readTree(bytes.NewReader(doc))
		again, errAgain := readTree(iotest.OneByteReader(bytes.NewReader(doc)))
		if (err == nil) != (errAgain == nil) || err == nil && !cmp.Equal(got, again) {
			t.Fatalf("in one: %v, byte by byte: %v", err, errAgain)
		}
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := WriteTree(&out, got); err != nil || !bytes.Equal(out.Bytes(), doc) {
			t.Fatalf("%v: accepted %q, which is written as %q", err, doc, out.Bytes())
		}
		var want Tree
		if err := json.Unmarshal(doc, &want); err != nil || !cmp.Equal(want, got, cmpopts.EquateEmpty()) {
			t.Fatalf("%v: %s", err, cmp.Diff(want, got, cmpopts.EquateEmpty()))
		}
	})
}
