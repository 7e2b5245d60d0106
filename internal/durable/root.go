package durable

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Root writes files below one folder and never outside, whatever symbolic links
// lie there. Files are not synced one by one: call Sync at the end.
type Root struct {
	r *os.Root
}

// OpenRoot opens an existing folder.
func OpenRoot(dir string) (*Root, error) {
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Root{r: r}, nil
}

// Close closes the folder.
func (r *Root) Close() error { return r.r.Close() }

func (r *Root) path(name string) string { return filepath.Join(r.r.Name(), name) }

// Mkdir makes one folder.
func (r *Root) Mkdir(name string) error {
	if err := before(OpMkdir, r.path(name)); err != nil {
		return err
	}
	return r.r.Mkdir(name, 0o755)
}

// Symlink makes name a symbolic link to target.
func (r *Root) Symlink(target, name string) error {
	if err := before(OpSymlink, r.path(name)); err != nil {
		return err
	}
	return r.r.Symlink(target, name)
}

// RootFile is a new file below a Root.
type RootFile struct {
	f                *os.File
	path             string
	written, started int64
}

// Create makes a new file; it must not exist.
func (r *Root) Create(name string, mode fs.FileMode) (*RootFile, error) {
	if err := before(OpCreate, r.path(name)); err != nil {
		return nil, err
	}
	f, err := r.r.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(mode); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &RootFile{f: f, path: r.path(name)}, nil
}

// Write adds b. The disk begins with a long file before its end: else it would
// have everything to do in Sync, while nothing else is left to be done.
func (f *RootFile) Write(b []byte) (int, error) {
	const every = 8 << 20
	n, err := write(f.f, f.path, b)
	f.written += int64(n)
	if f.written-f.started >= every {
		_ = unix.SyncFileRange(int(f.f.Fd()), f.started, f.written-f.started, unix.SYNC_FILE_RANGE_WRITE) // a hint
		f.started = f.written
	}
	return n, err
}

// Close closes the file.
func (f *RootFile) Close() error { return f.f.Close() }

// Sync makes every file and folder below the root durable: one by one and
// several at a time, or, when they are many, with one call for the whole file
// system they lie on.
func (r *Root) Sync() error {
	const many = 256
	type item struct {
		op   Op
		name string
	}
	var items []item
	err := fs.WalkDir(r.r.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			items = append(items, item{OpSyncDir, name})
		case d.Type().IsRegular():
			items = append(items, item{OpFsync, name})
		}
		if len(items) > many {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(items) > many {
		return r.syncAll()
	}
	var group errgroup.Group
	group.SetLimit(8)
	for _, it := range items {
		group.Go(func() error { return r.syncOne(it.op, it.name) })
	}
	return group.Wait()
}

func (r *Root) syncOne(op Op, name string) error {
	if err := before(op, r.path(name)); err != nil {
		return err
	}
	f, err := r.r.Open(path.Clean(name))
	if err != nil {
		return err
	}
	err = f.Sync()
	_ = f.Close()
	return err
}

// syncAll is one system call and reports errors of writing back (Linux 5.8 and
// later).
func (r *Root) syncAll() error {
	if err := before(OpFsync, r.r.Name()); err != nil {
		return err
	}
	f, err := r.r.Open(".")
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(f.Fd()))
	_ = f.Close()
	if err != nil {
		return &fs.PathError{Op: "sync", Path: r.r.Name(), Err: err}
	}
	return nil
}
