package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// AppendFile is an append-only file. A crash may leave its last Append torn, so
// a reader must be able to tell a whole entry from part of one.
type AppendFile struct {
	f    *os.File
	path string
}

// OpenAppend opens path for appending, and makes it, durably, when it is missing.
func OpenAppend(path string) (*AppendFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err == nil {
		return &AppendFile{f: f, path: path}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := before(OpCreate, path); err != nil {
		return nil, err
	}
	f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	if err := SyncDir(filepath.Dir(path)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &AppendFile{f: f, path: path}, nil
}

// Append writes b at the end in one call. It is durable only after Sync.
func (a *AppendFile) Append(b []byte) error {
	_, err := write(a.f, a.path, b)
	return err
}

// AppendLine appends line, which ends with a newline. When the file ends in a
// torn line, that one is ended first, so that it spoils no other.
func (a *AppendFile) AppendLine(line []byte) error {
	size, err := a.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size > 0 {
		var last [1]byte
		if _, err := a.f.ReadAt(last[:], size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	return a.Append(line)
}

// Sync makes everything appended so far durable.
func (a *AppendFile) Sync() error {
	if err := before(OpFsync, a.path); err != nil {
		return err
	}
	return a.f.Sync()
}

// Close closes the file without syncing it.
func (a *AppendFile) Close() error { return a.f.Close() }
