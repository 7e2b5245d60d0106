package archive

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"assay/internal/durable"
)

// source gives the files of an OCI image layout by their slash-separated name.
type source interface {
	// open returns the file and its size; fs.ErrNotExist when there is none.
	open(name string) (io.ReadCloser, int64, error)
}

// folderSource is a layout in a folder.
type folderSource struct{ dir string }

func (s folderSource) open(name string) (io.ReadCloser, int64, error) {
	f, err := durable.OpenRegular(filepath.Join(s.dir, filepath.FromSlash(name)))
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
	f, err := durable.OpenRegular(path)
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
