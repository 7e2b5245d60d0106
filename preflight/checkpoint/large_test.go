package checkpoint

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"assay/schemas"
)

// counting counts the bytes that are read through a file system.
type counting struct {
	fs.FS
	read *atomic.Int64
}

func (c counting) Open(name string) (fs.File, error) {
	f, err := c.FS.Open(name)
	if dir, ok := f.(fs.ReadDirFile); ok { // every file of the operating system's is one
		return countingFile{dir, c.read}, err
	}
	return f, err
}

type countingFile struct {
	fs.ReadDirFile
	read *atomic.Int64
}

func (c countingFile) Read(p []byte) (int, error) {
	n, err := c.ReadDirFile.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// writeLarge makes a checkpoint of 200 shards of 2 GB each, with 160 tensors a
// shard: files are as long as that, and take no room.
func writeLarge(t testing.TB, dir string) (parameters int64) {
	t.Helper()
	const shards, tensors, rows, columns = 200, 160, 3125, 2000
	files := map[string][]shape{}
	for i := range shards {
		var list []shape
		for j := range tensors {
			name := fmt.Sprintf("model.layers.%d.mlp.experts.%d.down_proj.weight", i, j)
			list = append(list, bf16(name, rows, columns))
		}
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		header, n := head(nil, list...)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, header, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, int64(len(header))+n); err != nil {
			t.Skipf("no sparse files here: %v", err)
		}
		files[name] = list
	}
	for name, b := range map[string][]byte{
		"model.safetensors.index.json": indexOf(files).Data, "config.json": []byte(strings.Replace(config, `"num_hidden_layers": 2`, `"num_hidden_layers": 200`, 1)),
		"tokenizer.json": make([]byte, 16<<20), "generation_config.json": []byte("{}"), "tokenizer_config.json": []byte(`{"chat_template": "x"}`),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return shards * tensors * rows * columns
}

func TestHeadersOfALargeCheckpointAreLittleToRead(t *testing.T) {
	dir := t.TempDir()
	parameters := writeLarge(t, dir)
	src, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var read atomic.Int64
	src.FS = counting{src.FS, &read}
	got := Check(context.Background(), "model m", src)
	if p := problems(got.Findings); len(p) > 0 {
		t.Errorf("%s", told(p))
	}
	if got.Facts.Parameters != parameters || got.Facts.Bytes != 2*parameters || got.Facts.Bytes < 400e9 {
		t.Errorf("%+v, want %d parameters", got.Facts, parameters)
	}
	if n := read.Load(); n > 50e6 || n < 1e6 {
		t.Errorf("%d bytes were read, want less than 50 MB", n)
	}
}

func BenchmarkLargeCheckpoint(b *testing.B) {
	dir := b.TempDir()
	writeLarge(b, dir)
	for b.Loop() {
		src, err := Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		if got := Check(context.Background(), "model m", src); len(problems(got.Findings)) > 0 {
			b.Fatal(told(got.Findings))
		}
	}
}

// write puts the small checkpoint into a folder.
func write(t *testing.T, dir string) {
	t.Helper()
	for name, f := range small() {
		if err := os.WriteFile(filepath.Join(dir, name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A revision in a model cache is links to blobs beside it, and may be named by a
// link itself.
func TestModelCaches(t *testing.T) {
	root := t.TempDir()
	blobs, snapshot := filepath.Join(root, "models--a--b", "blobs"), filepath.Join(root, "models--a--b", "snapshots", "0123")
	for _, d := range []string{blobs, snapshot} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, blobs)
	for name := range small() {
		if err := os.Symlink(filepath.Join("..", "..", "blobs", name), filepath.Join(snapshot, name)); err != nil {
			t.Fatal(err)
		}
	}
	named := filepath.Join(root, "model")
	if err := os.Symlink(snapshot, named); err != nil {
		t.Fatal(err)
	}
	look := func() []schemas.Finding {
		src, err := Open(named)
		if err != nil {
			t.Fatal(err)
		}
		return problems(Check(context.Background(), "model m", src).Findings)
	}
	if got := look(); len(got) > 0 {
		t.Errorf("intact: %s", told(got))
	}
	if err := os.Rename(filepath.Join(blobs, second), filepath.Join(blobs, second+".incomplete")); err != nil {
		t.Fatal(err)
	}
	got := look()
	if len(got) != 2 || got[0].ID != idDangling || got[1].ID != idIncomplete || got[1].Severity != schemas.SeverityWarning {
		t.Errorf("a blob is not there: %s", told(got))
	}
	if src, err := Open(filepath.Dir(filepath.Dir(snapshot))); err != nil || Check(context.Background(), "m", src).Findings[0].ID != idFolder {
		t.Errorf("the cache's folder: %v", err)
	}
	if _, err := Open(filepath.Join(root, "none")); err == nil {
		t.Error("a folder that is not there was opened")
	}
}

func TestAFileAlone(t *testing.T) {
	dir := t.TempDir()
	write(t, dir)
	ctx := context.Background()
	got := CheckFile(ctx, "model m", filepath.Join(dir, first))
	if len(got.Findings) != 1 || got.Findings[0].ID != idWhole || got.Facts.Parameters != 276 {
		t.Errorf("%s %+v", told(got.Findings), got.Facts)
	}
	if err := os.Truncate(filepath.Join(dir, first), 100); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{first: idTruncated, "none.safetensors": idUnreadable} {
		got := CheckFile(ctx, "model m", filepath.Join(dir, name))
		if len(got.Findings) != 1 || got.Findings[0].ID != id || strings.Contains(got.Findings[0].Message, dir) {
			t.Errorf("%s: %s", name, told(got.Findings))
		}
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if got := CheckFile(stopped, "model m", filepath.Join(dir, second)); len(got.Findings) != 1 || got.Findings[0].ID != idUnreadable {
		t.Errorf("stopped: %s", told(got.Findings))
	}
}
