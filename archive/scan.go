package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"assay/internal/statcache"
	"assay/schemas"
)

// scanned is an entry found in a folder, with what stat said of it.
type scanned struct {
	entry schemas.TreeEntry
	stamp statcache.Stamp
}

// scan lists everything below root, byte-sorted by path, and what stat
// said of each. Whatever is no file, folder or symbolic link that stays inside, or
// cannot be read, is an error: an entry left out would be a digest that lies.
func scan(ctx context.Context, dir string, root *os.Root) ([]schemas.TreeEntry, []statcache.Stamp, error) {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	s := &scanner{ctx: gctx, dir: dir, root: root, group: group, progress: newMeter(ctx, PhaseScan, 0)}
	group.Go(func() error { return s.folder("") })
	if err := group.Wait(); err != nil {
		return nil, nil, errors.Join(ctx.Err(), err)
	}
	s.progress.end()
	entries, stamps := s.sorted()
	links := make([]schemas.TreeEntry, 0, 16)
	for i := range entries {
		if entries[i].Kind == schemas.EntrySymlink {
			links = append(links, entries[i])
		}
	}
	if err := checkLinks(links); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	return entries, stamps, nil
}

// sorted takes what was found apart: stamps are needed for a shorter time than
// entries, and there may be a million of both.
func (s *scanner) sorted() ([]schemas.TreeEntry, []statcache.Stamp) {
	entries, stamps := make([]schemas.TreeEntry, 0, s.count), make([]statcache.Stamp, 0, s.count)
	for n, folder := range s.out {
		for i := range folder {
			entries, stamps = append(entries, folder[i].entry), append(stamps, folder[i].stamp)
		}
		s.out[n] = nil
	}
	order := orderByPath(entries)
	permute(entries, order)
	permute(stamps, order)
	return entries, stamps
}

// scanner lists folders, several at a time.
type scanner struct {
	ctx      context.Context
	dir      string
	root     *os.Root
	group    *errgroup.Group
	progress *meter

	mu    sync.Mutex
	out   [][]scanned // by folder
	count int
}

func (s *scanner) folder(rel string) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	found, err := s.list(rel)
	if err != nil {
		return err
	}
	s.progress.add(int64(len(found)))
	s.mu.Lock()
	s.out = append(s.out, found)
	s.count += len(found)
	n := s.count
	s.mu.Unlock()
	if n > maxEntries {
		return fmt.Errorf("%s: more than %d entries", s.dir, maxEntries)
	}
	for _, f := range found {
		if f.entry.Kind != schemas.EntryDir {
			continue
		}
		if s.group.TryGo(func() error { return s.folder(f.entry.Path) }) {
			continue
		}
		if err := s.folder(f.entry.Path); err != nil {
			return err
		}
	}
	return nil
}

// list reads one folder.
func (s *scanner) list(rel string) ([]scanned, error) {
	name := rel
	if name == "" {
		name = "."
	}
	f, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(s.dir, rel), err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(s.dir, rel), err)
	}
	out := make([]scanned, 0, len(names))
	fd := int(f.Fd())
	for _, n := range names {
		p := n
		if rel != "" {
			p = rel + "/" + n
		}
		one, err := scanOne(fd, n, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(s.dir, p), err)
		}
		out = append(out, one)
	}
	return out, nil
}

// scanOne looks at one entry of an open folder.
func scanOne(fd int, name, rel string) (scanned, error) {
	if !utf8.ValidString(rel) {
		return scanned{}, fmt.Errorf("the name %q is not UTF-8", rel)
	}
	if len(rel) > maxPathBytes {
		return scanned{}, fmt.Errorf("the path is longer than %d bytes", maxPathBytes)
	}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return scanned{}, &fs.PathError{Op: "lstat", Path: rel, Err: err}
	}
	e := schemas.TreeEntry{Path: rel}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.Kind = schemas.EntryDir
	case unix.S_IFREG:
		e.Kind, e.Size, e.Executable = schemas.EntryFile, st.Size, st.Mode&0o111 != 0
	case unix.S_IFLNK:
		buf := make([]byte, maxPathBytes+1)
		n, err := unix.Readlinkat(fd, name, buf)
		if err != nil {
			return scanned{}, &fs.PathError{Op: "readlink", Path: rel, Err: err}
		}
		e.Kind, e.Target = schemas.EntrySymlink, string(buf[:n])
		if !utf8.ValidString(e.Target) {
			return scanned{}, fmt.Errorf("the link target %q is not UTF-8", e.Target)
		}
	default:
		return scanned{}, fmt.Errorf("is a %s: only files, folders and symbolic links can be stored", fileType(st.Mode).Type())
	}
	return scanned{entry: e, stamp: stampOf(&st)}, nil
}

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// fileType names the kinds of files that cannot be stored.
func fileType(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFBLK:
		return fs.ModeDevice
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	}
	return fs.ModeIrregular
}
