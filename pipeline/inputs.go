package pipeline

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"assay/internal/statcache"
	"assay/schemas"
)

// input is one declared input of a node: hashed before the stage runs, looked at
// again after it.
type input struct {
	schemas.Input
	path       string
	executable bool                 // of a single file
	stats      map[string]fileStamp // file, folder or link -> what it looked like before it was read
	cache      *inputCache
}

// identity is how the input stands in a key: a script that may no longer be run
// is another input.
func (in *input) identity() string {
	if in.executable {
		return string(in.Digest) + " executable"
	}
	return string(in.Digest)
}

// stamp notes what path looks like, both itself and, for a link, what it leads to.
func (in *input) stamp(path string) (fs.FileInfo, error) {
	self, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	fi := self
	if self.Mode()&fs.ModeSymlink != 0 {
		in.stats[path+"\x00link"] = stampOf(self)
		if fi, err = os.Stat(path); err != nil {
			return nil, err
		}
	}
	in.stats[path] = stampOf(fi)
	return fi, nil
}

// fileStamp tells whether a file, folder or link was written, replaced, moved or
// given other permissions: no program can set a change time back.
type fileStamp struct {
	dev, ino uint64
	mode     fs.FileMode
	size     int64
	mtime    int64
	ctime    int64 // 0 where the system does not tell
}

// hashInput hashes a file or a folder. Symbolic links are followed: model caches
// are links to elsewhere and are read as such. What cannot be read is an error,
// never a digest. With a cache, a large file that was read before and is unchanged
// is not read.
func hashInput(ctx context.Context, name, origin, path string, cache *inputCache) (*input, error) {
	in := &input{Input: schemas.Input{Name: name, Origin: origin}, path: path, stats: map[string]fileStamp{}, cache: cache}
	fi, err := in.stamp(path)
	if err != nil {
		return nil, fmt.Errorf("input %s: %w", name, err)
	}
	if !fi.IsDir() {
		d, size, err := in.hashFile(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", name, err)
		}
		in.Digest, in.Bytes, in.Files, in.executable = d, size, 1, fi.Mode()&0o111 != 0
		return in, nil
	}
	var entries []schemas.TreeEntry
	if err := in.walk(ctx, path, "", &entries, nil); err != nil {
		return nil, fmt.Errorf("input %s: %w", name, err)
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Path < entries[j].Path })
	if in.Digest, err = schemas.TreeDigest(entries); err != nil {
		return nil, fmt.Errorf("input %s: %w", name, err)
	}
	in.Files, in.Bytes = schemas.SumEntries(entries)
	return in, nil
}

// InputDigest is the digest of a file or folder as it would stand among a stage's inputs.
func InputDigest(ctx context.Context, path string) (schemas.Digest, error) {
	in, err := hashInput(ctx, path, "file", path, nil)
	if err != nil {
		return "", err
	}
	return in.Digest, nil
}

// walk lists a folder with links followed; open holds the folders above, so that
// a link back to one of them is an error rather than a loop.
func (in *input) walk(ctx context.Context, dir, rel string, entries *[]schemas.TreeEntry, open []fs.FileInfo) error {
	self, err := os.Stat(dir)
	if err != nil {
		return err
	}
	for _, o := range open {
		if os.SameFile(o, self) {
			return fmt.Errorf("%s: a symbolic link leads back to a folder above it", dir)
		}
	}
	open = append(open, self)
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, de := range list {
		p, r := filepath.Join(dir, de.Name()), strings.TrimPrefix(rel+"/"+de.Name(), "/")
		fi, err := in.stamp(p)
		if err != nil {
			return err
		}
		if fi.IsDir() {
			*entries = append(*entries, schemas.TreeEntry{Path: r, Kind: schemas.EntryDir})
			if err := in.walk(ctx, p, r, entries, open); err != nil {
				return err
			}
			continue
		}
		d, size, err := in.hashFile(ctx, p)
		if err != nil {
			return err
		}
		*entries = append(*entries, schemas.TreeEntry{Path: r, Kind: schemas.EntryFile, Executable: fi.Mode()&0o111 != 0, Size: size, Digest: d})
	}
	return nil
}

func (in *input) hashFile(ctx context.Context, path string) (schemas.Digest, int64, error) {
	if !in.stats[path].mode.IsRegular() {
		return "", 0, fmt.Errorf("%s: is neither a regular file nor a folder", path) // opening a pipe would wait for a writer
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	if stampOf(fi) != in.stats[path] {
		return "", 0, fmt.Errorf("%s: it was replaced while it was being read", path)
	}
	began, before := time.Now(), statcache.StampOf(fi)
	if d, ok := in.cache.lookup(before); ok {
		return d, fi.Size(), nil
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, &ctxReader{ctx, f}, make([]byte, 128<<10))
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", path, err)
	}
	sum := statcache.Sum(h.Sum(nil))
	if fi, err = f.Stat(); err != nil {
		return "", 0, err
	}
	if after := statcache.StampOf(fi); after.Size == n {
		in.cache.remember(before, after, began, sum, path)
	}
	return schemas.DigestFromSum(sum[:]), n, nil
}

// changed says whether the input is no longer what was hashed, or was written
// to since: a change that was undone in time cannot be told from one that was read.
func (in *input) changed(ctx context.Context) bool {
	now, err := hashInput(ctx, in.Name, in.Origin, in.path, nil)
	if err != nil || now.Digest != in.Digest || len(now.stats) != len(in.stats) {
		return true
	}
	for p, before := range in.stats {
		if now.stats[p] != before {
			return true
		}
	}
	return false
}

// ctxReader stops a long read when its context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
