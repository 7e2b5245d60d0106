package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"assay/archive"
	"assay/pipeline"
	"assay/schemas"
)

type lsDoc struct {
	Store       string            `json:"store"`
	Runs        []archive.RunInfo `json:"runs"`
	Interrupted []interruptedRun  `json:"interrupted"`
	Warnings    []string          `json:"warnings,omitempty"` // journals that cannot be read
}

type interruptedRun struct {
	RunID      string         `json:"run_id"`
	Experiment string         `json:"experiment"`
	Digest     schemas.Digest `json:"experiment_digest"`
	StartedAt  time.Time      `json:"started_at"`
	Running    bool           `json:"running"` // its process lives
}

func (u interruptedRun) state() string {
	if u.Running {
		return "running"
	}
	return "interrupted"
}

func lsCommand() *command {
	return &command{
		name: "ls", summary: "list the runs of the store, oldest first",
		details: "Runs that were interrupted stand after the sealed ones: `assay run FILE --resume`\ngoes on with them, and `assay rm RUN` gives one up.",
		example: "assay ls --store /data/runs",
		run:     runLs,
	}
}

func runLs(c *call) error {
	s, err := c.openStore()
	if err != nil {
		return err
	}
	doc := lsDoc{Store: s.Dir()}
	if doc.Runs, err = s.Runs(c.ctx); err != nil {
		return err
	}
	open, damaged, err := interrupted(c.ctx, s)
	if err != nil {
		return err
	}
	doc.Interrupted, doc.Warnings = open, damaged
	if c.asJSON {
		return c.printJSON(doc)
	}
	for _, w := range damaged {
		fmt.Fprintf(c.stderr, "warning: %s\n", w)
	}
	if len(doc.Runs) == 0 && len(open) == 0 {
		c.printf("no runs in %s\n", s.Dir())
		return nil
	}
	t := newTable("digest", "run", "experiment", "status", "tags")
	for _, r := range doc.Runs {
		t.row(r.Digest.Short(), r.ID, r.Experiment, string(r.Status), strings.Join(r.Tags, " "))
	}
	for _, u := range open {
		t.row("-", u.RunID, u.Experiment, u.state(), "")
	}
	c.printf("%s", t)
	return nil
}

// interrupted lists the interrupted runs, and says which journals cannot be read.
func interrupted(ctx context.Context, s *archive.Store) (list []interruptedRun, damaged []string, err error) {
	sealed, err := sealedIn(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	found, bad, err := pipeline.ListUnsealed(s.Dir(), sealed)
	if err != nil {
		return nil, nil, err
	}
	list = []interruptedRun{}
	for _, u := range found {
		list = append(list, interruptedOf(u))
	}
	for _, d := range bad {
		damaged = append(damaged, d.Error())
	}
	return list, damaged, nil
}

func interruptedOf(u pipeline.Unsealed) interruptedRun {
	return interruptedRun{u.RunID, u.Experiment, u.Digest, u.StartedAt, u.Running}
}

// sealedIn says of a run id whether the store's index has it.
func sealedIn(ctx context.Context, s *archive.Store) (func(runID string) bool, error) {
	runs, err := s.Runs(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, r := range runs {
		ids[r.ID] = true
	}
	return func(runID string) bool { return ids[runID] }, nil
}
