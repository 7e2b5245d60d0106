package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync"

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
		return err
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
		if corrupt(err) {
			return fmt.Errorf("registry %s: %w", p.c.repo.RegistryStr(), err)
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.BlobsMoved++
	p.out.BytesMoved += d.got
	return nil
}

// put stores what a download brings, which another tool may have compressed.
func (p *pull) put(ctx context.Context, b archive.BlobRef, d *download) error {
	if d.blob.Digest == b.Digest && b.Size > p.c.tune.whole {
		return p.into.PutBlobFrom(ctx, b.Digest, b.Size, func(offset int64) io.Reader {
			d.close()
			p.c.progress.add(offset-d.at, 0)
			d.at = offset
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
	faults int
	quiet  bool // whoever reads it counts
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
		if d.body == nil {
			if err := d.open(r.ctx); err != nil {
				return 0, err
			}
		}
		n, err := d.body.Read(b)
		d.at += int64(n)
		d.got += int64(n)
		if n > 0 {
			if !d.quiet {
				d.c.progress.add(int64(n), 0)
			}
			d.faults = 0
		}
		if err == nil || (errors.Is(err, io.EOF) && d.at >= d.blob.Size) {
			return n, err
		}
		// It ended too early: what came counts, the rest is asked for again.
		d.close()
		if n > 0 {
			return n, nil
		}
		if r.ctx.Err() != nil {
			return 0, context.Cause(r.ctx)
		}
		if d.faults++; d.faults >= attempts {
			return 0, fmt.Errorf("pull blob %s: registry %s: it broke off after %d of %d bytes, %d times in a row: %s", d.blob.Digest.Short(), d.c.repo.RegistryStr(), d.at, d.blob.Size, attempts, clean(err.Error(), nil))
		}
		if err := d.c.tune.sleep(r.ctx, pause(d.faults-1)); err != nil {
			return 0, err
		}
	}
}

// open asks for the rest of the blob.
func (d *download) open(ctx context.Context) error {
	h := http.Header{}
	if d.at > 0 {
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", d.at, d.blob.Size-1))
	}
	res, err := d.c.do(ctx, d.request(h))
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

// brokenReader is a connection that broke at once.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
