package pipeline

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"assay/internal/statcache"
)

// A large input is read once while it is unchanged; a change that keeps size and
// modification time is seen; the look after a stage always reads; a wrong row in
// the cache taints.
func TestInputCache(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	if !statcache.LocalDisk(dir) {
		t.Skip("the temporary folder is on no known local disk")
	}
	path := filepath.Join(dir, "model.bin")
	content := bytes.Repeat([]byte("weights "), cachedInputBytes/8)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for !statcache.Settled(statcache.StampOf(info), time.Now()) {
		time.Sleep(time.Millisecond)
	}
	opts := Options{StoreDir: filepath.Join(dir, "store")}
	hash := func(c *inputCache) *input {
		t.Helper()
		in, err := hashInput(ctx, "model", "file", path, c)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	want := hash(nil).Digest
	if got := hash(newInputCache(opts, false)).Digest; got != want {
		t.Fatalf("digest %s, want %s", got, want)
	}
	if _, err := os.Stat(opts.StoreDir); err == nil {
		t.Error("a dry look wrote the cache")
	}
	if got := hash(newInputCache(opts, true)).Digest; got != want {
		t.Fatalf("digest %s, want %s", got, want)
	}
	stamp := statcache.StampOf(info)
	cache := newInputCache(opts, true)
	if got, ok := cache.lookup(stamp); !ok || got != want {
		t.Fatalf("the next run remembers %s, %t", got, ok)
	}
	// A row that lies: only the first look may believe it.
	cache.files.Remember(stamp, stamp, time.Now(), statcache.Sum{1}, path)
	if err := cache.files.Save(); err != nil {
		t.Fatal(err)
	}
	lied := hash(newInputCache(opts, true))
	if lied.Digest == want {
		t.Fatal("the cache was not used")
	}
	if !lied.changed(ctx) {
		t.Error("the look after the stage believed the cache")
	}
	opts.Rehash = true
	if got := hash(newInputCache(opts, true)).Digest; got != want {
		t.Errorf("with rehash the digest is %s, want %s", got, want)
	}
	opts.Rehash = false
	content[0] ^= 1
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if got, other := hash(newInputCache(opts, true)).Digest, hash(nil).Digest; got != other || got == want {
		t.Errorf("after a change that keeps size and time the digest is %s, want %s", got, other)
	}
}
