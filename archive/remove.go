package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/schemas"
)

// UsedError says that a run is the source run of others.
type UsedError struct {
	Run schemas.Digest
	By  []RunInfo
}

func (e *UsedError) Error() string {
	var names []string
	for _, r := range e.By {
		names = append(names, r.Digest.Short()+" ("+r.Experiment+")")
	}
	return fmt.Sprintf("run %s is the source run of %s", e.Run.Short(), strings.Join(names, ", "))
}

// Remove takes runs out of the index, with their tags, all at once. Their blobs
// stay until Collect finds that nothing needs them. A run that another one, not
// named here, was made from is a *UsedError unless force is set.
func (s *Store) Remove(ctx context.Context, runs []schemas.Digest, force bool) ([]RunInfo, error) {
	fail := func(err error) ([]RunInfo, error) { return nil, fmt.Errorf("remove: %w", err) }
	gone := map[schemas.Digest]bool{}
	for _, d := range runs {
		gone[d] = true
	}
	var removed []RunInfo
	err := s.updateIndex(func(x *v1.IndexManifest) error {
		removed = removed[:0]
		list := runsOf(*x)
		for _, r := range list {
			if gone[r.Digest] {
				removed = append(removed, r)
			}
		}
		if len(removed) != len(gone) {
			return fmt.Errorf("%d of %d runs are not in the index: %w", len(gone)-len(removed), len(gone), fs.ErrNotExist)
		}
		if !force {
			if err := s.checkUnused(ctx, list, gone); err != nil {
				return err
			}
		}
		kept := x.Manifests[:0:0]
		for _, d := range x.Manifests {
			if d.ArtifactType != ArtifactType || !gone[digestOf(d)] {
				kept = append(kept, d)
			}
		}
		x.Manifests = kept
		if x.Manifests == nil {
			x.Manifests = []v1.Descriptor{}
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	return removed, nil
}

// checkUnused looks for runs that stay and name one that goes as their source.
func (s *Store) checkUnused(ctx context.Context, list []RunInfo, gone map[schemas.Digest]bool) error {
	used := map[schemas.Digest][]RunInfo{}
	progress := newMeter(ctx, PhaseMark, int64(len(list)))
	defer progress.end()
	for _, r := range list {
		progress.add(1)
		if gone[r.Digest] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		sources, err := s.sourcesOf(r.Digest)
		if err != nil {
			return fmt.Errorf("read the source runs of %s: %w: `assay fsck` says more", r.Digest.Short(), err)
		}
		for _, d := range sources {
			if gone[d] {
				used[d] = append(used[d], r)
			}
		}
	}
	var errs []error
	for d, by := range used {
		errs = append(errs, &UsedError{Run: d, By: by})
	}
	return errors.Join(errs...)
}

// sourcesOf reads which runs a run was made from.
func (l *Layout) sourcesOf(run schemas.Digest) ([]schemas.Digest, error) {
	m, err := l.manifestOf(run)
	if err != nil {
		return nil, err
	}
	b, err := l.readBlob(digestOf(m.Config), maxDocBytes)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	var c struct {
		Sources []schemas.SourceRun `json:"sources"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	var out []schemas.Digest
	for _, src := range c.Sources {
		if src.Digest.Valid() {
			out = append(out, src.Digest)
		}
	}
	return out, nil
}

func (l *Layout) manifestOf(run schemas.Digest) (v1.Manifest, error) {
	b, err := l.readBlob(run, maxManifestBytes)
	if err != nil {
		return v1.Manifest{}, err
	}
	return parseManifest(b)
}

// Closure lists a run and, before it, the runs it was made from, sources first,
// each once. missing are those that are not in this layout.
func (l *Layout) Closure(ctx context.Context, run schemas.Digest) (runs, missing []schemas.Digest, err error) {
	seen := map[schemas.Digest]bool{}
	var visit func(d schemas.Digest, top bool) error
	visit = func(d schemas.Digest, top bool) error {
		if seen[d] {
			return nil
		}
		seen[d] = true
		if err := ctx.Err(); err != nil {
			return err
		}
		sources, err := l.sourcesOf(d)
		if errors.Is(err, fs.ErrNotExist) && !top {
			missing = append(missing, d)
			return nil
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", d.Short(), err)
		}
		for _, src := range sources {
			if err := visit(src, false); err != nil {
				return err
			}
		}
		runs = append(runs, d)
		return nil
	}
	err = visit(run, true)
	return runs, missing, err
}
