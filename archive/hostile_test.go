package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/internal/durable"
	"assay/schemas"
)

var (
	hostileBlob = schemas.DigestOf([]byte("blob"))
	hostileFile = schemas.DigestOf([]byte("file"))
)

// hostileTrees are documents that a store must not act upon.
func hostileTrees() map[string]schemas.Tree {
	blobs := []schemas.Blob{{MediaType: MediaPart, Digest: hostileBlob, Size: 4}}
	file := func(p string, parts ...schemas.Part) schemas.TreeEntry {
		if parts == nil {
			parts = []schemas.Part{{Blob: hostileBlob, Length: 4}}
		}
		return schemas.TreeEntry{Path: p, Kind: schemas.EntryFile, Size: 4, Digest: hostileFile, Parts: parts}
	}
	link := func(p, target string) schemas.TreeEntry {
		return schemas.TreeEntry{Path: p, Kind: schemas.EntrySymlink, Target: target}
	}
	dir := func(p string) schemas.TreeEntry { return schemas.TreeEntry{Path: p, Kind: schemas.EntryDir} }
	tree := func(entries ...schemas.TreeEntry) schemas.Tree {
		d, _ := schemas.TreeDigest(entries)
		return schemas.Tree{Schema: schemas.TreeV1, Digest: d, Entries: entries, Blobs: blobs}
	}
	wrong := tree(file("f"))
	wrong.Digest = hostileFile
	bomb := tree()
	bomb.Blobs = []schemas.Blob{{MediaType: MediaPack, Digest: hostileBlob, Size: 4, ContentDigest: hostileFile, ContentSize: 1 << 40}}
	media := tree()
	media.Blobs = []schemas.Blob{{MediaType: "application/x-sh", Digest: hostileBlob, Size: 4}}
	hard := file("f")
	hard.Target = "g"
	return map[string]schemas.Tree{
		"absolute": tree(file("/etc/cron.d/x")), "parent": tree(file("../x")), "inner parent": tree(dir("a"), file("a/../../x")),
		"not clean": tree(file("a//b")), "dot": tree(dir(".")), "empty path": tree(file("")), "zero byte": tree(file("a\x00b")),
		"doubled": tree(file("a"), file("a")), "unsorted": tree(file("b"), file("a")),
		"file as folder": tree(file("a"), file("a/b")), "link as folder": tree(link("a", "b"), file("a/x"), dir("b")), "no folder": tree(file("a/b")),
		"link absolute": tree(link("a", "/etc")), "link outside": tree(link("a", "../x")), "link empty": tree(link("a", "")),
		"link chain": tree(link("a", "d/x/.."), dir("d"), link("d/x", "..")), "hard link": tree(hard),
		"device": tree(schemas.TreeEntry{Path: "a", Kind: "chardev"}), "sized folder": tree(schemas.TreeEntry{Path: "a", Kind: schemas.EntryDir, Size: 1}),
		"part too long":   tree(file("a", schemas.Part{Blob: hostileBlob, Length: 5})),
		"part beyond":     tree(file("a", schemas.Part{Blob: hostileBlob, Offset: 1, Length: 4})),
		"part overflow":   tree(file("a", schemas.Part{Blob: hostileBlob, Offset: 1<<63 - 1, Length: 4})),
		"part negative":   tree(file("a", schemas.Part{Blob: hostileBlob, Offset: -1, Length: 4})),
		"part elsewhere":  tree(file("a", schemas.Part{Blob: hostileFile, Length: 4})),
		"parts too short": tree(file("a", schemas.Part{Blob: hostileBlob, Length: 1})),
		"digest":          wrong, "bomb": bomb, "media type": media,
	}
}

// canonicalTree is the document of a tree, as good as it can be written.
func canonicalTree(t testing.TB, name string, tree schemas.Tree) []byte {
	var b bytes.Buffer
	err := schemas.WriteTree(&b, tree)
	if name == "part overflow" { // no document carries that number
		b.Reset()
		err = json.NewEncoder(&b).Encode(tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestHostileTrees(t *testing.T) {
	s := newStore(t)
	for name, tree := range hostileTrees() {
		b := canonicalTree(t, name, tree)
		doc, err := s.putBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "in", "out")
		if err := s.Materialize(context.Background(), doc, "", dir); err == nil {
			t.Errorf("%s: materialized", name)
		}
		if err := s.CheckTree(context.Background(), doc); err == nil {
			t.Errorf("%s: passed", name)
		}
		if _, err := os.Lstat(filepath.Dir(dir)); err == nil && name != "link as folder" {
			t.Errorf("%s: something was written", name)
		}
	}
	for name, text := range map[string]string{
		"unknown field": `{"schema":"assay/tree/v1","digest":"","entries":[],"blobs":[],"run":"sh"}`,
		"two documents": `{"schema":"assay/tree/v1"}{}`, "other schema": `{"schema":"assay/run/v1"}`, "not JSON": "PK\x03\x04", "deep": strings.Repeat("[", 100_000),
	} {
		if _, err := parseTree([]byte(text)); err == nil {
			t.Errorf("%s: parsed", name)
		}
	}
}

// A frame that unpacks to far more than it says is stopped at what it says.
func TestZstdBomb(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	var z bytes.Buffer
	enc := newEncoder(encoders, &z)
	zero := make([]byte, 1<<20)
	for range 256 {
		if _, err := enc.Write(zero); err != nil {
			t.Fatal(err)
		}
	}
	if err := enc.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := s.putBytes(z.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	entry := schemas.TreeEntry{Path: "f", Kind: schemas.EntryFile, Size: 8, Digest: schemas.DigestOf(zero[:8]), Parts: []schemas.Part{{Blob: d, Length: 8}}}
	_, doc, err := s.putTreeDoc([]schemas.TreeEntry{entry}, []schemas.Blob{{MediaType: MediaPartZstd, Digest: d, Size: int64(z.Len()),
		ContentDigest: schemas.DigestOf(zero[:8]), ContentSize: 8}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckTree(ctx, doc); err == nil || !strings.Contains(err.Error(), "9 bytes or more") {
		t.Errorf("error %v, want that its content is longer than it says", err)
	}
}

// hostileTars are tars that are no plain list of files.
func hostileTars(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for name, headers := range map[string][]tar.Header{
		"absolute":  {{Name: "/etc/x"}},
		"parent":    {{Name: "../x"}},
		"symlink":   {{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc"}},
		"hard link": {{Name: "a"}, {Name: "b", Typeflag: tar.TypeLink, Linkname: "a"}},
		"device":    {{Name: "a", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"pipe":      {{Name: "a", Typeflag: tar.TypeFifo}},
		"doubled":   {{Name: "a"}, {Name: "a"}},
		"disguised": {{Name: "a"}, {Name: "./a"}},
		"xattr":     {{Name: "a", PAXRecords: map[string]string{"SCHILY.xattr.user.x": "1"}}},
	} {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for _, h := range headers {
			if h.Typeflag == 0 {
				h.Typeflag = tar.TypeReg
			}
			if err := tw.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := tw.Close(); err != nil {
			t.Fatal(err)
		}
		out[name] = b.Bytes()
	}
	return out
}

func TestHostileTars(t *testing.T) {
	for name, b := range hostileTars(t) {
		err := walkTar(bytes.NewReader(b), func(*tar.Header, io.Reader) error { return nil })
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		path := filepath.Join(t.TempDir(), "x.tar")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ResolvePath(context.Background(), path); err == nil {
			t.Errorf("%s: resolved as a layout", name)
		}
	}
}

// A pack that tar would unpack otherwise than the file list says is a fault.
func TestPackWithOtherMembers(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	p, err := s.newPack(MediaPack)
	if err != nil {
		t.Fatal(err)
	}
	at, err := p.add("outputs/x/f", false, 4, strings.NewReader("good"))
	if err == nil {
		_, err = p.add("outputs/x/hidden", true, 4, strings.NewReader("evil"))
	}
	if err != nil {
		t.Fatal(err)
	}
	blob, err := p.commit()
	if err != nil {
		t.Fatal(err)
	}
	req, err := runRequest(t, s, "r1", tinyStages())
	if err != nil {
		t.Fatal(err)
	}
	entries := []schemas.TreeEntry{{Path: "outputs", Kind: schemas.EntryDir}, {Path: "outputs/x", Kind: schemas.EntryDir},
		{Path: "outputs/x/f", Kind: schemas.EntryFile, Size: 4, Digest: schemas.DigestOf([]byte("good")), Parts: []schemas.Part{{Blob: blob.Digest, Offset: at, Length: 4}}}}
	_, doc, err := s.putTreeDoc(entries, []schemas.Blob{blob})
	if err != nil {
		t.Fatal(err)
	}
	rec := req.Run.Records[0].Record
	rec.Tree, rec.Outputs = doc, []schemas.Output{}
	pre, err := s.Preimage(ctx, rec.Key)
	if err != nil {
		t.Fatal(err)
	}
	if req.Run.Records[0].Digest, err = s.PutRecord(ctx, rec, pre); err != nil {
		t.Fatal(err)
	}
	req.Run.Records[0].Record = rec
	d, err := s.Seal(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Verify(ctx, d)
	wantVerdict(t, v, err, Invalid)
	if f := v.Findings[0]; f.ID != "archive.pack" || !strings.Contains(f.Message, "hidden") {
		t.Errorf("finding %+v, want one that names the hidden member", f)
	}
	run, err := s.Run(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "x")
	var corrupt *CorruptError
	if err := run.Extract(ctx, out); !errors.As(err, &corrupt) || corrupt.Blob != blob.Digest || !strings.Contains(err.Error(), "hidden") {
		t.Errorf("extracted: %v, want an error that names the hidden member", err)
	}
	if _, err := os.Lstat(out); err == nil {
		t.Error("something was extracted")
	}
}

// An extraction refuses the members that verify refuses, with their names.
func TestExtractRefusesHostileMembers(t *testing.T) {
	ctx := context.Background()
	for name, evil := range map[string]tar.Header{
		"hard link": {Name: "evil", Typeflag: tar.TypeLink, Linkname: "good"}, "symlink": {Name: "evil", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
		"device": {Name: "evil", Typeflag: tar.TypeChar}, "parent": {Name: "../evil"}, "absolute": {Name: "/tmp/evil"}, "extra": {Name: "evil"}, "doubled": {Name: "good"},
		"folder": {Name: "evil/", Typeflag: tar.TypeDir}, "folder outside": {Name: "../evil/", Typeflag: tar.TypeDir},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			var image bytes.Buffer
			tw := tar.NewWriter(&image)
			good := tar.Header{Name: "good", Typeflag: tar.TypeReg, Size: 4}
			if evil.Typeflag == 0 {
				evil.Typeflag = tar.TypeReg
			}
			err := errors.Join(tw.WriteHeader(&good), write(tw, "good"), tw.WriteHeader(&evil), tw.Close())
			if err != nil {
				t.Fatal(err)
			}
			var z bytes.Buffer
			enc := newEncoder(encoders, &z)
			if err := errors.Join(write(enc, image.String()), enc.Close()); err != nil {
				t.Fatal(err)
			}
			d, err := s.putBytes(z.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			blob := schemas.Blob{MediaType: MediaPack, Digest: d, Size: int64(z.Len()), ContentSize: int64(image.Len())}
			entries := []schemas.TreeEntry{{Path: "good", Kind: schemas.EntryFile, Size: 4, Digest: schemas.DigestOf([]byte("good")), Parts: []schemas.Part{{Blob: d, Offset: 512, Length: 4}}}}
			tree, doc, err := s.putTreeDoc(entries, []schemas.Blob{blob})
			if err != nil {
				t.Fatal(err)
			}
			refused := func(what string, err error) {
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) || corrupt.Blob != d || !strings.Contains(err.Error(), evil.Name) {
					t.Errorf("%s: %v, want that %s is refused", what, err, evil.Name)
				}
			}
			refused("extract", writeFolder(ctx, filepath.Join(t.TempDir(), "x"), false, func(root *durable.Root) error {
				return s.writeEntries(ctx, tree.Entries, tree.Blobs, root, checkMembers)
			}))
			if name != "extra" { // of a part of a run not all members are listed
				refused("materialize", s.Materialize(ctx, doc, "", filepath.Join(t.TempDir(), "y")))
			}
		})
	}
}

func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// A file list that names a document of the run is refused before anything is
// written.
func TestExtractRefusesDocumentNames(t *testing.T) {
	s := newStore(t)
	run, err := s.Run(context.Background(), sealRun(t, s, "r1", "", tinyStages()))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{nameReport, nameManifest, "assay-records/x"} {
		run.Files.Entries = []schemas.TreeEntry{{Path: name, Kind: schemas.EntryDir}}
		var corrupt *CorruptError
		if err := run.Extract(context.Background(), filepath.Join(t.TempDir(), "x")); !errors.As(err, &corrupt) || corrupt.Path != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzTree(f *testing.F) {
	for name, tree := range hostileTrees() {
		f.Add(canonicalTree(f, name, tree))
	}
	f.Add([]byte(`{"blobs":[],"digest":"sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945","entries":[],"schema":"assay/tree/v1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, err := parseTree(b)
		if err != nil {
			return
		}
		for _, e := range tree.Entries {
			if !filepath.IsLocal(e.Path) {
				t.Errorf("accepted path %q", e.Path)
			}
			if e.Kind == schemas.EntrySymlink && !filepath.IsLocal(filepath.Join(filepath.Dir(e.Path), e.Target)) && filepath.Join(filepath.Dir(e.Path), e.Target) != "." {
				t.Errorf("accepted link %q to %q", e.Path, e.Target)
			}
		}
		if again, err := schemas.Encode(tree); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%v: accepted %s, which is written as %s", err, b, again)
		}
		if err := validateDoc(schemas.TreeV1, b); err != nil {
			t.Errorf("accepted, and the published schema refuses it: %v", err)
		}
	})
}

func FuzzManifest(f *testing.F) {
	b, err := os.ReadFile("testdata/v1/index.json")
	if err == nil {
		f.Add(b)
	}
	names, _ := filepath.Glob("testdata/v1/blobs/sha256/*")
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && bytes.Contains(b, []byte(`"schemaVersion":2`)) {
			f.Add(b)
		}
	}
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"digest":"sha256:x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := parseIndex(b); err == nil {
			for _, r := range runsOf(x) {
				if !r.Digest.Valid() {
					t.Errorf("accepted run %q", r.Digest)
				}
			}
		}
		if m, err := parseManifest(b); err == nil {
			for _, d := range m.Layers {
				if !digestOf(d).Valid() || d.Size < 0 {
					t.Errorf("accepted layer %+v", d)
				}
			}
		}
	})
}

// FuzzExtract feeds a pack's bytes and a tree that points into it to the
// extraction; nothing may be written outside of the folder.
func FuzzExtract(f *testing.F) {
	for _, b := range hostileTars(f) {
		f.Add(b, "a", int64(0), int64(4))
	}
	f.Add([]byte("content"), "a/../../b", int64(3), int64(4))
	s := newStore(f)
	f.Fuzz(func(t *testing.T, content []byte, name string, offset, length int64) {
		if err := walkTar(bytes.NewReader(content), func(h *tar.Header, r io.Reader) error {
			if !filepath.IsLocal(h.Name) {
				t.Errorf("accepted member %q", h.Name)
			}
			_, err := io.Copy(io.Discard, r)
			return err
		}); err == nil && len(content) == 0 {
			return
		}
		d, err := s.putBytes(content)
		if err != nil {
			t.Fatal(err)
		}
		e := schemas.TreeEntry{Path: name, Kind: schemas.EntryFile, Size: length, Digest: schemas.DigestOf(content), Parts: []schemas.Part{{Blob: d, Offset: offset, Length: length}}}
		td, err := schemas.TreeDigest([]schemas.TreeEntry{e})
		if err != nil {
			return
		}
		for _, media := range []string{MediaPart, MediaPartZstd} {
			b := schemas.Blob{MediaType: media, Digest: d, Size: int64(len(content))}
			if media == MediaPartZstd {
				b.ContentDigest, b.ContentSize = e.Digest, offset+length
			}
			raw, err := json.Marshal(schemas.Tree{Schema: schemas.TreeV1, Digest: td, Entries: []schemas.TreeEntry{e}, Blobs: []schemas.Blob{b}})
			if err != nil {
				return
			}
			doc, err := s.putBytes(raw)
			if err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(t.TempDir(), "box", "out")
			if err := s.Materialize(context.Background(), doc, "", out); err != nil {
				continue
			}
			got, err := os.ReadFile(filepath.Join(out, name))
			if err != nil || schemas.DigestOf(got) != e.Digest {
				t.Errorf("materialized %q with other bytes: %v", name, err)
			}
		}
	})
}
