package fingerprint

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"assay/internal/statcache"
	"assay/schemas"
)

// The levels say how much of a checkpoint a fingerprint rests on.
const (
	// Header: of every file its path, its size and the digest of its header, which is
	// that of a safetensors file, else its first MiB. It tells names, types, shapes and
	// places of tensors, not the weights.
	Header = schemas.FingerprintHeader
	// Full: of every file its path, its size and the digest of its content.
	Full = schemas.FingerprintFull
)

const (
	// headBytes is what is read of a file without a header of known length.
	headBytes = 1 << 20
	// maxHeaderBytes is the longest header that the safetensors format allows.
	maxHeaderBytes = 100_000_000
	// maxFiles bounds how many files a checkpoint has.
	maxFiles = 100_000
	// readers is how many files are read at once.
	readers = 4
)

// entry is what a fingerprint says of one file.
type entry struct {
	Path   string         `json:"path"`
	Size   int64          `json:"size"`
	Head   schemas.Digest `json:"head,omitempty"`
	Sha256 schemas.Digest `json:"sha256,omitempty"`
}

// Of computes the fingerprint of a checkpoint, a folder or a file, at a level. The
// cache gives the digests of files that stat shows to be unchanged; nil reads all.
func Of(ctx context.Context, path, level string, cache *statcache.Files) (schemas.Digest, error) {
	if level != Header && level != Full {
		return "", fmt.Errorf("fingerprint: level %q: want %s or %s", level, Header, Full)
	}
	real, err := filepath.EvalSymlinks(path) // a walk does not follow its root
	if err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	files, paths, err := list(ctx, real)
	if err == nil {
		err = read(ctx, files, paths, level, cache)
	}
	if err != nil {
		return "", fmt.Errorf("fingerprint %s: %w", filepath.Base(real), err)
	}
	b, err := schemas.Canonical(map[string]any{"level": level, "files": files})
	if err != nil {
		return "", err
	}
	return schemas.DigestOf(b), nil
}

// list names the files of a checkpoint, links to files followed, hidden folders
// (those of version control and downloads) left out.
func list(ctx context.Context, root string) (files []entry, paths []string, err error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		return []entry{{Path: filepath.Base(root)}}, []string{root}, nil
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir() && p != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		case len(files) == maxFiles:
			return fmt.Errorf("there are more than %d files", maxFiles)
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		files, paths = append(files, entry{Path: filepath.ToSlash(rel)}), append(paths, p)
		return nil
	})
	return files, paths, err
}

// read fills the entries, several at once.
func read(ctx context.Context, files []entry, paths []string, level string, cache *statcache.Files) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i := range files {
		group.Go(func() error {
			err := ctx.Err()
			switch {
			case err != nil:
			case level == Full:
				files[i].Sha256, files[i].Size, err = content(ctx, paths[i], cache)
			default:
				files[i].Head, files[i].Size, err = head(paths[i])
			}
			if err != nil {
				return fmt.Errorf("%s: %w", files[i].Path, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// open opens a regular file, and never waits for anything else.
func open(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("is not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func head(path string) (schemas.Digest, int64, error) {
	f, info, err := open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	b := make([]byte, headLength(f, path, info.Size()))
	if _, err := io.ReadFull(f, b); err != nil {
		return "", 0, fmt.Errorf("read %d bytes: %w", len(b), err)
	}
	return schemas.DigestOf(b), info.Size(), nil
}

// headLength is how much of a file its header takes: what a safetensors file says
// of itself where that can be, else the first MiB.
func headLength(r io.ReaderAt, path string, size int64) int64 {
	usual := min(size, headBytes)
	if !strings.HasSuffix(path, ".safetensors") || size < 8 {
		return usual
	}
	var length [8]byte
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return usual
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeaderBytes || int64(n) > size-8 {
		return usual
	}
	return 8 + int64(n)
}
