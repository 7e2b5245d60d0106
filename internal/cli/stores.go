package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"assay/archive"
	"assay/archive/remote"
	"assay/schemas"
)

// store opens the store once for a command: what it has read of it serves again.
func (c *call) store() (*archive.Store, error) {
	if c.opened != nil {
		return c.opened, nil
	}
	s, err := archive.Open(c.storeDir())
	if err == nil {
		c.opened = s
	}
	return s, err
}

// openStore opens the store for reading; a missing one is the caller's mistake.
func (c *call) openStore() (*archive.Store, error) {
	s, err := c.store()
	return s, storeError(err)
}

// storeError gives the error of a store that cannot be opened its code, the same in
// every command: a folder that is none was named by mistake, all else is of the
// machine.
func storeError(err error) error {
	if errors.Is(err, archive.ErrNotStore) || errors.Is(err, fs.ErrNotExist) {
		return withCode(ExitUsage, err)
	}
	return err
}

// resolve finds the run that a reference names. A path needs no store, and when it
// is one, what is wrong with it counts, not that there is no store here.
func (c *call) resolve(ref string) (archive.Ref, error) {
	if remote.IsReference(ref) {
		return c.resolveRemote(ref)
	}
	s, err := c.store()
	if err == nil {
		return resolveIn(c.ctx, s, ref)
	}
	r, perr := archive.ResolvePath(c.ctx, ref)
	switch {
	case perr == nil:
		return r, nil
	case archive.IsPath(ref):
		return r, referenceError(perr)
	}
	return archive.Ref{}, storeError(err)
}

// referenceError is for a reference that names nothing, or nothing that can be
// read: the caller's mistake unless bytes are wrong.
func referenceError(err error) error {
	var corrupt *archive.CorruptError
	if err == nil || errors.As(err, &corrupt) {
		return err
	}
	return withCode(ExitUsage, err)
}

func resolveIn(ctx context.Context, s *archive.Store, ref string) (archive.Ref, error) {
	_, err := s.Runs(ctx)
	if named := archive.IsPath(ref) || errors.Is(err, archive.ErrIndex) && schemas.Digest(ref).Valid(); err != nil && !named {
		return archive.Ref{}, err // the store is at fault, not the reference
	}
	r, err := s.Resolve(ctx, ref)
	return r, referenceError(err)
}

// openRun resolves a reference and reads the run's documents.
func (c *call) openRun(ref string) (*archive.Run, error) {
	r, err := c.resolve(ref)
	if err != nil {
		return nil, err
	}
	return c.readRun(r)
}

// readRun reads the documents of a run that was found: when it cannot, the
// archive is damaged, whatever the file system calls it.
func (c *call) readRun(r archive.Ref) (*archive.Run, error) {
	run, err := r.Run(c.ctx)
	if err != nil && c.ctx.Err() == nil && !errors.Is(err, archive.ErrUnreachable) {
		err = withCode(ExitUnverified, fmt.Errorf("%w: `assay verify %s` says more", err, r.Name))
	}
	return run, err
}

// checkTag refuses a name that cannot be a tag, or that would read as something
// else, before anything is started for it.
func checkTag(name string) error {
	if err := archive.CheckTag(name); err != nil {
		return withCode(ExitUsage, err)
	}
	if schemas.Digest("sha256:" + name).Valid() {
		return usagef("tag %q looks like a digest", name)
	}
	return nil
}

// tagsOf returns the tags of a run in the store, in order; none elsewhere.
func tagsOf(ctx context.Context, s *archive.Store, d schemas.Digest) ([]string, error) {
	runs, err := s.Runs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	for _, r := range runs {
		if r.Digest == d {
			return r.Tags, nil
		}
	}
	return nil, nil
}
