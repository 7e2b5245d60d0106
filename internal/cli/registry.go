package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/archive/remote"
	"assay/internal/durable"
	"assay/schemas"
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

// tempPrefix begins the names of the folders for what is read of registries; the
// process that made one follows, and what it was killed before it could remove goes
// the next time.
const tempPrefix = "assay-registry-"

// tempFolder makes a folder that goes when the command ends.
func (c *call) tempFolder() (string, error) {
	sweepTempFolders(os.TempDir())
	dir, err := os.MkdirTemp("", tempPrefix+durable.Self()+"-")
	if err != nil {
		return "", fmt.Errorf("%w: set TMPDIR to a folder that can be written", err)
	}
	c.temps.dirs = append(c.temps.dirs, dir)
	return dir, nil
}

// sweepTempFolders removes those whose process is provably dead, and only this
// user's: others may write there too. What stays only takes room.
func sweepTempFolders(parent string) {
	list, _ := filepath.Glob(filepath.Join(parent, tempPrefix+"*-*"))
	for _, dir := range list {
		token := strings.TrimPrefix(filepath.Base(dir), tempPrefix)
		token = token[:strings.LastIndexByte(token, '-')]
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || !durable.Dead(token) {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			_ = os.RemoveAll(dir)
		}
	}
}

func (c *call) remoteOptions(progress func(archive.Progress)) remote.Options {
	return remote.Options{PlainHTTP: c.Bool("plain-http"), Progress: progress, Waiting: c.tell}
}

// tell says on stderr why a command waits.
func (c *call) tell(text string) {
	switch {
	case c.quiet:
	case c.bar != nil:
		c.bar.say(text)
	default:
		fmt.Fprintln(c.stderr, text)
	}
}

// remoteReference reads oci://..., which must name a run when run is set.
func remoteReference(text string, run bool) (remote.Reference, error) {
	r, err := remote.Parse(text)
	if err == nil && run && r.Tag == "" && r.Digest == "" {
		err = fmt.Errorf("reference %q: name a tag or a digest", text)
	}
	return r, withCode(ExitUsage, err)
}

// remoteError tells what is not there, or no run, which is the caller's mistake, from
// what is damaged and from what could not be reached.
func remoteError(err error) error {
	var answer *remote.Error
	var bad *archive.CorruptError
	switch {
	case errors.As(err, &bad):
		return err
	case errors.Is(err, remote.ErrNotRun):
		return withCode(ExitUsage, err)
	}
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
	tmp, err := c.tempFolder()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", text, err)
	}
	v, err := remote.Open(c.ctx, from, tmp, c.remoteOptions(nil))
	return v, remoteError(err)
}

// fetch pulls a run into a store of its own.
func (c *call) fetch(text string, from remote.Reference) (archive.Ref, error) {
	tmp, err := c.tempFolder()
	if err != nil {
		return archive.Ref{}, fmt.Errorf("fetch %s: %w", text, err)
	}
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

// hadTag is the other run that has a tag of the store until it is given to run; ""
// for none.
func hadTag(c *call, s *archive.Store, tag string, run schemas.Digest) (schemas.Digest, error) {
	runs, err := s.Runs(c.ctx)
	if err != nil {
		return "", fmt.Errorf("list runs: %w", err)
	}
	for _, r := range runs {
		if r.Digest != run && slices.Contains(r.Tags, tag) {
			return r.Digest, nil
		}
	}
	return "", nil
}
