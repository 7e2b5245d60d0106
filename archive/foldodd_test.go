package archive

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"assay/internal/durable"
	"assay/schemas"
)

// Whatever stands in the place of a file of an extracted run is refused at once,
// by every reader of it: nobody waits for a pipe, follows a link out of the folder,
// or reads more than the listed bytes.
func TestOddExtractedFiles(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	run, err := s.Run(ctx, sealRun(t, s, "r1", "", smallStages()))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]func(string) error{
		"missing": os.Remove,
		"device":  func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) },
		"longer": func(path string) error {
			return os.Truncate(path, 1<<40) // sparse
		},
		"socket": func(path string) error {
			return errors.Join(os.Remove(path), syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0))
		},
	}
	for kind, make := range odds {
		kinds[kind] = make
	}
	for kind, make := range kinds {
		for _, e := range run.Files.Entries {
			if e.Kind != schemas.EntryFile {
				continue
			}
			t.Run(kind+" for "+e.Path, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "x")
				if err := run.Extract(ctx, dir); err != nil {
					t.Fatal(err)
				}
				if err := make(filepath.Join(dir, e.Path)); err != nil {
					t.Fatal(err)
				}
				ref, err := ResolvePath(ctx, dir)
				if err != nil {
					t.Fatal(err)
				}
				var v Verdict
				err = inTime(t, "verify", func() (err error) {
					v, err = ref.Verify(ctx)
					return err
				})
				wantVerdict(t, v, err, Invalid)
				extracted, err := ref.Run(ctx)
				if err != nil {
					t.Fatal(err)
				}
				err = inTime(t, "cat", func() error {
					f, err := extracted.OpenFile(ctx, e.Path)
					if err != nil {
						return err
					}
					_, err = io.Copy(io.Discard, f)
					return errors.Join(err, f.Close())
				})
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) || corrupt.Path != e.Path {
					t.Errorf("cat: %v", err)
				}
				if _, odd := odds[kind]; odd && !errors.Is(err, durable.ErrNotRegular) {
					t.Errorf("cat: %v, want that it is no file", err)
				}
			})
			break
		}
	}
}
