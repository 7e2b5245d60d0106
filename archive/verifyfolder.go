package archive

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"assay/schemas"
)

// folder verifies an extracted run: its documents against its manifest, its
// files against the file list.
func (v *verifier) folder(ctx context.Context, dir string) error {
	v.place = dir
	raw, err := readLimited(filepath.Join(dir, nameManifest), maxManifestBytes)
	if err == nil && schemas.DigestOf(raw) != v.digest {
		err = &CorruptError{Blob: v.digest, Path: nameManifest, Err: fmt.Errorf("the file hashes to %s", schemas.DigestOf(raw))}
	}
	if !v.head(raw, err) {
		return ctx.Err()
	}
	defer boundMemory(v.large())()
	v.doc = func(d schemas.Digest, title string) ([]byte, error) {
		b, err := readLimited(filepath.Join(dir, filepath.FromSlash(title)), maxDocBytes)
		if err != nil {
			return nil, err
		}
		if got := schemas.DigestOf(b); got != d {
			return nil, &CorruptError{Blob: d, Path: title, Err: fmt.Errorf("the file hashes to %s", got)}
		}
		return b, nil
	}
	v.openDoc = func(d schemas.Digest, title string) (io.ReadCloser, error) {
		r, _, err := openFolderDoc(dir, title, d)
		return r, err
	}
	v.open = func(e schemas.TreeEntry) (io.ReadCloser, error) { return openExtracted(ctx, dir, e) }
	v.documents()
	if v.files == nil {
		return ctx.Err()
	}
	return v.extracted(ctx, dir)
}

// extracted compares a folder's files with the file list.
func (v *verifier) extracted(ctx context.Context, dir string) error {
	src, err := openTree(ctx, dir)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		v.fault(err, schemas.Finding{ID: "archive.extracted", Subject: dir})
		return nil
	}
	defer src.close()
	m := newMeter(ctx, PhaseVerify, sumBytes(v.files.Entries))
	group, gctx := newGroup(ctx)
	short := shortcuts(v.report, v.files.Entries)
	extra := func(e schemas.TreeEntry) {
		p := e.Path
		if isRunDocument(p) || e.Kind == schemas.EntrySymlink && short[p] == e.Target {
			return
		}
		v.add(schemas.Finding{ID: "archive.extra", Severity: schemas.SeverityWarning, Subject: p, Path: p,
			Message: "it is in the folder and is no part of the run"})
	}
	i := 0 // both lists are sorted by path
	for _, e := range v.files.Entries {
		for ; i < len(src.entries) && src.entries[i].Path < e.Path; i++ {
			extra(src.entries[i])
		}
		if i == len(src.entries) || src.entries[i].Path != e.Path {
			v.fileFault(e, "archive.blob-missing", "it is in the file list and not in the folder")
			continue
		}
		here := i
		group.Go(func() error { return v.extractedEntry(gctx, src, here, e, m) })
		i++
	}
	for ; i < len(src.entries); i++ {
		extra(src.entries[i])
	}
	err = group.Wait()
	m.end()
	return err
}

func isRunDocument(p string) bool {
	top, _, _ := strings.Cut(p, "/")
	return reservedTop(top)
}

func (v *verifier) fileFault(e schemas.TreeEntry, id, format string, args ...any) {
	stage, trial := v.owner(e.Path)
	f := schemas.Finding{ID: id, Subject: e.Path, Message: fmt.Sprintf(format, args...), Stage: stage, Trial: trial, Path: e.Path,
		Remedy: "extract the run anew"}
	if len(e.Parts) > 0 {
		f.Blob = e.Parts[0].Blob
	}
	v.add(f)
}

func (v *verifier) extractedEntry(ctx context.Context, src *treeSource, i int, want schemas.TreeEntry, m *meter) error {
	got := src.entries[i]
	got.Digest, got.Parts = want.Digest, nil
	want.Parts = nil
	if !sameEntry(got, want) {
		v.fileFault(want, "archive.file", "kind, size, executable bit or link target differ: %s of %d bytes, executable %t, want %s of %d bytes, executable %t",
			got.Kind, got.Size, got.Executable, want.Kind, want.Size, want.Executable)
		return nil
	}
	if want.Kind != schemas.EntryFile {
		return nil
	}
	f, err := src.openFile(i)
	if err != nil {
		v.fault(err, schemas.Finding{ID: "archive.file", Subject: want.Path, Path: want.Path})
		return nil
	}
	defer f.Close()
	h := newHashReader(ctx, f)
	_, err = h.drain()
	m.add(h.n)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		v.fault(err, schemas.Finding{ID: "archive.file", Subject: want.Path, Path: want.Path})
		return nil
	}
	v.count(h.n)
	if h.digest() != want.Digest {
		v.fileFault(want, "archive.file", "its content hashes to %s, want %s", h.digest(), want.Digest)
	}
	return nil
}
