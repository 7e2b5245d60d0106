package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"assay/schemas"
)

type extractDoc struct {
	Run   schemas.Digest `json:"run"`
	Dir   string         `json:"dir"`
	Files int            `json:"files"`
	Bytes int64          `json:"bytes"`
}

func extractCommand() *command {
	return &command{
		name: "extract", args: "REF DIR", summary: "write a whole run to a folder", minArgs: 2, maxArgs: 2,
		details: "DIR must not exist or be empty; it appears at the end, whole. The folder is a\nreference too: `assay verify DIR` checks it.",
		example: "assay extract latest ./out && assay verify ./out",
		flags:   []cli.Flag{plainHTTPFlag()},
		run:     runExtract,
	}
}

func runExtract(c *call) error {
	dir := c.Args().Get(1)
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return usagef("%s is not empty: name a folder that does not exist yet", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return withCode(ExitUsage, err)
	}
	run, err := c.openRun(c.Args().Get(0))
	if err != nil {
		return err
	}
	ctx, done := c.showing()
	err = run.Extract(ctx, dir)
	done()
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("extract: %w", err)
	}
	doc := extractDoc{Run: run.Digest, Dir: abs}
	doc.Files, doc.Bytes = schemas.SumEntries(run.Files.Entries)
	if c.asJSON {
		return c.printJSON(doc)
	}
	c.printf("extracted %s: %d files, %s, to %s\n", run.Digest.Short(), doc.Files, schemas.Size(doc.Bytes), dir)
	return nil
}
