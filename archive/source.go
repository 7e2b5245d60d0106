package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"assay/internal/durable"
	"assay/schemas"
)

// source gives the files of an OCI image layout by their slash-separated name.
type source interface {
	// open returns the file and its size; fs.ErrNotExist when there is none.
	open(name string) (io.ReadCloser, int64, error)
}

// folderSource is a layout in a folder.
type folderSource struct{ dir string }

// open follows no link: what stands in a blob's place and is no file is a damaged
// blob to every reader.
func (s folderSource) open(name string) (io.ReadCloser, int64, error) {
	f, err := durable.OpenPlain(filepath.Join(s.dir, filepath.FromSlash(name)))
	if errors.Is(err, durable.ErrNotRegular) {
		if hex, ok := strings.CutPrefix(name, blobsDir+"/"); ok {
			err = &CorruptError{Blob: schemas.Digest("sha256:" + hex), Err: err}
		}
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// readAll reads a whole file of at most limit bytes.
func readAll(src source, name string, limit int64) ([]byte, error) {
	r, size, err := src.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readBounded(r, size, limit, name)
}

func readBounded(r io.Reader, size, limit int64, name string) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than the limit of %d", name, size, limit)
	}
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s has more than the limit of %d bytes", name, limit)
	}
	return b, nil
}

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := durable.OpenPlain(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return readBounded(f, info.Size(), limit, path)
}

// openPlain opens a file of the store; what stands in its place is named with what
// to do about it.
func openPlain(path string) (*os.File, error) {
	f, err := durable.OpenPlain(path)
	return f, withRepair(err)
}

func appendPlain(path string) (*durable.AppendFile, error) {
	if err := durable.CheckPlain(path); err != nil {
		return nil, withRepair(err)
	}
	return durable.OpenAppend(path)
}

func withRepair(err error) error {
	if errors.Is(err, durable.ErrNotRegular) {
		return fmt.Errorf("%w: `assay fsck --repair` moves it to assay/quarantine", err)
	}
	return err
}

func readPlain(path string) ([]byte, error) {
	f, err := openPlain(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
