package cli

import (
	"errors"
	"io/fs"

	"github.com/urfave/cli/v2"

	"assay/schemas"
)

type tagDoc struct {
	Tag     string         `json:"tag"`
	Run     schemas.Digest `json:"run,omitempty"`
	Deleted bool           `json:"deleted"`
	// Replaced is the run that had the tag before, if another one had.
	Replaced schemas.Digest `json:"replaced,omitempty"`
}

func tagCommand() *command {
	return &command{
		name: "tag", args: "REF NAME | --delete NAME", summary: "name a run, or take a name away", minArgs: 1, maxArgs: 2,
		details: "A tag names one run: set again, it leaves the run that had it.",
		example: "assay tag latest baseline",
		flags:   []cli.Flag{&cli.BoolFlag{Name: "delete", Usage: "remove the tag NAME; the run stays"}},
		run:     runTag,
	}
}

func runTag(c *call) error {
	want := 2
	if c.Bool("delete") {
		want = 1
	}
	if c.NArg() != want {
		return usagef("%d argument(s) given: want `assay tag REF NAME` or `assay tag --delete NAME`", c.NArg())
	}
	s, err := c.openStore()
	if err != nil {
		return err
	}
	if c.Bool("delete") {
		name := c.Args().First()
		if err := s.Untag(c.ctx, name); errors.Is(err, fs.ErrNotExist) {
			return usagef("there is no tag %q: `assay ls` lists the tags", name)
		} else if err != nil {
			return err
		}
		if c.asJSON {
			return c.printJSON(tagDoc{Tag: name, Deleted: true})
		}
		c.printf("removed tag %s\n", name)
		return nil
	}
	name := c.Args().Get(1)
	if err := checkTag(name); err != nil {
		return err
	}
	ref, err := resolveIn(c.ctx, s, c.Args().First())
	if err != nil {
		return err
	}
	if ref.Place != "" {
		return usagef("%s lies in %s, not in this store: only runs of the store can be tagged", ref.Name, ref.Place)
	}
	had, err := hadTag(c, s, name, ref.Digest)
	if err != nil {
		return err
	}
	if err := s.Tag(c.ctx, name, ref.Digest); err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(tagDoc{Tag: name, Run: ref.Digest, Replaced: had})
	}
	c.printf("%s is %s\n", name, ref.Digest.Short())
	if had != "" {
		c.printf("warning: the tag was %s before\n", had)
	}
	return nil
}
