package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/archive/remote"
)

func plainHTTPFlag() cli.Flag {
	return &cli.BoolFlag{Name: "plain-http", Usage: "speak HTTP without TLS to a registry on another machine"}
}

// cleanup removes at the end what a command made for itself.
type cleanup struct{ dirs []string }

func (c *cleanup) remove() error {
	var errs []error
	for _, d := range c.dirs {
		errs = append(errs, os.RemoveAll(d))
	}
	return errors.Join(errs...)
}

func (c *call) remoteOptions(progress func(archive.Progress)) remote.Options {
	return remote.Options{PlainHTTP: c.Bool("plain-http"), Progress: progress}
}

// remoteReference reads oci://..., which must name a run when run is set.
func remoteReference(text string, run bool) (remote.Reference, error) {
	r, err := remote.Parse(text)
	if err == nil && run && r.Tag == "" && r.Digest == "" {
		err = fmt.Errorf("reference %q: name a tag or a digest", text)
	}
	return r, withCode(ExitUsage, err)
}

// remoteError tells what is not there, which is the caller's mistake, from what
// could not be reached.
func remoteError(err error) error {
	var answer *remote.Error
	if errors.As(err, &answer) && errors.Is(answer, fs.ErrNotExist) {
		return withCode(ExitUsage, err)
	}
	return err
}

// resolveRemote finds the run that a reference to a registry names. The tag is
// resolved once: what is read is what the digest says. A run that the store has
// is read there, of any other what is needed is fetched.
func (c *call) resolveRemote(text string) (archive.Ref, error) {
	v, err := c.view(text)
	if err != nil {
		return archive.Ref{}, err
	}
	s, err := c.existing()
	if err != nil {
		return archive.Ref{}, err
	}
	if s != nil && s.HasRun(c.ctx, v.Run) {
		return named(c, s, text, string(v.Run))
	}
	return v.Layout.Ref(text, v.Run), nil
}

// view opens a run where it lies in a registry. What is kept of it meanwhile goes
// when the command ends.
func (c *call) view(text string) (*remote.View, error) {
	from, err := remoteReference(text, true)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "assay-registry-")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", text, err)
	}
	c.temps.dirs = append(c.temps.dirs, tmp)
	v, err := remote.Open(c.ctx, from, tmp, c.remoteOptions(nil))
	return v, remoteError(err)
}

// fetch pulls a run into a store of its own.
func (c *call) fetch(text string, from remote.Reference) (archive.Ref, error) {
	tmp, err := os.MkdirTemp("", "assay-registry-")
	if err != nil {
		return archive.Ref{}, fmt.Errorf("fetch %s: %w", text, err)
	}
	c.temps.dirs = append(c.temps.dirs, tmp)
	s, err := archive.Create(filepath.Join(tmp, "store"))
	if err != nil {
		return archive.Ref{}, fmt.Errorf("fetch %s: %w", text, err)
	}
	r, err := c.pullInto(s, text, from)
	r.Place = from.String()
	return r, err
}

// pullInto pulls a run, without its source runs, and resolves it where it is then.
func (c *call) pullInto(s *archive.Store, text string, from remote.Reference) (archive.Ref, error) {
	show, done := c.byteProgress()
	out, err := remote.Pull(c.ctx, s, from, remote.PullOptions{Options: c.remoteOptions(show), NoSources: true})
	done()
	if err != nil {
		return archive.Ref{}, remoteError(err)
	}
	return named(c, s, text, string(out.Run))
}

// named resolves a digest in a store and keeps the name that was given.
func named(c *call, s *archive.Store, text, digest string) (archive.Ref, error) {
	r, err := s.Resolve(c.ctx, digest)
	r.Name = text
	return r, err
}

// resolveToVerify is resolve, but a run in a registry is read there whatever the
// store has. reached says afterwards whether all of it could be.
func (c *call) resolveToVerify(text string) (ref archive.Ref, reached func() error, err error) {
	if !remote.IsReference(text) {
		ref, err = c.resolve(text)
		return ref, func() error { return nil }, err
	}
	v, err := c.view(text)
	if err != nil {
		return archive.Ref{}, nil, err
	}
	return v.Layout.Ref(text, v.Run), v.Err, nil
}

// resolveSource is resolve for a run that another one is made from: fetched from
// a registry it stays in the store, if there is one.
func (c *call) resolveSource(text string) (archive.Ref, error) {
	if !remote.IsReference(text) {
		return c.resolve(text)
	}
	s, err := c.existing()
	if err != nil {
		return archive.Ref{}, err
	}
	from, err := remoteReference(text, true)
	if err != nil {
		return archive.Ref{}, err
	}
	if s == nil {
		return c.fetch(text, from) // it is read twice: verified, then laid out
	}
	return c.pullInto(s, text, from)
}
