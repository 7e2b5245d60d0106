package pipeline

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"assay/schemas"
)

// FingerprintLevel says how deep a checkpoint's fingerprint goes.
const FingerprintLevel = "header"

// headBytes is how much of a large checkpoint file the header level reads:
// enough for the names, shapes and offsets of every tensor in the usual formats.
const headBytes = 1 << 20

// Fingerprint identifies a checkpoint folder or file at header level: for every
// file its path, its size and the digest of its first MiB. Full weights are not
// read; the level is part of the fingerprint.
func Fingerprint(ctx context.Context, path string) (schemas.Digest, error) {
	type file struct {
		Path string         `json:"path"`
		Size int64          `json:"size"`
		Head schemas.Digest `json:"head"`
	}
	var files []file
	add := func(p, rel string) error {
		head, size, err := readHead(p)
		if err == nil {
			files = append(files, file{rel, size, schemas.DigestOf(head)})
		}
		return err
	}
	path, err := filepath.EvalSymlinks(path) // a walk does not follow its root
	if err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	if !fi.IsDir() {
		err = add(path, filepath.Base(path))
	} else {
		err = walkFollowing(ctx, path, func(p, rel string) error { return add(p, rel) })
	}
	if err != nil {
		return "", fmt.Errorf("fingerprint %s: %w", filepath.Base(path), err)
	}
	b, err := schemas.Canonical(map[string]any{"level": FingerprintLevel, "files": files})
	if err != nil {
		return "", err
	}
	return schemas.DigestOf(b), nil
}

func readHead(p string) ([]byte, int64, error) {
	fi, err := os.Stat(p)
	if err != nil {
		return nil, 0, err
	}
	if !fi.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: is not a regular file", filepath.Base(p))
	}
	f, err := os.Open(p)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	buf := make([]byte, min(fi.Size(), headBytes))
	n, err := f.ReadAt(buf, 0)
	if n != len(buf) {
		return nil, 0, fmt.Errorf("%s: read %d of %d bytes: %w", filepath.Base(p), n, len(buf), err)
	}
	return buf, fi.Size(), nil
}

// walkFollowing visits the regular files below root, links to files followed,
// hidden folders (a version control system's) left out.
func walkFollowing(ctx context.Context, root string, visit func(path, rel string) error) error {
	return filepath.WalkDir(root, func(p string, de fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if de.IsDir() {
			if p != root && strings.HasPrefix(de.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		return visit(p, filepath.ToSlash(rel))
	})
}

// identifyModels tells what is known of the experiment's models as a trial sees
// them. A checkpoint is read once.
func (r *runner) identifyModels(ctx context.Context, params map[string]any) []ModelIdentity {
	ids := make([]string, 0, len(r.Experiment.Model))
	for id := range r.Experiment.Model {
		ids = append(ids, id)
	}
	sortStrings(ids)
	list := make([]ModelIdentity, 0, len(ids))
	for _, id := range ids {
		list = append(list, r.identifyModel(ctx, id, params))
	}
	return list
}

func (r *runner) identifyModel(ctx context.Context, id string, params map[string]any) ModelIdentity {
	m := r.Experiment.Model[id]
	mi := ModelIdentity{ID: id, Name: m.Name, Level: FingerprintLevel}
	v := &resolver{runner: r, params: params}
	if name, err := v.text(ctx, m.Name); err == nil {
		mi.Name = name
	}
	if m.Checkpoint == "" {
		mi.Unknown = "the experiment names no checkpoint"
		return mi
	}
	path, err := v.text(ctx, m.Checkpoint)
	if err != nil {
		mi.Unknown = err.Error()
		return mi
	}
	path = r.abs(path)
	r.mu.Lock()
	known, ok := r.prints[path]
	r.mu.Unlock()
	if !ok {
		if known.Fingerprint, err = Fingerprint(ctx, path); err != nil {
			known.Unknown = err.Error()
		}
		r.mu.Lock()
		r.prints[path] = known
		r.mu.Unlock()
	}
	mi.Fingerprint, mi.Unknown = known.Fingerprint, known.Unknown
	return mi
}
