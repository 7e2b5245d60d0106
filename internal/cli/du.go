package cli

import (
	"strings"

	"assay/archive"
	"assay/schemas"
)

type duDoc struct {
	Store string `json:"store"`
	archive.Usage
}

func duCommand() *command {
	return &command{
		name: "du", summary: "show what each run costs on disk",
		details: "Unique bytes belong to one run alone: `assay rm` and then `assay gc` free them.\nShared bytes are used by other runs too, and are on disk once. Runs with the most\nunique bytes come first.",
		example: "assay du --format json",
		run:     runDu,
	}
}

func runDu(c *call) error {
	s, err := c.openStore()
	if err != nil {
		return err
	}
	ctx, done := c.showing()
	u, err := s.Usage(ctx)
	done()
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(duDoc{s.Dir(), u})
	}
	if len(u.Runs) > 0 {
		t := newTable("digest", "run", "experiment", "unique", "shared", "total", "tags").right(3, 4, 5)
		for _, r := range u.Runs {
			tags := strings.Join(r.Tags, " ")
			if !r.Listed {
				tags = "(removed; a source run of another)"
			}
			t.row(r.Digest.Short(), r.ID, r.Experiment, schemas.Size(r.UniqueBytes).String(), schemas.Size(r.SharedBytes).String(), schemas.Size(r.Bytes).String(), tags)
		}
		c.printf("%s\n", t)
	}
	for _, f := range u.Findings {
		c.printf("%s", findingText(f, ""))
	}
	c.printf("store: %s in %d blobs: %s unique, %s shared, %s of no run\n", schemas.Size(u.Bytes), u.Blobs, schemas.Size(u.UniqueBytes), schemas.Size(u.SharedBytes), schemas.Size(u.OtherBytes))
	if u.Quarantine > 0 {
		c.printf("quarantine: %s\n", schemas.Size(u.Quarantine))
	}
	return nil
}
