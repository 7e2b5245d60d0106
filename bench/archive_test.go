package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"assay/archive"
)

// randomTree writes count files of size bytes each and returns the folder and
// their bytes in all.
func randomTree(b *testing.B, count, size int) (string, int64) {
	b.Helper()
	dir := b.TempDir()
	rng := rand.NewChaCha8([32]byte{1})
	buf := make([]byte, size)
	for i := range count {
		if _, err := rng.Read(buf); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%06d", i)), buf, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return dir, int64(count) * int64(size)
}

// hashOnly is the limit: one thread reads and hashes the tree, nothing is stored.
func hashOnly(b *testing.B, dir string) time.Duration {
	b.Helper()
	start := time.Now()
	err := filepath.WalkDir(dir, func(p string, de fs.DirEntry, err error) error {
		if err != nil || de.IsDir() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(sha256.New(), f)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func benchmarkPut(b *testing.B, count, size int) {
	dir, total := randomTree(b, count, size)
	b.SetBytes(total)
	var put, hash time.Duration
	for b.Loop() {
		b.StopTimer()
		hash += hashOnly(b, dir)
		store, err := archive.OpenOrCreate(filepath.Join(b.TempDir(), "store"))
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		start := time.Now()
		if _, _, err := store.PutTree(context.Background(), dir); err != nil {
			b.Fatal(err)
		}
		put += time.Since(start)
	}
	b.ReportMetric(float64(put)/float64(hash), "x_sha256_one_thread")
}

// BenchmarkPutLarge stores 256 MiB that do not compress, in two files.
func BenchmarkPutLarge(b *testing.B) { benchmarkPut(b, 2, 128<<20) }

// BenchmarkPutSmall stores 5,000 files of 8 KiB that do not compress.
func BenchmarkPutSmall(b *testing.B) { benchmarkPut(b, 5000, 8<<10) }
