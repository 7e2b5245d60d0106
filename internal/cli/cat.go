package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/schemas"
)

// maxCatJSON bounds what is put into one JSON document.
const maxCatJSON = 64 << 20

type catDoc struct {
	Run     schemas.Digest `json:"run"`
	Path    string         `json:"path"`
	Bytes   int            `json:"bytes"`
	Content *string        `json:"content,omitempty"` // when it is UTF-8 text
	Base64  []byte         `json:"content_base64,omitempty"`
}

func catCommand() *command {
	return &command{
		name: "cat", args: "REF PATH", summary: "print a file of a run", minArgs: 2, maxArgs: 2,
		details: "PATH is a path of the file list (`assay show REF --files`), or report.json,\nexperiment.json, experiment.toml, assay-run.json, assay-files.json or\nassay-manifest.json. Bytes are checked while they are printed; wrong ones end\nwith exit code 4.",
		example: "assay cat latest report.json",
		flags:   []cli.Flag{plainHTTPFlag()},
		run:     runCat,
	}
}

func runCat(c *call) (err error) {
	run, err := c.openRun(c.Args().Get(0))
	if err != nil {
		return err
	}
	name := c.Args().Get(1)
	f, err := run.OpenFile(c.ctx, name)
	var corrupt *archive.CorruptError
	if errors.As(err, &corrupt) {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return withCode(ExitUsage, fmt.Errorf("%w%s", err, nearestPath(run.Files, name)))
	}
	if err != nil {
		return withCode(ExitUsage, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if !c.asJSON {
		_, err := io.Copy(c.stdout, f)
		return err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxCatJSON+1))
	if err != nil {
		return err
	}
	if len(b) > maxCatJSON {
		return usagef("%s has more than %d bytes: use --format text", name, maxCatJSON)
	}
	doc := catDoc{Run: run.Digest, Path: name, Bytes: len(b)}
	if utf8.Valid(b) {
		s := string(b)
		doc.Content = &s
	} else {
		doc.Base64 = b
	}
	return c.printJSON(doc)
}

func nearestPath(files schemas.Tree, name string) string {
	var paths []string
	for _, e := range files.Entries {
		if e.Kind == schemas.EntryFile {
			paths = append(paths, e.Path)
		}
	}
	if near := schemas.Nearest(name, paths); near != "" {
		return " (did you mean " + near + "?)"
	}
	return ": `assay show REF --files` lists the paths"
}
