package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/schemas"
)

type gcDoc struct {
	Store string `json:"store"`
	archive.GCReport
}

func gcCommand() *command {
	return &command{
		name: "gc", summary: "list, and with --yes delete, what no run needs",
		details: "Needed is what a run of `assay ls` is made of, tagged or not, its source runs,\nand what the journal of an interrupted run names. What is younger than the grace\nperiod, or than the start of any run that is being written, is kept as well: gc is\nsafe while runs are written. Without --yes nothing is deleted. Each blob is listed\nwith its run, stage and path, as far as what is left of them tells.",
		example: "assay gc && assay gc --yes",
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "yes", Usage: "delete what is listed"},
			&cli.StringFlag{Name: "grace", Value: "1h", Usage: "keep what was stored, or used again, less than `TIME` ago"},
		},
		run: runGC,
	}
}

func runGC(c *call) error {
	grace, err := schemas.ParseDuration(c.String("grace"))
	if err != nil {
		return usagef("--grace: %v", err)
	}
	s, err := c.openStore()
	if err != nil {
		return err
	}
	ctx, done := c.showing()
	r, err := s.Collect(ctx, archive.GCOptions{Grace: time.Duration(grace), Apply: c.Bool("yes")})
	done()
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(gcDoc{s.Dir(), r})
	}
	if len(r.Garbage) > 0 {
		t := newTable("blob", "bytes", "kind", "run", "stage", "path").right(1)
		for _, g := range r.Garbage {
			t.row(g.Digest.Short(), schemas.Size(g.Bytes).String(), g.Kind, dash(g.Run), dash(strings.TrimSpace(g.Stage+" "+g.Trial)), pathText(g))
		}
		c.printf("%s\n", t)
	}
	for _, f := range r.Findings {
		c.printf("%s", findingText(f, ""))
	}
	for _, k := range r.SourceRuns {
		c.printf("kept: run %s is in no index, but %s was made from it\n", k.Run.Short(), k.UsedBy.Short())
	}
	for _, l := range r.Leases {
		c.printf("kept: everything newer than %s: run %s is being written by process %d on %s%s\n", l.Started.Format(time.RFC3339), l.Run, l.PID, l.Host, unknownText(l))
	}
	c.printf("needed: %d blobs, %s; too young: %d blobs, %s (grace period %s)\n", r.Kept, schemas.Size(r.KeptBytes), r.Young, schemas.Size(r.YoungBytes), r.Grace)
	if r.Applied {
		c.printf("deleted: %d blobs, %s\n", len(r.Garbage), schemas.Size(r.GarbageBytes))
		return nil
	}
	c.printf("garbage: %d blobs, %s", len(r.Garbage), schemas.Size(r.GarbageBytes))
	if len(r.Garbage) > 0 {
		c.printf("; nothing was deleted: `assay gc --yes` does it")
	}
	c.printf("\n")
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func pathText(g archive.Garbage) string {
	if g.Files > 1 {
		return fmt.Sprintf("%s (and %d more)", g.Path, g.Files-1)
	}
	return dash(g.Path)
}

func unknownText(l archive.LeaseInfo) string {
	if l.State != archive.LeaseUnknown {
		return ""
	}
	return ", of which nobody can tell from here whether it is alive; if that machine or container is gone for good, remove " + l.File
}
