package experiments

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"assay/internal/durable"
	"assay/schemas"
)

//go:embed *.toml aegaeon/*.toml aegaeon/*.yaml real/*.toml workloads/*.csv
var shipped embed.FS

// Shipped lists the names of the shipped experiments, sorted: "aegaeon/replay",
// "quickstart".
func Shipped() []string {
	var names []string
	for _, f := range shippedFiles() {
		if name, ok := strings.CutSuffix(f, ".toml"); ok {
			names = append(names, name)
		}
	}
	return names
}

// ShippedFile returns the text of a shipped experiment, for people who begin
// their own with it. The error wraps fs.ErrNotExist.
func ShippedFile(name string) ([]byte, error) {
	file, ok := shippedFile(name)
	if !ok {
		return nil, notFound(name)
	}
	return shipped.ReadFile(file)
}

// shippedFiles lists every embedded file, sorted.
func shippedFiles() []string {
	var files []string
	// An embedded file system does not fail to be walked.
	_ = fs.WalkDir(shipped, ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, p)
		}
		return err
	})
	return files
}

// shippedFile takes a name with or without .toml, and with or without the
// folder these files have in the source tree.
func shippedFile(name string) (string, bool) {
	name = strings.TrimPrefix(path.Clean(filepath.ToSlash(name)), "experiments/")
	name = strings.TrimSuffix(name, ".toml") + ".toml"
	info, err := fs.Stat(shipped, name)
	return name, err == nil && !info.IsDir()
}

// loadShipped puts the shipped files into a folder, since stages read workloads
// from files, and loads from there. Only content enters keys, so where the
// folder lies changes nothing.
func loadShipped(file string, opts Options) (*Loaded, error) {
	data, err := shipped.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("shipped experiment %s: %w", file, err)
	}
	dir, err := unpackShipped()
	if err != nil {
		return nil, fmt.Errorf("shipped experiment %s: %w", file, err)
	}
	if opts.Dir == "" {
		opts.Dir = filepath.Join(dir, filepath.FromSlash(path.Dir(file)))
	}
	return Parse(file, data, opts)
}

// unpackShipped returns a folder that holds exactly the shipped files: one of
// the user's cache, named by their content, or a temporary one where there is no
// cache. Files that are there are compared, not trusted.
func unpackShipped() (string, error) {
	var listing bytes.Buffer
	files := shippedFiles()
	for _, f := range files {
		b, err := shipped.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&listing, "%s %s\n", schemas.DigestOf(b), f)
	}
	name := "shipped-" + schemas.DigestOf(listing.Bytes()).Short()
	var failed error
	for _, base := range cacheFolders() {
		dir := filepath.Join(base, "assay", name)
		if failed = writeShipped(dir, files); failed == nil {
			return dir, nil
		}
	}
	return "", failed
}

func cacheFolders() []string {
	var out []string
	if dir, err := os.UserCacheDir(); err == nil {
		out = append(out, dir)
	}
	return append(out, filepath.Join(os.TempDir(), fmt.Sprintf("assay-%d", os.Getuid())))
}

func writeShipped(dir string, files []string) error {
	for _, f := range files {
		want, err := shipped.ReadFile(f)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(f))
		if have, err := readFile(target); err == nil && bytes.Equal(have, want) {
			continue
		}
		if err := durable.MkdirAll(filepath.Dir(target)); err != nil {
			return err
		}
		if err := durable.WriteFile(target, want, 0o644); err != nil {
			return err
		}
	}
	return nil
}
