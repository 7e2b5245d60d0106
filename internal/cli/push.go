package cli

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/archive/remote"
	"assay/schemas"
)

func pushCommand() *command {
	return &command{
		name: "push", args: "REF oci://HOST/REPOSITORY[:TAG]", summary: "send a run to a registry", minArgs: 2, maxArgs: 2,
		details: "Sends what the registry lacks: blobs, then the manifest under its digest, which is\nread back and compared byte for byte, then the tag. The runs it was made from go\nwith it. What was cut short goes on when it is repeated. Logins are those of Docker\n(`docker login`) and Podman (`podman login`).",
		example: "assay push baseline oci://registry.example/team/runs:baseline",
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "no-sources", Usage: "leave out the runs it was made from"},
			&cli.BoolFlag{Name: "check", Usage: "read every blob back, also those that were there, before the run gets its name"},
			&cli.BoolFlag{Name: "compat", Usage: "wrap the run as an image, for registries that refuse artifact types"},
			&cli.StringSliceFlag{Name: "mount-from", Usage: "a `REPOSITORY` of the registry that may have its blobs, again for another"},
			plainHTTPFlag(),
		},
		run: runPush,
	}
}

func runPush(c *call) error {
	to, err := remoteReference(c.Args().Get(1), false)
	if err != nil {
		return err
	}
	ref, err := c.resolve(c.Args().First())
	if err != nil {
		return err
	}
	if ref.Layout() == nil {
		return usagef("%s is an extracted run, which has no blobs: name it in a store, a layout or a tar", ref.Name)
	}
	if to.Digest != "" && to.Digest != ref.Digest {
		return usagef("%s is %s, not what %s names: leave the digest out", ref.Name, ref.Digest, c.Args().Get(1))
	}
	if err := to.CheckPush(ref.Digest); err != nil {
		return withCode(ExitUsage, err)
	}
	for _, m := range c.StringSlice("mount-from") {
		if _, err := to.Beside(m); err != nil {
			return withCode(ExitUsage, fmt.Errorf("--mount-from: %w", err))
		}
	}
	opts := remote.PushOptions{NoSources: c.Bool("no-sources"), Compat: c.Bool("compat"), Check: c.Bool("check"), MountFrom: c.StringSlice("mount-from")}
	s, err := c.existing()
	if err != nil {
		return err
	}
	if s != nil {
		opts.Sessions = filepath.Join(s.WorkDir(), "uploads")
	}
	show, done := c.byteProgress()
	opts.Options = c.remoteOptions(show)
	out, err := remote.Push(c.ctx, ref.Layout(), ref.Digest, to, opts)
	done()
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(out)
	}
	c.printf("pushed %s: %s\n", ref.Digest.Short(), transferText(out, "sent"))
	for _, d := range out.Sources {
		c.printf("  with source run %s\n", d)
	}
	if out.BlobsChecked > 0 {
		c.printf("read back  %s, whole\n", plural(out.BlobsChecked, "blob"))
	}
	if out.Tag != "" {
		c.printf("tag        %s\n", out.Tag)
	}
	if out.Replaced != "" {
		c.printf("warning: the tag was %s before\n", out.Replaced)
	}
	if out.Stored != out.Run {
		c.printf("wrapped as %s\n", out.Stored)
	}
	c.printf("reference  %s\n", out.Reference)
	return nil
}

func transferText(t remote.Transfer, verb string) string {
	text := schemas.Size(t.BytesMoved).String() + " " + verb
	return text + " of " + schemas.Size(t.Bytes).String() + " in " + plural(t.Blobs, "blob")
}

type pullDoc struct {
	remote.Transfer
	Store     string   `json:"store"`
	LocalTags []string `json:"tags"`
}

func pullCommand() *command {
	return &command{
		name: "pull", args: "oci://HOST/REPOSITORY:TAG", summary: "fetch a run from a registry into the store", minArgs: 1, maxArgs: 1,
		details: "Fetches what the store lacks, with the runs it was made from; every byte is checked\nbefore it counts, and blobs of the store that are damaged are replaced. The\nreference may end in @sha256:HEX instead of a tag. Other commands take oci://\nreferences as well, without a pull.",
		example: "assay pull oci://registry.example/team/runs:baseline --tag baseline",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "tag", Usage: "name the run `TAG` in the store"},
			&cli.BoolFlag{Name: "no-sources", Usage: "leave out the runs it was made from"},
			plainHTTPFlag(),
		},
		run: runPull,
	}
}

func runPull(c *call) error {
	from, err := remoteReference(c.Args().First(), true)
	if err != nil {
		return err
	}
	opts := remote.PullOptions{NoSources: c.Bool("no-sources")}
	if c.IsSet("tag") {
		if err := checkTag(c.String("tag")); err != nil {
			return err
		}
		opts.Tags = []string{c.String("tag")}
	}
	s, err := archive.OpenOrCreate(c.storeDir())
	if err != nil {
		return err
	}
	var had schemas.Digest
	if c.IsSet("tag") {
		if had, err = hadTag(c, s, c.String("tag"), ""); err != nil {
			return err
		}
	}
	show, done := c.byteProgress()
	opts.Options = c.remoteOptions(show)
	out, err := remote.Pull(c.ctx, s, from, opts)
	done()
	if err != nil {
		return remoteError(err)
	}
	if had != out.Run {
		out.Replaced = had
	}
	tags, err := tagsOf(c.ctx, s, out.Run)
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(pullDoc{out, s.Dir(), tags})
	}
	c.printf("pulled %s: %s\n", out.Run.Short(), transferText(out, "fetched"))
	for _, d := range out.Sources {
		c.printf("  with source run %s\n", d)
	}
	for _, d := range out.Missing {
		c.printf("warning: source run %s is not in the repository\n", d)
	}
	if c.IsSet("tag") {
		c.printf("tag        %s\n", c.String("tag"))
	}
	if out.Replaced != "" {
		c.printf("warning: the tag was %s before\n", out.Replaced)
	}
	c.printf("reference  %s\n", out.Reference)
	return nil
}
