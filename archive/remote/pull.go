package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"assay/archive"
	"assay/schemas"
)

// PullOptions are what a pull can be told.
type PullOptions struct {
	Options
	// NoSources leaves the run's source runs where they are.
	NoSources bool
	// Tags are what the run is called in the store.
	Tags []string
}

// Pull fetches a run into a store. Every byte is checked before it counts: blobs
// against their digests while they come in, blobs that are there already before
// they are relied on. The run exists in the store once all of it does. Source
// runs come first; one that the registry does not have is listed as missing.
func Pull(ctx context.Context, into *archive.Store, from Reference, o PullOptions) (Transfer, error) {
	fail := func(out Transfer, err error) (Transfer, error) {
		return out, fmt.Errorf("pull %s: %w", from, notFound(err))
	}
	if from.manifest() == "" {
		return Transfer{}, fmt.Errorf("pull %s: name a tag or a digest", from)
	}
	for _, t := range o.Tags {
		if err := archive.CheckTag(t); err != nil {
			return fail(Transfer{}, err)
		}
	}
	c, err := dial(ctx, from, o.Options, transport.PullScope)
	if err != nil {
		return fail(Transfer{}, err)
	}
	p := &pull{c: c, into: into, o: o, seen: map[schemas.Digest]bool{}}
	p.c.progress.phase(PhasePull)
	manifest, wrapper, err := c.find(ctx, from)
	if err != nil {
		return fail(p.out, err)
	}
	run := schemas.DigestOf(manifest)
	p.out.Run, p.out.Stored, p.out.Reference, p.out.Sources = run, run, from.Pinned(run).String(), []schemas.Digest{}
	if from.Digest == "" {
		p.out.Tag = from.Tag
	}
	p.runs = map[schemas.Digest]bool{run: true}
	// Until the run is named, nothing but the lease keeps its blobs.
	into.SweepDownloads()
	release, err := into.Lease(ctx, "pull-"+run.Short())
	if err != nil {
		return fail(p.out, err)
	}
	err = errors.Join(p.run(ctx, manifest, wrapper, o.Tags...), release())
	if err != nil {
		return fail(p.out, err)
	}
	return p.out, nil
}

type pull struct {
	c    *client
	into *archive.Store
	o    PullOptions
	runs map[schemas.Digest]bool // on their way, or there

	mu   sync.Mutex
	out  Transfer
	seen map[schemas.Digest]bool
}

func (p *pull) run(ctx context.Context, manifest []byte, w *archive.Wrapper, tags ...string) error {
	list, err := archive.ManifestBlobs(manifest)
	if err != nil {
		return &archive.CorruptError{Blob: schemas.DigestOf(manifest), Err: err}
	}
	var fresh []archive.BlobRef
	var total int64
	for _, b := range list {
		if !p.seen[b.Digest] {
			p.seen[b.Digest] = true
			fresh = append(fresh, b)
			total += b.Size
		}
	}
	p.out.Blobs += len(fresh)
	p.out.Bytes += total
	p.c.progress.add(0, total)
	if err := p.blobs(ctx, fresh, w); err != nil {
		return err
	}
	if !p.o.NoSources {
		if err := p.sources(ctx, manifest, list[0]); err != nil {
			return err
		}
	}
	_, err = p.into.AddRun(ctx, manifest, tags...)
	return err
}

// sources pulls the runs that a run was made from. The store has its config.
func (p *pull) sources(ctx context.Context, manifest []byte, config archive.BlobRef) error {
	list, err := p.into.SourcesOf(config)
	if err != nil {
		return err
	}
	for _, d := range list {
		if p.runs[d] {
			continue
		}
		if p.runs[d] = true; len(p.runs) > maxSources {
			return fmt.Errorf("more than %d source runs", maxSources)
		}
		m, w, err := p.c.find(ctx, Reference{repo: p.c.repo, Digest: d})
		if errors.Is(err, fs.ErrNotExist) {
			if !p.into.HasRun(ctx, d) {
				p.out.Missing = append(p.out.Missing, d)
			}
			continue
		}
		if err == nil && schemas.DigestOf(m) != d {
			err = fmt.Errorf("the registry has run %s under its name", schemas.DigestOf(m))
		}
		if err == nil {
			err = p.run(ctx, m, w)
		}
		if err != nil {
			return fmt.Errorf("source run %s: %w", d.Short(), err)
		}
		p.out.Sources = append(p.out.Sources, d)
	}
	return nil
}

func (p *pull) blobs(ctx context.Context, list []archive.BlobRef, w *archive.Wrapper) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, b := range list {
		g.Go(func() error { return p.blob(gctx, b, w) })
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

func (p *pull) blob(ctx context.Context, b archive.BlobRef, w *archive.Wrapper) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := p.into.KeepBlob(ctx, b.Digest, b.Size)
	if err == nil {
		p.c.progress.add(b.Size, 0)
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !corrupt(err) {
		return err
	}
	layer, err := w.Layer(b)
	if err != nil {
		return err
	}
	d := &download{c: p.c, blob: layer}
	defer d.close()
	if err := p.put(ctx, b, d); err != nil {
		if d.failed != nil && errors.Is(err, d.failed) {
			err = d.failed // it names the blob itself
		}
		return p.blame(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.BlobsMoved++
	p.out.BytesMoved += min(d.got, layer.Size) // what had to come twice counts once
	return nil
}

// blame says whose a blob is that came and is not what its digest promises.
func (p *pull) blame(err error) error {
	var bad *archive.CorruptError
	var gone *goneError
	switch {
	case !errors.As(err, &bad):
		return err
	case errors.As(err, &gone):
		return fmt.Errorf("registry %s: %w", p.c.repo.RegistryStr(), bad)
	}
	return fmt.Errorf("registry %s: %w: if it is so again, whoever runs the registry must delete the blob; then push it again from a store that has it", p.c.repo.RegistryStr(), bad)
}

// put stores what a download brings, which another tool may have compressed.
func (p *pull) put(ctx context.Context, b archive.BlobRef, d *download) error {
	if d.blob.Digest == b.Digest && b.Size > p.c.tune.whole {
		return p.into.PutBlobFrom(ctx, b.Digest, b.Size, func(offset int64) io.Reader {
			d.close()
			p.c.progress.add(offset-d.at, 0)
			d.at, d.broke = offset, nil
			return d.reader(ctx)
		})
	}
	plain, err := archive.Unpack(d.blob, b, d.reader(ctx))
	if err != nil {
		return err
	}
	defer plain.Close()
	return p.into.PutBlob(ctx, b.Digest, b.Size, plain)
}

// download is a blob as it comes in. When the connection breaks it goes on at
// the byte where it broke; whether the pieces fit together the digest shows.
type download struct {
	c      *client
	blob   archive.BlobRef
	body   io.ReadCloser
	at     int64 // bytes given to the reader
	got    int64 // bytes that came
	broke  error // what ended the last answer too early
	failed error // what its reader was told at the end
	quiet  bool  // whoever reads it counts

	patience patience
}

func (d *download) reader(ctx context.Context) io.Reader { return downloadReader{ctx, d} }

func (d *download) close() {
	if d.body != nil {
		_ = d.body.Close()
		d.body = nil
	}
}

type downloadReader struct {
	ctx context.Context
	*download
}

func (r downloadReader) Read(b []byte) (int, error) {
	d := r.download
	for {
		if d.at >= d.blob.Size && d.blob.Size > 0 {
			return 0, io.EOF
		}
		if err := d.takeUp(r.ctx); err != nil {
			d.failed = err
			return 0, err
		}
		n, err := d.body.Read(b)
		d.at += int64(n)
		d.got += int64(n)
		if n > 0 && !d.quiet {
			d.c.progress.add(int64(n), 0)
		}
		if err == nil || (errors.Is(err, io.EOF) && d.at >= d.blob.Size) {
			return n, err
		}
		// It ended too early: what came counts, the rest is asked for again.
		d.close()
		d.broke = err
		if n > 0 {
			return n, nil
		}
	}
}

// takeUp has an answer at hand. After one that broke off it waits, as long as there
// is a point in it, and asks for the rest.
func (d *download) takeUp(ctx context.Context) error {
	if d.broke != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		cause := clean(d.broke.Error(), nil)
		op := "pull blob " + d.blob.Digest.Short() + ": registry " + d.c.repo.RegistryStr()
		if !d.patience.fault(d.at, time.Now()) {
			return fmt.Errorf("%s: it broke off after %d of %d bytes, %d times without getting on by %s: %s", op, d.at, d.blob.Size, d.patience.faults, schemas.Size(worthBytes), cause)
		}
		if err := d.c.wait(ctx, d.patience.pause(), fmt.Sprintf("%s: it broke off after %d of %d bytes (%s)", op, d.at, d.blob.Size, cause)); err != nil {
			return err
		}
		d.broke = nil
	}
	if d.body != nil {
		return nil
	}
	return d.open(ctx)
}

// open asks for the rest of the blob.
func (d *download) open(ctx context.Context) error {
	h := http.Header{}
	if d.at > 0 {
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", d.at, d.blob.Size-1))
	}
	res, err := d.ask(ctx, h)
	if err != nil {
		return err
	}
	left := d.blob.Size
	if res.StatusCode == http.StatusPartialContent {
		left -= d.at
	}
	if res.ContentLength >= 0 && res.ContentLength != left {
		closeAnswer(res)
		return &archive.CorruptError{Blob: d.blob.Digest, Err: fmt.Errorf("the registry has %d bytes for it, want %d", res.ContentLength, left)}
	}
	if d.at > 0 && res.StatusCode == http.StatusOK {
		// It does not do ranges: what is known already is read over.
		if _, err := io.CopyN(io.Discard, res.Body, d.at); err != nil {
			_ = res.Body.Close()
			d.body = io.NopCloser(brokenReader{})
			return nil
		}
	}
	d.body = res.Body
	return nil
}

// ask asks for the blob. One that the registry does not have is missing from the
// run: another copy of it may have it.
func (d *download) ask(ctx context.Context, header http.Header) (*http.Response, error) {
	res, err := d.c.do(ctx, d.request(header))
	if code := status(err); code == http.StatusNotFound || code == http.StatusGone {
		return nil, &archive.CorruptError{Blob: d.blob.Digest, Err: &goneError{err}}
	}
	if err == nil && isPage(res.Header) {
		err = d.c.noRegistry("pull blob "+d.blob.Digest.Short(), res.Header, nil)
		closeAnswer(res)
		return nil, err
	}
	return res, err
}

// goneError is a blob that a manifest names and the registry does not have.
type goneError struct{ err error }

func (e *goneError) Error() string        { return e.err.Error() }
func (e *goneError) Unwrap() error        { return e.err }
func (e *goneError) Is(target error) bool { return target == fs.ErrNotExist }

// Remedy says what to do.
func (e *goneError) Remedy() string { return "push it again from a store that has it" }

// brokenReader is a connection that broke at once.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
