package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"sync"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"assay/archive"
	"assay/schemas"
)

// View is a run read where it lies in a registry: what is asked for is fetched,
// and nothing else. Short blobs are kept in a folder, so that those that are read
// again are fetched once; long ones stream through.
type View struct {
	// Layout gives the run, and its source runs where the repository has them.
	Layout *archive.Layout
	Run    schemas.Digest

	ctx   context.Context
	c     *client
	ref   Reference
	spool spool

	mu      sync.Mutex
	found   map[schemas.Digest]viewed  // manifests
	blobs   map[schemas.Digest]located // blobs that manifests name
	sources map[schemas.Digest]bool    // runs that configs name
	failed  error                      // what kept something from being read
}

// viewed is a run's manifest, or why there is none.
type viewed struct {
	manifest []byte
	err      error
}

type located struct{ blob, layer archive.BlobRef }

// Open finds the run that ref names; the tag is resolved once. A manifest that is
// not what the registry says it is is for Layout.Verify to tell. Blobs are kept in
// dir, at most 1 GiB, and fetched under ctx for as long as the view is used.
func Open(ctx context.Context, ref Reference, dir string, o Options) (*View, error) {
	fail := func(err error) (*View, error) { return nil, fmt.Errorf("read %s: %w", ref, notFound(err)) }
	if ref.manifest() == "" {
		return fail(errors.New("name a tag or a digest"))
	}
	c, err := dial(ctx, ref, o, transport.PullScope)
	if err != nil {
		return fail(err)
	}
	v := &View{ctx: ctx, c: c, ref: ref,
		found: map[schemas.Digest]viewed{}, blobs: map[schemas.Digest]located{}, sources: map[schemas.Digest]bool{}}
	v.spool = v.newSpool(dir)
	var bad *archive.CorruptError
	doc, err := c.locate(ctx, ref)
	if errors.As(err, &bad) {
		v.Run = bad.Blob
	} else if err != nil {
		return fail(err)
	} else {
		var raw []byte
		var w *archive.Wrapper
		raw, w, err = c.open(ctx, ref, doc)
		switch {
		case errors.As(err, &bad) && ref.Digest != "":
			v.Run = ref.Digest
		case err != nil:
			return fail(err)
		default:
			v.Run = schemas.DigestOf(raw)
			v.learn(raw, w)
		}
	}
	if err != nil {
		v.found[v.Run] = viewed{err: err}
	}
	v.Layout = archive.LayoutOf(ref.String(), v, v.Run)
	return v, nil
}

// Err says what kept a blob from being asked for, nil when each was answered.
func (v *View) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.failed
}

// fail marks that the registry cannot be read. From then on nothing is asked: a
// registry that is down must not be waited for once a blob.
func (v *View) fail(err error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failed == nil {
		if v.failed = err; !errors.Is(err, archive.ErrUnreachable) {
			v.failed = fmt.Errorf("%w: %w", archive.ErrUnreachable, err)
		}
	}
	return v.failed
}

// learn takes what a run's manifest names.
func (v *View) learn(raw []byte, w *archive.Wrapper) {
	run := schemas.DigestOf(raw)
	list, err := archive.ManifestBlobs(raw)
	v.mu.Lock()
	v.found[run] = viewed{manifest: raw}
	for _, b := range list {
		if layer, lerr := w.Layer(b); lerr == nil {
			v.blobs[b.Digest] = located{b, layer}
		}
	}
	v.mu.Unlock()
	if err != nil {
		return // verify says what is wrong with it
	}
	sources, err := v.layout().SourcesOf(list[0])
	if err != nil {
		return // the config is damaged: as above
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range sources {
		if len(v.sources) < maxSources {
			v.sources[d] = true
		}
	}
}

func (v *View) layout() *archive.Layout { return archive.LayoutOf(v.ref.String(), v, v.Run) }

// OpenBlob opens a blob, or a run's manifest, as it lies in the registry.
func (v *View) OpenBlob(d schemas.Digest) (io.ReadCloser, int64, error) {
	v.mu.Lock()
	known, isRun := v.found[d]
	at, isBlob := v.blobs[d]
	source, failed := v.sources[d], v.failed
	v.mu.Unlock()
	switch {
	case isRun:
		return io.NopCloser(bytes.NewReader(known.manifest)), int64(len(known.manifest)), known.err
	case failed != nil:
		return nil, 0, failed
	case isBlob && at.blob.Size <= spoolOne:
		return v.spool.open(at.blob, func() (io.ReadCloser, int64, error) { return v.fetch(at) })
	case isBlob:
		return v.fetch(at)
	case source:
		return v.source(d)
	}
	return nil, 0, fmt.Errorf("blob %s: %w", d, fs.ErrNotExist)
}

// source finds the manifest of a run that another one was made from.
func (v *View) source(d schemas.Digest) (io.ReadCloser, int64, error) {
	raw, w, err := v.c.find(v.ctx, Reference{repo: v.ref.repo, Digest: d})
	if err == nil && schemas.DigestOf(raw) != d {
		err = &archive.CorruptError{Blob: d, Err: fmt.Errorf("registry %s has run %s under its name", v.ref.Host(), schemas.DigestOf(raw))}
	}
	if err != nil {
		return nil, 0, v.judge(err)
	}
	v.learn(raw, w)
	return io.NopCloser(bytes.NewReader(raw)), int64(len(raw)), nil
}

// judge tells what an error says of a blob from what says nothing of it.
func (v *View) judge(err error) error {
	if errors.Is(err, fs.ErrNotExist) || corrupt(err) || v.ctx.Err() != nil {
		return err
	}
	return v.fail(err)
}

// fetch opens a blob in the registry.
func (v *View) fetch(at located) (io.ReadCloser, int64, error) {
	d := &download{c: v.c, blob: at.layer}
	size, err := d.begin(v.ctx)
	if err != nil {
		return nil, 0, v.judge(err)
	}
	r := &viewReader{v: v, d: d}
	if at.layer.Digest == at.blob.Digest {
		return r, size, nil
	}
	plain, err := archive.Unpack(at.layer, at.blob, r)
	if err != nil {
		return nil, 0, errors.Join(err, r.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{plain, closers{plain, r}}, at.blob.Size, nil
}

// begin asks for the blob. How long it is the registry says, not the manifest:
// what is wrong with it the digest shows.
func (d *download) begin(ctx context.Context) (int64, error) {
	res, err := d.ask(ctx, nil)
	if err != nil {
		return 0, err
	}
	if res.StatusCode != http.StatusOK {
		closeAnswer(res)
		return 0, fmt.Errorf("pull blob %s: registry %s sends a part of it that was not asked for", d.blob.Digest.Short(), d.c.repo.RegistryStr())
	}
	d.body = res.Body
	if res.ContentLength >= 0 {
		d.blob.Size = res.ContentLength
	}
	return d.blob.Size, nil
}

func (d *download) request(header http.Header) request {
	h := http.Header{"Accept": {"application/octet-stream", "*/*"}}
	for k, v := range header {
		h[k] = v
	}
	return request{op: "pull blob " + d.blob.Digest.Short(), method: http.MethodGet, url: d.c.url("/blobs/%s", d.blob.Digest), header: h,
		ok: []int{http.StatusOK, http.StatusPartialContent}}
}

type viewReader struct {
	v *View
	d *download
}

func (r *viewReader) Read(b []byte) (int, error) {
	n, err := r.d.reader(r.v.ctx).Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.v.judge(err)
	}
	return n, err
}

// Seek goes to an offset from the beginning, without fetching what is before it.
func (r *viewReader) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart || offset < 0 {
		return 0, errors.New("a blob of a registry is read from an offset on")
	}
	r.d.close()
	r.d.at, r.d.broke = offset, nil
	return offset, nil
}

func (r *viewReader) Close() error {
	r.d.close()
	return nil
}

type closers [2]io.Closer

func (c closers) Close() error { return errors.Join(c[0].Close(), c[1].Close()) }

// What is kept of a view: no longer blob, and no more in all.
const (
	spoolOne = 64 << 20
	spoolAll = 1 << 30
)

// spool keeps blobs in files of a folder, which whoever made it removes.
type spool struct {
	create func() (*os.File, error)
	full   func(error) error // makes the error of a folder that takes nothing
	mu     sync.Mutex
	at     map[schemas.Digest]*spooled
	bytes  int64
}

func (v *View) newSpool(dir string) spool {
	return spool{at: map[schemas.Digest]*spooled{}, create: func() (*os.File, error) { return os.CreateTemp(dir, "blob-") },
		full: func(err error) error { return v.fail(&localError{dir, err}) }}
}

type spooled struct {
	mu   sync.Mutex
	path string // "" until it is there
}

// open gives the blob from the folder, and brings it there first. When the folder
// is full the blob streams through.
func (s *spool) open(b archive.BlobRef, fetch func() (io.ReadCloser, int64, error)) (io.ReadCloser, int64, error) {
	s.mu.Lock()
	e := s.at[b.Digest]
	if e == nil {
		if s.bytes+b.Size > spoolAll {
			s.mu.Unlock()
			return fetch()
		}
		e = &spooled{}
		s.at[b.Digest] = e
		s.bytes += b.Size
	}
	s.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.path == "" {
		if err := s.fill(e, b, fetch); err != nil {
			return nil, 0, err
		}
	}
	f, err := os.Open(e.path)
	if err != nil {
		return nil, 0, s.full(err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(s.full(err), f.Close())
	}
	return f, info.Size(), nil
}

// fill brings a blob into the folder: one byte more than it should have shows that
// it is too long.
func (s *spool) fill(e *spooled, b archive.BlobRef, fetch func() (io.ReadCloser, int64, error)) error {
	r, _, err := fetch()
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := s.create()
	if err != nil {
		return s.full(err)
	}
	w := &localWriter{w: f}
	if _, err := io.Copy(w, io.LimitReader(r, b.Size+1)); err != nil {
		if w.err != nil {
			err = s.full(w.err)
		}
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err := f.Close(); err != nil {
		return s.full(err)
	}
	e.path = f.Name()
	return nil
}

// localWriter remembers that it was the writing that failed.
type localWriter struct {
	w   io.Writer
	err error
}

func (l *localWriter) Write(b []byte) (int, error) {
	n, err := l.w.Write(b)
	l.err = err
	return n, err
}

// localError is trouble with the folder in which blobs are kept: it says nothing of
// the blob, so it is an archive.ErrUnreachable, and nothing else.
type localError struct {
	dir string
	err error
}

func (e *localError) Error() string {
	return fmt.Sprintf("keep what was fetched in %s: %v: free some room there, or set TMPDIR to another folder", e.dir, e.err)
}
func (e *localError) Is(target error) bool { return target == archive.ErrUnreachable }
