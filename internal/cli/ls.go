package cli

import (
	"context"
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
		details: "Runs that were interrupted stand after the sealed ones: `assay run FILE --resume`\ngoes on with them.",
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
	open, err := interrupted(c.ctx, s)
	if err != nil {
		return err
	}
	doc.Interrupted = open
	if c.asJSON {
		return c.printJSON(doc)
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

func interrupted(ctx context.Context, s *archive.Store) ([]interruptedRun, error) {
	sealed, err := sealedIn(ctx, s)
	if err != nil {
		return nil, err
	}
	found, err := pipeline.FindUnsealed(s.Dir(), sealed)
	if err != nil {
		return nil, err
	}
	list := []interruptedRun{}
	for _, u := range found {
		list = append(list, interruptedRun{u.RunID, u.Experiment, u.Digest, u.StartedAt, u.Running})
	}
	return list, nil
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
