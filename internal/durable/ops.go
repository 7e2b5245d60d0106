package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// MkdirAll makes dir and its missing parents with mode 0755, each durable.
func MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	if err == nil {
		if !info.IsDir() {
			return notFolder(dir, info)
		}
		return nil
	}
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: fmt.Errorf("%w: %w", ErrNotFolder, err)}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() { // another may just have made it
		return notFolder(dir, info) // a link that leads nowhere
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := before(OpMkdir, dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(parent)
}

// ErrNotFolder is wrapped by the errors of what wants a folder and finds something
// else.
var ErrNotFolder = errors.New("is no folder")

func notFolder(dir string, info fs.FileInfo) error {
	return &fs.PathError{Op: "mkdir", Path: dir, Err: fmt.Errorf("it is a %s: %w", TypeName(info.Mode()), ErrNotFolder)}
}

// Rename moves a file or folder and makes both folders' names durable. What is
// renamed must have been synced before.
func Rename(from, to string) error {
	if err := before(OpRename, to); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	if filepath.Dir(from) == filepath.Dir(to) {
		return nil
	}
	return SyncDir(filepath.Dir(from))
}

// Remove removes a file or an empty folder, durably.
func Remove(path string) error {
	if err := before(OpRemove, path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// RemoveAll removes a folder with all that is in it. A missing one is no error.
// A crash may leave part of it.
func RemoveAll(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := before(OpRemove, path); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Symlink makes path a symbolic link to target, durably.
func Symlink(target, path string) error {
	if err := before(OpSymlink, path); err != nil {
		return err
	}
	if err := os.Symlink(target, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// TempDir makes an empty folder in parent whose name SweepTemps recognises once
// this process is dead. The caller renames or removes it.
func TempDir(parent string) (string, error) {
	dir := filepath.Join(parent, tempName())
	if err := before(OpMkdir, dir); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o755)
}

// Touch sets the modification time of a file to now. It is not synced: after a
// power loss the file may look older than it is.
func Touch(path string) error {
	if err := before(OpTouch, path); err != nil {
		return err
	}
	now := time.Now()
	return os.Chtimes(path, now, now)
}

// Unlink removes a file. The caller makes it durable with SyncDir, once for many.
func Unlink(path string) error {
	if err := before(OpRemove, path); err != nil {
		return err
	}
	return os.Remove(path)
}
