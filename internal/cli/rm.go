package cli

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/pipeline"
	"assay/schemas"
)

type rmDoc struct {
	Removed []archive.RunInfo `json:"removed"`
	GivenUp []interruptedRun  `json:"given_up"`
}

func rmCommand() *command {
	return &command{
		name: "rm", args: "REF...", summary: "take runs out of the store, with their tags", minArgs: 1, maxArgs: -1,
		details: "All of them or, when one cannot be removed, none. Their bytes are freed by\n`assay gc`, once its grace period is over. The source run of another run is kept\nunless --force is given; even then its bytes stay as long as that run is here.\nTo take a name away and keep the run: `assay tag --delete NAME`.\nThe id of an interrupted run (`assay ls`) gives that run up: its journal goes, it\ncannot be resumed, and what it stored is freed like the rest. A run whose process\nlives, or may live on another machine, is refused.",
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
	runs, open, err := c.toRemove(s)
	if err != nil {
		return err
	}
	ctx, done := c.showing()
	removed := []archive.RunInfo{}
	if len(runs) > 0 {
		removed, err = s.Remove(ctx, runs, c.Bool("force"))
	}
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
	given := []interruptedRun{}
	for _, u := range open {
		if err := pipeline.GiveUp(s.Dir(), u, sweep); err != nil {
			return err
		}
		given = append(given, interruptedOf(u))
	}
	if c.asJSON {
		return c.printJSON(rmDoc{removed, given})
	}
	for _, r := range removed {
		tags := ""
		if len(r.Tags) > 0 {
			tags = ", tags " + strings.Join(r.Tags, " ")
		}
		c.printf("removed %s (%s of %s%s)\n", r.Digest.Short(), r.ID, r.Experiment, tags)
	}
	for _, u := range given {
		c.printf("gave up %s (interrupted, of %s): its journal is gone, it cannot be resumed\n", u.RunID, u.Experiment)
	}
	c.printf("`assay gc` frees what no other run needs\n")
	return nil
}

// toRemove finds what is to be removed: sealed runs, and interrupted ones that are
// named by their ids. One that somebody may be executing stops it all.
func (c *call) toRemove(s *archive.Store) (runs []schemas.Digest, open []pipeline.Unsealed, err error) {
	for _, name := range c.Args().Slice() {
		if runIDPattern.MatchString(name) {
			u, found, err := c.interruptedRun(s, name)
			if err != nil {
				return nil, nil, err
			}
			if found {
				if !slices.ContainsFunc(open, func(o pipeline.Unsealed) bool { return o.RunID == u.RunID }) {
					open = append(open, u)
				}
				continue
			}
		}
		ref, err := resolveIn(c.ctx, s, name)
		if err != nil {
			return nil, nil, err
		}
		if ref.Place != "" {
			return nil, nil, usagef("%s lies in %s, not in this store: only runs of the store can be removed", ref.Name, ref.Place)
		}
		runs = append(runs, ref.Digest)
	}
	return runs, open, nil
}

// interruptedRun finds an interrupted run that can be given up.
func (c *call) interruptedRun(s *archive.Store, id string) (u pipeline.Unsealed, found bool, err error) {
	sealed, err := sealedIn(c.ctx, s)
	if err != nil {
		return u, false, err
	}
	list, damaged, err := pipeline.ListUnsealed(s.Dir(), sealed)
	if err != nil {
		return u, false, err
	}
	for _, d := range damaged {
		if filepath.Base(d.File) == id+".jsonl" {
			return u, false, withCode(ExitUsage, d)
		}
	}
	for _, have := range list {
		if have.RunID == id {
			u, found = have, true
		}
	}
	if !found {
		return u, false, nil
	}
	if u.Running {
		return u, true, usagef("run %s is being executed: end its process first", id)
	}
	leases, err := s.Leases()
	for _, l := range leases {
		if l.Run == id && l.State != archive.LeaseDead {
			return u, true, usagef("run %s: process %d on %s holds its lease%s", id, l.PID, l.Host, unknownText(l))
		}
	}
	return u, true, err
}
