package archive

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"assay/internal/durable"
	"assay/schemas"
)

// Saved tells what SaveTar wrote.
type Saved struct {
	Runs    []schemas.Digest `json:"runs"`    // source runs first, the run itself last
	Missing []schemas.Digest `json:"missing"` // source runs that are not in the layout
	Blobs   int              `json:"blobs"`
	Bytes   int64            `json:"bytes"` // of the tar
}

// SaveTar writes a tar of an OCI layout to file, which must not exist: the run,
// the runs it was made from, and nothing else. tag names the run in it; "" for no
// name. The same run and tag give the same bytes. Every blob is checked while it
// is copied, and the file appears at the end, whole and durable.
func (l *Layout) SaveTar(ctx context.Context, run schemas.Digest, tag, file string) (Saved, error) {
	fail := func(err error) (Saved, error) {
		return Saved{}, fmt.Errorf("save run %s to %s: %w", run.Short(), file, err)
	}
	if tag != "" {
		if err := CheckTag(tag); err != nil {
			return fail(err)
		}
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return fail(errors.Join(err, fs.ErrExist))
	}
	runs, missing, err := l.Closure(ctx, run)
	if err != nil {
		return fail(err)
	}
	out := Saved{Runs: runs, Missing: append([]schemas.Digest{}, missing...)}
	index, blobs, err := l.minimalIndex(runs, tag)
	if err != nil {
		return fail(err)
	}
	sweepBeside(file)
	f, err := durable.Create(file)
	if err != nil {
		return fail(err)
	}
	defer f.Abort()
	counted := &countingWriter{w: f}
	buffered := bufio.NewWriterSize(counted, 1<<20)
	if err := errors.Join(l.writeTar(ctx, buffered, index, blobs), buffered.Flush()); err != nil {
		return fail(err)
	}
	// Whoever made the file meanwhile keeps it.
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return fail(errors.Join(err, fs.ErrExist))
	}
	if err := f.Commit(); err != nil {
		return fail(err)
	}
	out.Blobs, out.Bytes = len(blobs), counted.n
	return out, nil
}

// minimalIndex makes the index.json of a layout that holds only these runs, and
// lists its blobs with their sizes. Nothing of the store it comes from is in it.
func (l *Layout) minimalIndex(runs []schemas.Digest, tag string) ([]byte, map[schemas.Digest]int64, error) {
	blobs := map[schemas.Digest]int64{}
	x := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	for i, d := range runs {
		raw, err := l.readBlob(d, maxManifestBytes)
		if err != nil {
			return nil, nil, err
		}
		m, err := parseManifest(raw)
		if err != nil {
			return nil, nil, err
		}
		desc, err := descriptor(mediaManifest, d, int64(len(raw)), "")
		if err != nil {
			return nil, nil, err
		}
		blobs[d] = desc.Size
		for _, part := range append([]v1.Descriptor{m.Config}, m.Layers...) {
			blobs[digestOf(part)] = part.Size
		}
		desc.ArtifactType, desc.Annotations = ArtifactType, map[string]string{}
		for k, v := range m.Annotations {
			desc.Annotations[k] = v
		}
		desc.Annotations[annotationSequence] = strconv.Itoa(i + 1)
		if tag != "" && i == len(runs)-1 {
			desc.Annotations[annotationTag] = tag
		}
		x.Manifests = append(x.Manifests, desc)
	}
	b, err := json.Marshal(x)
	return b, blobs, err
}

func (l *Layout) writeTar(ctx context.Context, w io.Writer, index []byte, blobs map[schemas.Digest]int64) error {
	tw := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{"oci-layout", []byte(ociLayoutText)}, {indexName, index}} {
		if err := tw.WriteHeader(plainHeader(f.name, int64(len(f.data)))); err != nil {
			return err
		}
		if _, err := tw.Write(f.data); err != nil {
			return err
		}
	}
	order := make([]schemas.Digest, 0, len(blobs))
	for d := range blobs {
		order = append(order, d)
	}
	sort.Slice(order, func(i, j int) bool { return order[i] < order[j] })
	var total int64
	for _, size := range blobs {
		total += size
	}
	m := newMeter(ctx, PhaseExport, total)
	defer m.end()
	for _, d := range order {
		if err := l.copyBlob(ctx, io.MultiWriter(tw, m), tw, d, blobs[d]); err != nil {
			return err
		}
	}
	return tw.Close()
}

func plainHeader(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
}

// copyBlob writes one member whose bytes are checked on the way.
func (l *Layout) copyBlob(ctx context.Context, w io.Writer, tw *tar.Writer, d schemas.Digest, size int64) error {
	r, have, err := l.src.open(blobName(d))
	if err != nil {
		return unread(d, err)
	}
	defer r.Close()
	if have != size {
		return &CorruptError{Blob: d, Err: fmt.Errorf("it has %d bytes, want %d", have, size)}
	}
	if err := tw.WriteHeader(plainHeader(blobName(d), size)); err != nil {
		return err
	}
	h := newHashReader(ctx, io.LimitReader(r, size))
	n, err := io.CopyBuffer(w, h, make([]byte, 1<<20))
	if err != nil {
		return fmt.Errorf("blob %s: %w", d, err)
	}
	if got := h.digest(); n != size || got != d {
		return &CorruptError{Blob: d, Err: fmt.Errorf("its %d bytes hash to %s", n, got)}
	}
	return nil
}

// countingWriter counts what was written.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// SaveTar writes the run that was resolved; see Layout.SaveTar. An extracted run
// has no blobs to save.
func (r Ref) SaveTar(ctx context.Context, tag, file string) (Saved, error) {
	if r.layout == nil {
		return Saved{}, fmt.Errorf("save %s: %w", filepath.Clean(r.Name), errors.New("it is an extracted run, which has no blobs: name the run in a store, a layout or a tar"))
	}
	return r.layout.SaveTar(ctx, r.Digest, tag, file)
}
