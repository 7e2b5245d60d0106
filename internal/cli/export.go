package cli

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/schemas"
)

type exportDoc struct {
	Run schemas.Digest `json:"run"`
	As  string         `json:"as"`
	Out string         `json:"out"`
	Tag string         `json:"tag,omitempty"`
	archive.Saved
}

func exportCommand() *command {
	return &command{
		name: "export", args: "REF --as FORM --out FILE", summary: "write a run in another form", minArgs: 1, maxArgs: 1,
		details: "tar: one file with an OCI layout that holds exactly the run and the runs it was\nmade from. FILE is a reference too: `assay verify FILE`, show, cat and extract take\nit, and so do other OCI tools. Named by a tag, the run has that tag in it. The same\nrun and tag give the same bytes. FILE must not exist; it appears at the end, whole.\n\nvllm: the JSON that vLLM's benchmark saves, its numbers recomputed by its definitions\nfrom the request records; of several measure stages one object a line, or --node.\ncsv: one row a request; an empty cell is a number that does not exist.",
		example: "assay export baseline --as tar --out baseline.tar && assay verify ./baseline.tar",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "as", Usage: "`FORM`: tar, vllm, csv"},
			&cli.StringFlag{Name: "node", Usage: "for vllm and csv: only this measure stage, like measure@t001"},
			&cli.StringFlag{Name: "out", Usage: "`FILE` to write"},
			plainHTTPFlag(),
		},
		run: runExport,
	}
}

func runExport(c *call) error {
	as := c.String("as")
	switch as {
	case "tar", "vllm", "csv":
	case "":
		return usagef("--as is missing: want `assay export REF --as tar --out FILE`")
	default:
		return usagef("--as %q: want tar, vllm or csv", as)
	}
	out := c.String("out")
	if out == "" {
		return usagef("--out is missing: name the FILE to write")
	}
	ref, err := c.resolve(c.Args().First())
	if err != nil {
		return err
	}
	if as != "tar" {
		run, err := c.readRun(ref)
		if err != nil {
			return err
		}
		return c.exportRecords(run, as, out)
	}
	if c.IsSet("node") {
		return usagef("--node is for --as vllm and csv: a tar holds the whole run")
	}
	if ref.Folder != "" {
		return usagef("%s is an extracted run, which has no blobs: name it in a store, a layout or a tar", ref.Name)
	}
	tag, err := c.tagGiven(ref)
	if err != nil {
		return err
	}
	ctx, done := c.showing()
	saved, err := ref.SaveTar(ctx, tag, out)
	done()
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s exists: name a file that does not exist yet", out)
	}
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(exportDoc{ref.Digest, "tar", out, tag, saved})
	}
	c.printf("exported %s to %s: %d runs, %d blobs, %s\n", ref.Digest.Short(), out, len(saved.Runs), saved.Blobs, schemas.Size(saved.Bytes))
	for _, d := range saved.Missing {
		c.printf("warning: source run %s is not there, so it is not in the file\n", d)
	}
	return nil
}

// tagGiven is the tag by which the run was named, "" for another sort of name.
func (c *call) tagGiven(ref archive.Ref) (string, error) {
	l := ref.Layout()
	if l == nil {
		return "", nil
	}
	runs, err := l.Runs(c.ctx)
	if errors.Is(err, archive.ErrIndex) {
		return "", nil // named by its full digest
	}
	if err != nil {
		return "", err
	}
	for _, r := range runs {
		if r.Digest == ref.Digest && slices.Contains(r.Tags, ref.Name) {
			return ref.Name, nil
		}
	}
	return "", nil
}
