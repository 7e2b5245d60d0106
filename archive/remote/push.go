package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"assay/archive"
	"assay/schemas"
)

// PushOptions are what a push can be told.
type PushOptions struct {
	Options
	// NoSources leaves the run's source runs behind.
	NoSources bool
	// Compat wraps runs as images, for registries that take nothing else.
	Compat bool
	// Check reads every blob back, before the run gets its manifest and its name.
	Check bool
	// MountFrom names repositories of the same registry that may have blobs of
	// the run already.
	MountFrom []string
	// Sessions is a folder in which unfinished uploads are remembered; "" for none.
	Sessions string
}

// Transfer is what a push or a pull moved.
type Transfer struct {
	Reference    string           `json:"reference"` // pinned by digest
	Tag          string           `json:"tag,omitempty"`
	Replaced     schemas.Digest   `json:"replaced,omitempty"` // what the tag named before
	Run          schemas.Digest   `json:"run"`
	Stored       schemas.Digest   `json:"stored_digest"` // in the registry: the run's, or its wrapper's
	Sources      []schemas.Digest `json:"source_runs"`   // that went with it
	Missing      []schemas.Digest `json:"missing_source_runs,omitempty"`
	Blobs        int              `json:"blobs"`
	BlobsMoved   int              `json:"blobs_moved"`
	BlobsMounted int              `json:"blobs_mounted,omitempty"`
	Bytes        int64            `json:"bytes"` // of all blobs
	BytesMoved   int64            `json:"bytes_moved"`
	BlobsChecked int              `json:"blobs_checked,omitempty"` // read back
}

// maxSources bounds the chain of source runs that goes with a run.
const maxSources = 64

// Push sends a run to a registry: blobs first, then the manifest under its
// digest, which is read back and compared, then the tag. Source runs go before
// the runs that use them.
func Push(ctx context.Context, from *archive.Layout, run schemas.Digest, to Reference, o PushOptions) (Transfer, error) {
	if to.Digest != "" && to.Digest != run {
		return Transfer{}, fmt.Errorf("push %s: %s names another run: leave the digest out", run.Short(), to)
	}
	if err := to.CheckPush(run); err != nil {
		return Transfer{}, fmt.Errorf("push %s: %w", run.Short(), err)
	}
	runs := []schemas.Digest{run}
	if !o.NoSources {
		chain, err := sourceChain(ctx, from, run)
		if err != nil {
			return Transfer{}, fmt.Errorf("push %s: %w", run.Short(), err)
		}
		runs = chain
	}
	var also []name.Repository
	for _, m := range o.MountFrom {
		r, err := to.Beside(m)
		if err != nil {
			return Transfer{}, fmt.Errorf("push %s: %w", run.Short(), err)
		}
		also = append(also, r)
	}
	c, err := dial(ctx, to, o.Options, transport.PushScope, also...)
	if err != nil {
		return Transfer{}, fmt.Errorf("push %s: %w", run.Short(), err)
	}
	c.compat = o.Compat
	p := &push{c: c, from: from, o: o, seen: map[schemas.Digest]bool{}}
	if o.Sessions != "" {
		p.sessions = &sessions{o.Sessions}
	}
	out, err := p.runs(ctx, runs, to)
	if err != nil {
		return out, fmt.Errorf("push %s to %s: %w", run.Short(), to, err)
	}
	return out, nil
}

// sourceChain lists a run and the runs it was made from, those first.
func sourceChain(ctx context.Context, from *archive.Layout, run schemas.Digest) ([]schemas.Digest, error) {
	var list []schemas.Digest
	seen := map[schemas.Digest]bool{}
	var visit func(d, user schemas.Digest) error
	visit = func(d, user schemas.Digest) error {
		if seen[d] {
			return nil
		}
		if seen[d] = true; len(seen) > maxSources {
			return fmt.Errorf("more than %d source runs", maxSources)
		}
		r, err := from.Run(ctx, d)
		if errors.Is(err, fs.ErrNotExist) && user != "" {
			return fmt.Errorf("source run %s of %s is not in %s: bring it there, or push without source runs (--no-sources)", d, user.Short(), from.Name())
		}
		if err != nil {
			return err
		}
		for _, s := range r.Config.Sources {
			if err := visit(s.Digest, d); err != nil {
				return err
			}
		}
		list = append(list, d)
		return nil
	}
	return list, visit(run, "")
}

type push struct {
	c        *client
	from     *archive.Layout
	o        PushOptions
	sessions *sessions

	mu   sync.Mutex
	out  Transfer
	seen map[schemas.Digest]bool // blobs of this push
}

// runs pushes them in order; the last is the one that is meant.
func (p *push) runs(ctx context.Context, runs []schemas.Digest, to Reference) (Transfer, error) {
	type ready struct {
		manifest []byte
		blobs    []archive.BlobRef
	}
	var list []ready
	for _, d := range runs {
		b, err := p.from.ManifestBytes(d)
		if err != nil {
			return p.out, err
		}
		blobs, err := archive.ManifestBlobs(b)
		if err != nil {
			return p.out, err
		}
		list = append(list, ready{b, p.fresh(blobs)})
	}
	p.c.progress.phase(PhasePush)
	main := runs[len(runs)-1]
	p.out.Run, p.out.Tag, p.out.Reference, p.out.Sources = main, to.Tag, to.Pinned(main).String(), runs[:len(runs)-1]
	for i, r := range list {
		if err := p.blobs(ctx, p.from, r.blobs); err != nil {
			return p.out, err
		}
		tag := ""
		if runs[i] == main {
			tag = to.Tag
		}
		if err := p.manifest(ctx, runs[i], r.manifest, tag); err != nil {
			return p.out, err
		}
	}
	return p.out, nil
}

// fresh drops the blobs that an earlier run of this push brought, and counts.
func (p *push) fresh(blobs []archive.BlobRef) []archive.BlobRef {
	var out []archive.BlobRef
	for _, b := range blobs {
		if p.seen[b.Digest] {
			continue
		}
		p.seen[b.Digest] = true
		out = append(out, b)
		p.out.Blobs++
		p.out.Bytes += b.Size
		p.c.progress.add(0, b.Size)
		if p.o.Check {
			p.c.progress.add(0, b.Size)
		}
	}
	return out
}

// blobs uploads, at most four at a time.
func (p *push) blobs(ctx context.Context, from blobs, list []archive.BlobRef) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	var bad damage
	for _, b := range list {
		g.Go(func() error {
			if err := gctx.Err(); err != nil {
				return err
			}
			u := &upload{c: p.c, from: from, blob: b, mount: p.o.MountFrom, sessions: p.sessions, chunk: p.c.tune.chunk}
			what, err := u.run(gctx)
			if err == nil {
				u.moveTo(b.Size)
				if p.o.Check {
					what, err = u.check(gctx, what)
				}
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.out.BytesMoved += min(u.sent, b.Size) // what had to be sent twice counts once
			if corrupt(err) {
				bad.add(err)
				return nil
			}
			if err != nil {
				return err
			}
			if p.o.Check {
				p.out.BlobsChecked++
			}
			switch what {
			case sent:
				p.out.BlobsMoved++
			case mounted:
				p.out.BlobsMounted++
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return bad.err()
}

// manifest stores a run's manifest, or its wrapper, and names it.
func (p *push) manifest(ctx context.Context, run schemas.Digest, b []byte, tag string) error {
	p.out.Stored = run
	if p.o.Compat {
		blobs, err := archive.ManifestBlobs(b)
		if err != nil {
			return err
		}
		wrapper, config, err := wrap(b, blobs)
		if err != nil {
			return err
		}
		extra := memory{run: b, schemas.DigestOf(config): config}
		var more []archive.BlobRef
		for d, data := range extra {
			more = append(more, archive.BlobRef{Digest: d, Size: int64(len(data))})
		}
		if err := p.blobs(ctx, extra, p.fresh(more)); err != nil {
			return err
		}
		b, p.out.Stored = wrapper, schemas.DigestOf(wrapper)
	}
	names := []string{string(p.out.Stored), standIn(run)}
	if tag != "" {
		names = append(names, tag)
	}
	for _, n := range names {
		was, err := p.c.putManifest(ctx, n, mediaManifest, b)
		if err != nil {
			return err
		}
		if n == tag {
			p.out.Replaced = was
		}
	}
	return nil
}

// Check says whether a run is under a reference: its digest, without its blobs.
func Check(ctx context.Context, ref Reference, o Options) (schemas.Digest, error) {
	c, err := dial(ctx, ref, o, transport.PullScope)
	if err != nil {
		return "", fmt.Errorf("reference %q: %w", ref, err)
	}
	b, _, err := c.find(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("reference %q: %w", ref, notFound(err))
	}
	return schemas.DigestOf(b), nil
}

func notFound(err error) error {
	var e *Error
	if !corrupt(err) && errors.As(err, &e) && e.Status == http.StatusNotFound && e.Hint == "" {
		e.Hint = "there is no such tag, digest or repository, or it is not for everyone"
	}
	return err
}
