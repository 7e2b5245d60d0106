package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"assay/internal/durable"
	"assay/schemas"
)

func emptyOrMissing(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return errors.New("the folder is not empty: name a new one")
	}
	return nil
}

// openFolderRun reads the documents of an extracted run and checks them against
// its manifest. Only the manifest's own digest says which run it is.
func openFolderRun(dir string) (*Run, error) {
	b, err := readLimited(filepath.Join(dir, nameManifest), maxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("extracted run %s: %w", dir, err)
	}
	r := &Run{Digest: schemas.DigestOf(b), folder: dir, raw: map[string][]byte{nameManifest: b}}
	err = r.decode(func(d v1.Descriptor, name string) ([]byte, error) {
		b, err := readLimited(filepath.Join(dir, name), maxDocBytes)
		if err != nil {
			return nil, err
		}
		if got := schemas.DigestOf(b); got != digestOf(d) {
			return nil, &CorruptError{Blob: digestOf(d), Path: name, Err: fmt.Errorf("the file hashes to %s", got)}
		}
		return b, nil
	})
	if err == nil {
		err = r.readFiles()
	}
	if err != nil {
		return nil, fmt.Errorf("extracted run %s: %w", dir, err)
	}
	return r, nil
}

// openFolderDoc is openDoc for a document of an extracted run.
func openFolderDoc(dir, name string, d schemas.Digest) (io.ReadCloser, int64, error) {
	f, err := durable.OpenPlain(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > maxTreeDocBytes {
		err = fmt.Errorf("%s has %d bytes, more than the limit of %d", name, info.Size(), int64(maxTreeDocBytes))
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return &checkedDoc{newHashReader(context.Background(), io.LimitReader(f, info.Size())), f, d, name}, info.Size(), nil
}

// openExtracted opens a file of an extracted run; its last Read checks the digest.
// What stands there and is no file of the listed length is refused: it is neither
// waited for nor followed, and no more than the listed bytes are read.
func openExtracted(ctx context.Context, dir string, e schemas.TreeEntry) (io.ReadCloser, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	o, err := newOpener(root)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	wrong := func(format string, args ...any) error {
		return &CorruptError{Path: e.Path, Err: fmt.Errorf(format, args...)}
	}
	f, err := o.open(filepath.FromSlash(e.Path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, wrong("it is missing: %w", err)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return nil, wrong("%w: %w", durable.ErrNotRegular, err) // a link, a socket
	case err != nil:
		return nil, err
	}
	stamp, regular, err := f.stamp()
	switch {
	case err != nil:
	case !regular:
		err = wrong("it %w", durable.ErrNotRegular)
	case stamp.Size != e.Size:
		err = wrong("it has %d bytes, want %d", stamp.Size, e.Size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &checkedFile{hashReader: newHashReader(ctx, io.LimitReader(f, e.Size)), f: f, e: e}, nil
}

// checkedFile fails at the end when the content is not that of its entry.
type checkedFile struct {
	*hashReader
	f io.Closer
	e schemas.TreeEntry
}

func (c *checkedFile) Read(b []byte) (int, error) {
	n, err := c.hashReader.Read(b)
	if errors.Is(err, io.EOF) && c.digest() != c.e.Digest {
		return n, &CorruptError{Path: c.e.Path, Err: fmt.Errorf("the file's content hashes to %s, want %s", c.digest(), c.e.Digest)}
	}
	return n, err
}

func (c *checkedFile) Close() error { return c.f.Close() }
