package cli

import (
	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/schemas"
)

type fsckDoc struct {
	Store string `json:"store"`
	archive.FsckReport
}

func fsckCommand() *command {
	return &command{
		name: "fsck", summary: "check the whole store, and with --repair mend it",
		details: "Hashes every blob, and compares the index, the record index, journals, leases and\ntemporary files with what is there. Nothing is changed without --repair. With it,\nwrong blobs are moved to assay/quarantine in the store and never deleted, what dead\nprocesses left is removed, the record index and, if it is lost or damaged,\nindex.json are made anew from the blobs, and what index.json says of a run is made\nwhat the run says. A store that no other command opens is mended too, if only\nassay/format.json is damaged or something stands in the place of a folder.\nExit code 0: sound; 4: something is wrong, or was before the repair.",
		example: "assay fsck && assay fsck --repair",
		flags:   []cli.Flag{&cli.BoolFlag{Name: "repair", Usage: "mend what can be mended"}},
		run:     runFsck,
	}
}

func runFsck(c *call) error {
	s, err := archive.OpenDamaged(c.storeDir())
	if err != nil {
		return storeError(err)
	}
	ctx, done := c.showing()
	r, err := s.Fsck(ctx, archive.FsckOptions{Repair: c.Bool("repair")})
	done()
	if err != nil {
		return err
	}
	code := ExitOK
	if !r.Sound {
		code = ExitUnverified
	}
	if c.asJSON {
		if err := c.printJSON(fsckDoc{s.Dir(), r}); err != nil {
			return err
		}
		return exitWith(code)
	}
	for _, f := range r.Findings {
		c.printf("%s", findingText(f, ""))
	}
	for _, done := range r.Repaired {
		c.printf("repaired: %s\n", done)
	}
	verdict := "sound"
	if !r.Sound {
		verdict = "damaged"
		if c.Bool("repair") {
			verdict = "was damaged: check it again"
		}
	}
	c.printf("%s: %s (%d runs, %d records; %d blobs, %s)\n", s.Dir(), verdict, r.Runs, r.Records, r.Blobs, schemas.Size(r.Bytes))
	return exitWith(code)
}
