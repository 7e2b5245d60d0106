package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/internal/durable"
	"assay/schemas"
)

// Run is a sealed run with its documents. Reading one checks their digests and
// their shape, not the blobs of its files: Verify does that.
type Run struct {
	Digest   schemas.Digest
	Manifest v1.Manifest
	Config   schemas.Run
	Report   schemas.Report
	Files    schemas.Tree // every file of the run, at its path in the run

	raw    map[string][]byte // documents by their name at the top, without the file list
	layout *Layout
	folder string // set for an extracted run
}

// Run reads a sealed run; fs.ErrNotExist when there is none.
func (l *Layout) Run(_ context.Context, digest schemas.Digest) (*Run, error) {
	b, err := l.readBlob(digest, maxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", digest.Short(), err)
	}
	r := &Run{Digest: digest, layout: l, raw: map[string][]byte{nameManifest: b}}
	err = r.decode(func(d v1.Descriptor, _ string) ([]byte, error) { return l.readBlob(digestOf(d), maxDocBytes) })
	if err == nil {
		err = r.readFiles()
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", digest.Short(), err)
	}
	return r, nil
}

// decode reads the documents that the manifest names, but for the file list.
func (r *Run) decode(read func(d v1.Descriptor, name string) ([]byte, error)) error {
	var err error
	if r.Manifest, err = parseManifest(r.raw[nameManifest]); err != nil {
		return err
	}
	docs := []struct {
		d    v1.Descriptor
		name string
	}{{r.Manifest.Config, nameConfig}}
	for media, name := range map[string]string{MediaReport: nameReport, MediaExperiment: nameExperiment, MediaSource: nameSource} {
		for _, d := range layersOf(r.Manifest, media) {
			docs = append(docs, struct {
				d    v1.Descriptor
				name string
			}{d, name})
		}
	}
	for _, doc := range docs {
		if r.raw[doc.name], err = read(doc.d, doc.name); err != nil {
			return fmt.Errorf("%s: %w", doc.name, err)
		}
	}
	if err := decodeStrict(r.raw[nameConfig], &r.Config); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if err := decodeStrict(r.raw[nameReport], &r.Report); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// readFiles reads the file list, of which only the entries are kept: its bytes are
// as many again.
func (r *Run) readFiles() error {
	in, size, err := r.openFiles()
	if err == nil {
		defer boundMemory(size > longTreeDoc)()
		err = drainDoc(in, func(in io.Reader) (err error) {
			r.Files, err = collectTree(in, size)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("file list: %w", err)
	}
	return nil
}

func (r *Run) openFiles() (io.ReadCloser, int64, error) {
	d := digestOf(layersOf(r.Manifest, MediaFiles)[0])
	if r.folder != "" {
		return openFolderDoc(r.folder, nameFiles, d)
	}
	return r.layout.openDoc(d)
}

// Document returns the bytes of report.json, experiment.json, experiment.toml,
// assay-run.json, assay-files.json or assay-manifest.json.
func (r *Run) Document(name string) ([]byte, error) {
	if b, ok := r.raw[name]; ok {
		return b, nil
	}
	if name == nameFiles {
		in, _, err := r.openFiles()
		if err != nil {
			return nil, err
		}
		defer in.Close()
		return io.ReadAll(in)
	}
	return nil, fmt.Errorf("document %s of run %s: %w", name, r.Digest.Short(), fs.ErrNotExist)
}

// OpenFile opens a file of the run by its path, or one of its documents by name.
// The reader's last Read fails with a *CorruptError when the bytes it gave are
// not what the run promises.
func (r *Run) OpenFile(ctx context.Context, name string) (io.ReadCloser, error) {
	if b, ok := r.raw[name]; ok {
		return io.NopCloser(&byteReader{b}), nil
	}
	if name == nameFiles {
		in, _, err := r.openFiles()
		return in, err
	}
	for _, e := range r.Files.Entries {
		switch {
		case e.Path != name:
		case e.Kind == schemas.EntryDir:
			return nil, fmt.Errorf("%s in run %s is a folder", name, r.Digest.Short())
		case e.Kind == schemas.EntrySymlink:
			return nil, fmt.Errorf("%s in run %s is a symbolic link to %s: name that", name, r.Digest.Short(), path.Join(path.Dir(name), e.Target))
		case r.folder != "":
			return openExtracted(ctx, r.folder, e)
		default:
			return r.layout.openEntry(ctx, e, blobMap(r.Files.Blobs)), nil
		}
	}
	return nil, fmt.Errorf("%s in run %s: %w", name, r.Digest.Short(), fs.ErrNotExist)
}

type byteReader struct{ b []byte }

func (r *byteReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}

// openEntry streams one file through a pipe, part by part.
func (l *Layout) openEntry(ctx context.Context, e schemas.TreeEntry, blobs map[schemas.Digest]schemas.Blob) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		err := l.copyEntry(ctx, e, blobs, pw)
		_ = pw.CloseWithError(err)
	}()
	return pr
}

// copyEntry stops reading a pack once the file is complete: it is the file's own
// digest that vouches for the bytes.
func (l *Layout) copyEntry(ctx context.Context, e schemas.TreeEntry, blobs map[schemas.Digest]schemas.Blob, w io.Writer) error {
	h := sha256.New()
	for _, p := range e.Parts {
		done := errors.New("done")
		err := l.streamBlob(ctx, blobs[p.Blob], []span{{offset: p.Offset, length: p.Length}}, func(sp span, r io.Reader) error {
			n, err := io.Copy(io.MultiWriter(h, w), r)
			if err == nil && n != sp.length {
				return io.ErrUnexpectedEOF
			}
			if err == nil {
				err = done
			}
			return err
		})
		if !errors.Is(err, done) {
			return atPath(err, e.Path)
		}
	}
	if got := schemas.DigestFromSum(h.Sum(nil)); got != e.Digest {
		c := &CorruptError{Path: e.Path, Err: fmt.Errorf("the file's content hashes to %s, want %s", got, e.Digest)}
		if len(e.Parts) > 0 {
			c.Blob = e.Parts[0].Blob
		}
		return c
	}
	return nil
}

// Folder is where an extracted run lies; "" for one in a layout.
func (r *Run) Folder() string { return r.folder }

// Materialize writes the part of the run below sub to dir, which must not exist,
// checking every byte. It is for runs in a layout: an extracted one lies in
// Folder already.
func (r *Run) Materialize(ctx context.Context, sub, dir string) error {
	if r.folder != "" {
		return fmt.Errorf("materialize %s of run %s: it is extracted in %s", sub, r.Digest.Short(), r.folder)
	}
	defer boundMemory(len(r.Files.Entries) > manyEntries)()
	if err := r.layout.materialize(ctx, r.Files, sub, dir); err != nil {
		return fmt.Errorf("materialize from run %s: %w", r.Digest.Short(), err)
	}
	return nil
}

// Extract writes the whole run to dir, which must not exist or be empty: its
// documents at the top and every file at its path. dir appears at the end, whole
// and durable.
func (r *Run) Extract(ctx context.Context, dir string) error {
	fail := func(err error) error { return fmt.Errorf("extract run %s to %s: %w", r.Digest.Short(), dir, err) }
	if r.folder != "" {
		return fail(fmt.Errorf("%s is extracted already", r.folder))
	}
	if err := emptyOrMissing(dir); err != nil {
		return fail(err)
	}
	if err := r.checkNames(); err != nil {
		return fail(err)
	}
	defer boundMemory(len(r.Files.Entries) > manyEntries)()
	err := writeFolder(ctx, dir, true, func(root *durable.Root) error {
		if err := r.extractDocuments(root); err != nil {
			return err
		}
		if err := r.layout.writeEntries(ctx, r.Files.Entries, r.Files.Blobs, root, checkMembers); err != nil {
			return err
		}
		for name, target := range shortcuts(&r.Report, r.Files.Entries) {
			if err := root.Symlink(target, name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	return nil
}

// checkNames refuses a file list with a name that a document of the run has.
func (r *Run) checkNames() error {
	for _, e := range r.Files.Entries {
		if top, _, _ := strings.Cut(e.Path, "/"); reservedTop(top) {
			return &CorruptError{Blob: digestOf(layersOf(r.Manifest, MediaFiles)[0]), Path: e.Path,
				Err: errors.New("the file list has it, and extracted runs use that name themselves")}
		}
	}
	return nil
}

func (r *Run) extractDocuments(root *durable.Root) error {
	for name, b := range r.raw {
		if err := writeRootFile(root, name, &byteReader{b}); err != nil {
			return err
		}
	}
	list, _, err := r.openFiles()
	if err == nil {
		err = drainDoc(list, func(in io.Reader) error { return writeRootFile(root, nameFiles, in) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", nameFiles, err)
	}
	for _, d := range []string{dirRecords, dirPreimages, dirTrees} {
		if err := root.Mkdir(d); err != nil {
			return err
		}
	}
	docs := r.layout.documentsOf(r.Manifest)
	for _, d := range stageDocs(r.Config) {
		in, err := docs.open(d.digest)
		if err == nil {
			err = drainDoc(in, func(in io.Reader) error { return writeRootFile(root, d.title, in) })
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.title, err)
		}
	}
	return nil
}

func writeRootFile(root *durable.Root, name string, in io.Reader) error {
	f, err := root.Create(name, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, in); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
