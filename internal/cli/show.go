package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/schemas"
)

type showDoc struct {
	Digest schemas.Digest      `json:"digest"`
	Tags   []string            `json:"tags"`
	Report schemas.Report      `json:"report"`
	Files  []schemas.TreeEntry `json:"files,omitempty"`
}

func showCommand() *command {
	return &command{
		name: "show", args: "REF", summary: "print the report of a run", minArgs: 1, maxArgs: 1,
		details: "REF is a digest or a unique prefix of one, a tag, latest, latest:EXPERIMENT, or\na path to an OCI layout, a tar of one, or an extracted run, or\noci://HOST/REPOSITORY:TAG, which is fetched first.",
		example: "assay show latest",
		flags:   []cli.Flag{&cli.BoolFlag{Name: "files", Usage: "list the files of the run"}, &cli.StringFlag{Name: "view", Usage: "fold the records by the definitions of `TOOL`: vllm, sglang, aiperf, guidellm, aegaeon"}, plainHTTPFlag()},
		run:     runShow,
	}
}

func runShow(c *call) error {
	ref, err := c.resolve(c.Args().First())
	if err != nil {
		return err
	}
	run, err := c.readRun(ref)
	if err != nil {
		return err
	}
	if c.IsSet("view") {
		return c.showView(run, c.String("view"))
	}
	doc := showDoc{Digest: run.Digest, Report: run.Report}
	if ref.Place == "" {
		if doc.Tags, err = c.tags(run.Digest); err != nil {
			return err
		}
	}
	if c.Bool("files") {
		doc.Files = run.Files.Entries
	}
	if c.asJSON {
		return c.printJSON(doc)
	}
	if c.Bool("files") {
		return writeFiles(c.stdout, doc.Files)
	}
	c.printf("%s", reportText(doc.Report))
	c.printf("\n%s", hostText(doc.Report))
	c.printf("digest     %s\n", doc.Digest)
	if len(doc.Tags) > 0 {
		c.printf("tags       %s\n", strings.Join(doc.Tags, " "))
	}
	return nil
}

func (c *call) tags(d schemas.Digest) ([]string, error) {
	s, err := c.store()
	if errors.Is(err, archive.ErrNotStore) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tags, err := tagsOf(c.ctx, s, d)
	if errors.Is(err, archive.ErrIndex) {
		return nil, nil // named by its full digest, the run is there; fsck tells of the index
	}
	return tags, err
}

// writeFiles lists files as a table does, but row by row: there may be a million.
func writeFiles(w io.Writer, files []schemas.TreeEntry) error {
	size, digest := len("bytes"), len("sha256")
	for _, e := range files {
		if e.Kind == schemas.EntryFile {
			size, digest = max(size, len(strconv.FormatInt(e.Size, 10))), max(digest, len(e.Digest.Short()))
		}
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%*s  %-*s  path\n", size, "bytes", digest, "sha256")
	for _, e := range files {
		switch e.Kind {
		case schemas.EntryFile:
			fmt.Fprintf(out, "%*d  %-*s  %s\n", size, e.Size, digest, e.Digest.Short(), safeName(e.Path))
		case schemas.EntrySymlink:
			fmt.Fprintf(out, "%*s  %-*s  %s -> %s\n", size, "-", digest, "link", safeName(e.Path), safeName(e.Target))
		}
	}
	return out.Flush()
}

func hostText(rep schemas.Report) string {
	env := rep.Environment
	var b strings.Builder
	fmt.Fprintf(&b, "host       %s, %s %s %s, %d CPUs (%s), %s\n", env.Host, env.OS, env.Kernel, env.Arch, env.CPUs, env.CPUModel, schemas.Size(env.MemoryBytes))
	for _, a := range env.Accelerators {
		fmt.Fprintf(&b, "device %-3d %s %s %s\n", a.Index, a.Name, a.Memory, a.Driver)
	}
	fmt.Fprintf(&b, "made by    assay %s (%s)\n", env.Tool.Version, env.Tool.Revision)
	for _, s := range rep.Sources {
		fmt.Fprintf(&b, "source run %s (%s)\n", s.Digest, s.Reference)
	}
	fmt.Fprintf(&b, "files      %d, %s\n", rep.Files.Count, schemas.Size(rep.Files.Bytes))
	return b.String()
}
