package archive

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/schemas"
)

// content reads every blob of the run's files once and checks it and all files
// in it.
func (v *verifier) content(ctx context.Context, l *Layout) error {
	var spans map[schemas.Digest][]span
	var several []int
	var entries []schemas.TreeEntry
	listed := map[schemas.Digest]schemas.Blob{}
	if v.files != nil {
		entries = v.files.Entries
		listed = blobMap(v.files.Blobs)
		var err error
		if spans, several, err = spansByBlob(entries); err != nil {
			v.add(schemas.Finding{ID: "archive.files", Subject: nameFiles, Message: err.Error(), Path: nameFiles})
			spans = nil
		}
	}
	v.checkListed(listed)
	m := newMeter(ctx, PhaseVerify, sumBytes(entries))
	in := runFiles{entries, listed, severalOf(entries, several), m}
	whole, err := v.largeFiles(ctx, l, in, several)
	if err != nil {
		return err
	}
	layers := slices.Clone(v.manifest.Layers)
	slices.SortStableFunc(layers, func(a, b v1.Descriptor) int { return cmp.Compare(b.Size, a.Size) })
	group, gctx := newGroup(ctx)
	for _, d := range layers {
		switch string(d.MediaType) {
		case MediaPack, MediaPart, MediaPartZstd, MediaDocuments:
			if !whole[digestOf(d)] {
				group.Go(func() error { return v.contentBlob(gctx, l, d, in, spans[digestOf(d)]) })
			}
		}
	}
	err = group.Wait()
	m.end()
	return err
}

// runFiles is what the file list says.
type runFiles struct {
	entries []schemas.TreeEntry
	listed  map[schemas.Digest]schemas.Blob
	several map[schemas.Digest][]string // paths of files in several blobs, by blob
	m       *meter
}

// severalOf lists the paths of files in several blobs by blob.
func severalOf(entries []schemas.TreeEntry, several []int) map[schemas.Digest][]string {
	out := map[schemas.Digest][]string{}
	for _, i := range several {
		for _, p := range entries[i].Parts {
			if list := out[p.Blob]; len(list) == 0 || list[len(list)-1] != entries[i].Path {
				out[p.Blob] = append(list, entries[i].Path)
			}
		}
	}
	return out
}

// largeFiles checks the files that lie in several blobs, and returns the blobs
// that were wholly checked with them.
func (v *verifier) largeFiles(ctx context.Context, l *Layout, in runFiles, several []int) (map[schemas.Digest]bool, error) {
	var mu sync.Mutex
	whole := map[schemas.Digest]bool{}
	checked := func(b schemas.Blob) {
		mu.Lock()
		defer mu.Unlock()
		if !whole[b.Digest] {
			whole[b.Digest] = true
			v.count(b.Size)
		}
	}
	group, gctx := newGroup(ctx)
	for _, i := range several {
		group.Go(func() error {
			err := l.readSeveral(gctx, in.entries[i], in.listed, nil, in.m, checked)
			return v.contentFault(gctx, l, err, in.listed[in.entries[i].Parts[0].Blob], []string{in.entries[i].Path})
		})
	}
	return whole, group.Wait()
}

// checkListed compares the blobs of the file list with the manifest's layers.
func (v *verifier) checkListed(listed map[schemas.Digest]schemas.Blob) {
	if v.files == nil {
		return
	}
	layers := map[schemas.Digest]v1.Descriptor{}
	for _, d := range v.manifest.Layers {
		layers[digestOf(d)] = d
		isContent := d.MediaType == MediaPack || d.MediaType == MediaPart || d.MediaType == MediaPartZstd
		if b, ok := listed[digestOf(d)]; isContent && (!ok || b.Size != d.Size || b.MediaType != string(d.MediaType)) {
			v.add(schemas.Finding{ID: "archive.files", Subject: "blob " + string(digestOf(d)), Blob: digestOf(d), Path: nameFiles,
				Message: "the file list does not list this layer of the manifest, or with another size or type"})
		}
	}
	for _, b := range v.files.Blobs {
		if _, ok := layers[b.Digest]; !ok {
			v.add(schemas.Finding{ID: "archive.manifest", Subject: "blob " + string(b.Digest), Blob: b.Digest, Path: nameManifest,
				Message: "the file list names this blob, the manifest does not list it"})
		}
	}
}

func (v *verifier) contentBlob(ctx context.Context, l *Layout, d v1.Descriptor, in runFiles, spans []span) error {
	b, ok := in.listed[digestOf(d)]
	if !ok {
		// Nothing says what is in it, so only its bytes can be checked.
		b = schemas.Blob{MediaType: MediaPart, Digest: digestOf(d), Size: d.Size}
	}
	paths := func() (out []string) {
		for _, sp := range spans {
			for _, i := range sp.entries {
				out = append(out, in.entries[i].Path)
			}
		}
		return append(out, in.several[b.Digest]...)
	}
	var members error
	err := l.readBlobOf(ctx, b, in.entries, spans, nil, in.m, func(content []byte) error {
		members = checkMembers(content, in.entries, spans)
		return nil
	})
	if err != nil {
		return v.contentFault(ctx, l, err, b, paths())
	}
	v.count(b.Size)
	if members != nil {
		f := schemas.Finding{ID: "archive.pack", Subject: "blob " + string(b.Digest), Message: members.Error(), Blob: b.Digest, Paths: paths()}
		if len(f.Paths) > 0 {
			f.Stage, f.Trial = v.owner(f.Paths[0])
		}
		v.add(f)
	}
	return nil
}

// contentFault turns an error of reading a blob into a finding that names the
// first path that no longer matches, or all paths that may be touched.
func (v *verifier) contentFault(ctx context.Context, l *Layout, err error, b schemas.Blob, paths []string) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	f := schemas.Finding{ID: "archive.blob-corrupt", Subject: "blob " + string(b.Digest), Blob: b.Digest}
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		f.Blob, f.Path = corrupt.Blob, corrupt.Path
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.ID = "archive.blob-missing"
	case f.Blob == b.Digest && l.shorterThan(b):
		f.ID = "archive.blob-truncated"
	}
	switch {
	case f.Path != "":
	case len(paths) == 1:
		f.Path = paths[0]
	default:
		f.Paths = paths
	}
	if f.Path != "" {
		f.Subject = f.Path
		f.Stage, f.Trial = v.owner(f.Path)
	} else if len(paths) > 0 {
		f.Stage, f.Trial = v.owner(paths[0])
	}
	v.fault(err, f)
	return nil
}

// checkMembers compares a pack as a tar with the file list, so that somebody
// who unpacks it with tar sees the same files: a member for each span, nothing
// else, under the path's own name or its end.
func checkMembers(content []byte, entries []schemas.TreeEntry, spans []span) error {
	at := map[[2]int64]span{}
	for _, sp := range spans {
		at[[2]int64{sp.offset, sp.length}] = sp
	}
	r := bytes.NewReader(content)
	return errors.Join(walkTar(r, func(h *tar.Header, _ io.Reader) error {
		key := [2]int64{int64(len(content) - r.Len()), h.Size}
		sp, ok := at[key]
		if !ok {
			return fmt.Errorf("member %s of the pack is in no file list entry", h.Name)
		}
		delete(at, key)
		for _, i := range sp.entries {
			if p := entries[i].Path; p == h.Name || strings.HasSuffix(p, "/"+h.Name) {
				return nil
			}
		}
		return fmt.Errorf("member %s of the pack is %s in the file list", h.Name, entries[sp.entries[0]].Path)
	}), missingMembers(at, entries))
}

func missingMembers(at map[[2]int64]span, entries []schemas.TreeEntry) error {
	for _, sp := range at {
		return fmt.Errorf("%s is no member of the pack that the file list names", entries[sp.entries[0]].Path)
	}
	return nil
}

func (l *Layout) shorterThan(b schemas.Blob) bool {
	r, size, err := l.src.open(blobName(b.Digest))
	if err != nil {
		return false
	}
	_ = r.Close()
	return size < b.Size
}
