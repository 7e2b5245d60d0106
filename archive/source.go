package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// source gives the files of an OCI image layout by their slash-separated name.
type source interface {
	// open returns the file and its size; fs.ErrNotExist when there is none.
	open(name string) (io.ReadCloser, int64, error)
}

// folderSource is a layout in a folder.
type folderSource struct{ dir string }

func (s folderSource) open(name string) (io.ReadCloser, int64, error) {
	f, err := os.Open(filepath.Join(s.dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
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
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("no regular file")}
	}
	return readBounded(f, info.Size(), limit, path)
}
