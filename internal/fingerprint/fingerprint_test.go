package fingerprint

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"assay/internal/statcache"
	"assay/schemas"
)

// tensors is a safetensors file by its header's length, with weights of one letter.
func tensors(header string, letter string, n int) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat(letter, n)
}

func files(t *testing.T, m map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range m {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func of(t *testing.T, path, level string, cache *statcache.Files) schemas.Digest {
	t.Helper()
	d, err := Of(context.Background(), path, level, cache)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What each level sees of a change.
func TestLevels(t *testing.T) {
	long := strings.Repeat("x", headBytes)
	base := map[string]string{"config.json": "{}", "m.safetensors": tensors("{}", "a", 100), "sub/t.bin": long + "a", ".git/x": "1"}
	with := func(name, text string) map[string]string {
		out := map[string]string{}
		for k, v := range base {
			out[k] = v
		}
		if out[name] = text; text == "" {
			delete(out, name)
		}
		return out
	}
	dir := files(t, base)
	header, full := of(t, dir, Header, nil), of(t, dir, Full, nil)
	if header == full || !header.Valid() || !full.Valid() {
		t.Fatalf("%s, %s", header, full)
	}
	for name, c := range map[string]struct {
		files        map[string]string
		header, full bool // seen
	}{
		"nothing":             {base, false, false},
		"a hidden folder":     {with(".git/x", "2"), false, false},
		"weights":             {with("m.safetensors", tensors("{}", "b", 100)), false, true},
		"the header":          {with("m.safetensors", tensors("{ ", "a", 100)), true, true},
		"a length":            {with("m.safetensors", tensors("{}", "a", 101)), true, true},
		"the config":          {with("config.json", "[]"), true, true},
		"after the first MiB": {with("sub/t.bin", long+"b"), false, true},
		"in the first MiB":    {with("sub/t.bin", "y"+long), true, true},
		"a name":              {with("sub/u.bin", long+"a"), true, true},
		"a file less":         {with("config.json", ""), true, true},
		"no header at all":    {with("m.safetensors", strings.Repeat("z", 110)), true, true},
	} {
		dir := files(t, c.files)
		if got := of(t, dir, Header, nil) != header; got != c.header {
			t.Errorf("%s: level header sees it: %t", name, got)
		}
		if got := of(t, dir, Full, nil) != full; got != c.full {
			t.Errorf("%s: level full sees it: %t", name, got)
		}
	}
}

// A cache of links has the fingerprint of what they lead to, and a file alone one
// that its folder does not enter.
func TestLinksAndFilesAlone(t *testing.T) {
	dir := files(t, map[string]string{"m.safetensors": tensors("{}", "a", 9), "config.json": "{}"})
	links := t.TempDir()
	for _, name := range []string{"m.safetensors", "config.json"} {
		if err := os.Symlink(filepath.Join(dir, name), filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	named := filepath.Join(t.TempDir(), "model")
	if err := os.Symlink(links, named); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{Header, Full} {
		if a, b := of(t, dir, level, nil), of(t, named, level, nil); a != b {
			t.Errorf("%s: %s and, by links, %s", level, a, b)
		}
		other := files(t, map[string]string{"m.safetensors": tensors("{}", "a", 9), "z": ""})
		if a, b := of(t, filepath.Join(dir, "m.safetensors"), level, nil), of(t, filepath.Join(other, "m.safetensors"), level, nil); a != b {
			t.Errorf("%s: one file is %s and %s", level, a, b)
		}
	}
}

// The cache spares the reading of what has not changed, and only that.
func TestTheCacheSparesReading(t *testing.T) {
	dir := files(t, map[string]string{"m.safetensors": tensors("{}", "a", 5000)})
	path := filepath.Join(dir, "m.safetensors")
	if !statcache.LocalDisk(path) {
		t.Skip("the temporary folder lies on no local disk, of which nothing is remembered")
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stamp := statcache.StampOf(info)
	cache := statcache.NewFiles(filepath.Join(t.TempDir(), "cache"))
	truth := of(t, dir, Full, nil)
	cache.Remember(stamp, stamp, info.ModTime().Add(time.Hour), statcache.Sum{1}, path)
	if err := cache.Save(); err != nil {
		t.Fatal(err)
	}
	if got := of(t, dir, Full, cache); got == truth {
		t.Error("a file that the cache knows was read")
	}
	if got := of(t, dir, Header, cache); got != of(t, dir, Header, nil) {
		t.Error("the cache entered a fingerprint at header level")
	}
	if err := os.WriteFile(path, []byte(tensors("{}", "b", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := of(t, dir, Full, cache); got != of(t, dir, Full, nil) {
		t.Error("a file that has changed was not read")
	}
}

func TestWhatCannotBeReadHasNoFingerprint(t *testing.T) {
	dir := files(t, map[string]string{"a": "x"})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := files(t, map[string]string{"a": "x"})
	if err := os.Symlink("none", filepath.Join(dangling, "link")); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{dir: "pipe: is not a regular file", dangling: "no such file", filepath.Join(dir, "none"): "no such file"} {
		for _, level := range []string{Header, Full} {
			if d, err := Of(context.Background(), path, level, nil); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s of %s: %s, %v", level, path, d, err)
			}
		}
	}
	if _, err := Of(context.Background(), dangling, "deep", nil); err == nil || !strings.Contains(err.Error(), `level "deep"`) {
		t.Errorf("%v", err)
	}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Of(stopped, files(t, map[string]string{"a": "x"}), Full, nil); err == nil {
		t.Error("a stopped reading has a fingerprint")
	}
}
