package archive

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"assay/schemas"
)

// What has rotten in the store is written anew when the right bytes come by.
func TestStoringAgainHealsWhatHasRotten(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	dir := t.TempDir()
	for name, size := range map[string]int{"small": 1000, "large": largeFileBytes + 5} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(noise(size, 7)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, doc, err := s.PutTree(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	blobs := []schemas.Digest{doc}
	for _, b := range tree.Blobs {
		blobs = append(blobs, b.Digest)
	}
	for _, d := range blobs {
		b, err := os.ReadFile(s.blobPath(d))
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.Remove(s.blobPath(d)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.blobPath(d), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	// Other files with the same content: the stat cache knows nothing of them.
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if _, doc, err = again.PutTree(WithRehash(ctx), copied); err != nil {
		t.Fatal(err)
	}
	if err := again.CheckTree(ctx, doc); err != nil {
		t.Error(err)
	}
}

func TestATagCannotBeHowARunIsWritten(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "r1", "baseline", smallStages())
	if err := s.Tag(context.Background(), run.Hex()[:12], run); err == nil {
		t.Error("a tag that is a prefix of a digest was accepted")
	}
	if err := s.Tag(context.Background(), "kid", run); err != nil {
		t.Error(err)
	}
}

func TestExtractIntoAnEmptyFolder(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	digest := sealRun(t, s, "r1", "baseline", smallStages())
	run, err := s.Run(ctx, digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Extract(ctx, t.TempDir()); err != nil {
		t.Error(err)
	}
}
