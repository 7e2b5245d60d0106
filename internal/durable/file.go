package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is a file that does not exist under its final name until Commit.
type File struct {
	f      *os.File
	temp   string
	final  string
	failed bool
}

// WriteFile replaces path with data, atomically and durably. mode is subject to
// no umask.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.f.Chmod(mode); err != nil {
		return err
	}
	return f.Commit()
}

// Create opens a temporary file in the folder of finalPath. The caller must end
// with Commit or Abort; Abort after Commit does nothing.
func Create(finalPath string) (*File, error) {
	temp := filepath.Join(filepath.Dir(finalPath), tempName())
	if err := before(OpCreate, temp); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	return &File{f: f, temp: temp, final: finalPath}, nil
}

// Write adds b. After an error the file can only be aborted.
func (f *File) Write(b []byte) (int, error) {
	n, err := write(f.f, f.temp, b)
	if err != nil {
		f.failed = true
	}
	return n, err
}

// Commit makes the file appear under the name given to Create.
func (f *File) Commit() error { return f.CommitTo(f.final) }

// CommitTo makes the file appear as path, which must be in the folder it was
// created in: content-addressed files learn their name only at the end.
func (f *File) CommitTo(path string) error {
	if err := f.Publish(path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Publish is CommitTo without its last step: the bytes are durable, the name is
// once SyncDir was called on the folder. It is for many files that nothing names
// before that call.
func (f *File) Publish(path string) error {
	if f.f == nil {
		return fmt.Errorf("commit %s: already ended", f.final)
	}
	if f.failed {
		return fmt.Errorf("commit %s: an earlier write went wrong", f.final)
	}
	if filepath.Dir(path) != filepath.Dir(f.temp) {
		return fmt.Errorf("commit %s: not in the folder of %s", path, f.temp)
	}
	if err := before(OpFsync, f.temp); err != nil {
		return err
	}
	if err := f.f.Sync(); err != nil {
		return err
	}
	// A close error after fsync tells of nothing that could still be lost.
	_ = f.f.Close()
	if err := before(OpRename, path); err != nil {
		return err
	}
	if err := os.Rename(f.temp, path); err != nil {
		return err
	}
	f.f, f.temp = nil, ""
	return nil
}

// Clone fills the empty file with length bytes of src from offset on, sharing
// their blocks, and reports whether the file system could: nothing was written
// if not. The clone no longer changes with src. It is read with ReadAt.
func (f *File) Clone(src *os.File, offset, length int64) (bool, error) {
	if !mayClone(f.f, src) {
		return false, nil
	}
	if err := before(OpWrite, f.temp); err != nil {
		f.failed = true
		return false, err
	}
	err := unix.IoctlFileCloneRange(int(f.f.Fd()), &unix.FileCloneRange{Src_fd: int64(src.Fd()), Src_offset: uint64(offset), Src_length: uint64(length)})
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) || errors.Is(err, unix.EIO) {
		f.failed = true
		return false, &fs.PathError{Op: "clone", Path: f.temp, Err: err}
	}
	return err == nil, nil
}

// mayClone says whether it is worth asking: only some file systems can.
func mayClone(f, src *os.File) bool {
	var a, b unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &a) != nil || unix.Fstatfs(int(src.Fd()), &b) != nil || a.Fsid != b.Fsid {
		return false
	}
	switch uint32(a.Type) {
	case unix.BTRFS_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, 0x2fc12fc1 /* ZFS */, 0xca451a4e /* bcachefs */ :
		return true
	}
	return false
}

// StartWriteback lets the disk begin with bytes that were written. It is a hint:
// it waits for nothing and promises nothing.
func (f *File) StartWriteback(offset, length int64) {
	_ = unix.SyncFileRange(int(f.f.Fd()), offset, length, unix.SYNC_FILE_RANGE_WRITE)
}

// ReadAt reads back what was written.
func (f *File) ReadAt(b []byte, offset int64) (int, error) { return f.f.ReadAt(b, offset) }

// Link gives the file, as far as it is written and will be, a second name, which
// stays when the file is aborted or its process dies. Nothing makes it durable.
func (f *File) Link(path string) error {
	if err := before(OpCreate, path); err != nil {
		return err
	}
	return os.Link(f.temp, path)
}

// Abort removes the temporary file. It is safe to call at any time.
func (f *File) Abort() {
	if f.f == nil {
		return
	}
	_ = f.f.Close()
	f.f = nil
	if before(OpRemove, f.temp) == nil {
		// What stays behind is recognised as dead and swept later.
		_ = os.Remove(f.temp)
	}
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	if err := before(OpSyncDir, dir); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
