package cli

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/schemas"
)

type rmDoc struct {
	Removed []archive.RunInfo `json:"removed"`
}

func rmCommand() *command {
	return &command{
		name: "rm", args: "REF...", summary: "take runs out of the store, with their tags", minArgs: 1, maxArgs: -1,
		details: "All of them or, when one cannot be removed, none. Their bytes are freed by\n`assay gc`, once its grace period is over. The source run of another run is kept\nunless --force is given; even then its bytes stay as long as that run is here.\nTo take a name away and keep the run: `assay tag --delete NAME`.",
		example: "assay rm latest && assay gc --yes",
		flags:   []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "remove source runs of other runs too"}},
		run:     runRm,
	}
}

func runRm(c *call) error {
	s, err := c.openStore()
	if err != nil {
		return err
	}
	var runs []schemas.Digest
	for _, name := range c.Args().Slice() {
		ref, err := resolveIn(c.ctx, s, name)
		if err != nil {
			return err
		}
		if ref.Place != "" {
			return usagef("%s lies in %s, not in this store: only runs of the store can be removed", ref.Name, ref.Place)
		}
		runs = append(runs, ref.Digest)
	}
	ctx, done := c.showing()
	removed, err := s.Remove(ctx, runs, c.Bool("force"))
	done()
	var used *archive.UsedError
	switch {
	case errors.As(err, &used):
		return usagef("%v: remove them as well, or remove it with --force", err)
	case errors.Is(err, fs.ErrNotExist) && !errors.Is(err, archive.ErrIndex):
		return withCode(ExitUsage, err)
	case err != nil:
		return err
	}
	if c.asJSON {
		return c.printJSON(rmDoc{removed})
	}
	for _, r := range removed {
		tags := ""
		if len(r.Tags) > 0 {
			tags = ", tags " + strings.Join(r.Tags, " ")
		}
		c.printf("removed %s (%s of %s%s)\n", r.Digest.Short(), r.ID, r.Experiment, tags)
	}
	c.printf("`assay gc` frees what no other run needs\n")
	return nil
}
