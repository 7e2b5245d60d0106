package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is wrapped by the errors of what wants a file and finds a link,
// folder, pipe, socket or device.
var ErrNotRegular = errors.New("is no regular file")

// OpenRegular opens a file, or what a link leads to, for reading. A pipe, device,
// socket or folder is refused at once: opening a pipe would wait for somebody to
// write into it.
func OpenRegular(path string) (*os.File, error) {
	return openChecked(path, os.O_RDONLY)
}

// OpenPlain is OpenRegular for files that this program wrote itself: a symbolic
// link in the place of one is refused too, and never followed.
func OpenPlain(path string) (*os.File, error) {
	f, err := openChecked(path, os.O_RDONLY|syscall.O_NOFOLLOW)
	if err != nil && !errors.Is(err, ErrNotRegular) && !errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(CheckPlain(path), err)
	}
	return f, err
}

func openChecked(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = notRegular(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// CheckPlain says what stands in the place of a file; nil for a regular file and
// for nothing at all.
func CheckPlain(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return notRegular(path, info)
}

func notRegular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("it is a %s: %w", TypeName(info.Mode()), ErrNotRegular)}
}

// TypeName is a word for what a path is.
func TypeName(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "regular file"
	case m.IsDir():
		return "folder"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
