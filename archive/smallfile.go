package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"assay/internal/statcache"
)

// smallFile is an open file of a folder that is being stored, without what
// os.File adds: with files of a few kilobytes that costs more than reading them.
type smallFile struct {
	fd   int
	path string
}

// opener opens files below a folder. One call of openat2 does what os.Root does
// with one call for each element of the path: no link is followed, nothing
// outside is reached.
type opener struct {
	root *os.Root
	dir  *os.File
	no2  atomic.Bool // the kernel, or what stands before it, refuses openat2
}

func newOpener(root *os.Root) (*opener, error) {
	dir, err := root.OpenFile(".", os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &opener{root: root, dir: dir}, nil
}

func (o *opener) Close() error { return o.dir.Close() }

var beneath = unix.OpenHow{
	Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC,
	Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
}

func (o *opener) open(path string) (smallFile, error) {
	if !o.no2.Load() {
		var fd int
		err := retry(func() (err error) {
			fd, err = unix.Openat2(int(o.dir.Fd()), path, &beneath)
			return err
		})
		switch {
		case err == nil:
			return smallFile{fd, path}, nil
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EAGAIN):
			// EAGAIN: a folder was renamed meanwhile, and the kernel cannot tell.
			if !errors.Is(err, unix.EAGAIN) {
				o.no2.Store(true)
			}
		default:
			return smallFile{}, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
	f, err := o.root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return smallFile{}, err
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return smallFile{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return smallFile{fd, path}, nil
}

func (f smallFile) Close() error { return unix.Close(f.fd) }

// stamp is what stat says of the file; regular says that it is one.
func (f smallFile) stamp() (s statcache.Stamp, regular bool, err error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return s, false, &os.PathError{Op: "stat", Path: f.path, Err: err}
	}
	return stampOf(&st), st.Mode&unix.S_IFMT == unix.S_IFREG, nil
}

func stampOf(st *unix.Stat_t) statcache.Stamp {
	return statcache.Stamp{Dev: st.Dev, Ino: st.Ino, Size: st.Size, MTime: st.Mtim.Nano(), CTime: st.Ctim.Nano()}
}

// Read is io.Reader's.
func (f smallFile) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	err = retry(func() error {
		n, err = unix.Read(f.fd, b)
		return err
	})
	switch {
	case err != nil:
		return 0, &os.PathError{Op: "read", Path: f.path, Err: err}
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// openSmall opens a scanned file and makes sure it is still the one that was
// scanned, not a link put in its place.
func (t *treeSource) openSmall(i int) (smallFile, error) {
	f, err := t.opener.open(t.entries[i].Path)
	if err != nil {
		return f, fmt.Errorf("store %s: %w", t.full(i), err)
	}
	now, regular, err := f.stamp()
	if err == nil {
		err = t.sameStamp(i, now, regular)
	}
	if err != nil {
		return f, errors.Join(fmt.Errorf("store %s: %w", t.full(i), err), f.Close())
	}
	return f, nil
}
