package cli

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"assay/internal/durable"
)

//go:embed starter.toml
var starter []byte

const (
	starterName = "experiment.toml"
	ignoreLine  = ".assay/"
)

func initCommand() *command {
	return &command{
		name: "init", args: "[DIR]", summary: "write a commented starter experiment", maxArgs: 1,
		details: "Writes " + starterName + " and adds the store to .gitignore. A file that is there is\nleft as it is.",
		example: "assay init mine && assay run mine/" + starterName,
		run:     runInit,
	}
}

type initDoc struct {
	Dir   string    `json:"dir"`
	Files []initOne `json:"files"`
}

type initOne struct {
	Path   string `json:"path"`
	Action string `json:"action"` // written, extended, kept
}

func runInit(c *call) error {
	dir := c.Args().First()
	if dir == "" {
		dir = "."
	}
	if err := durable.MkdirAll(dir); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	doc := initDoc{Dir: dir}
	path := filepath.Join(dir, starterName)
	action := "kept"
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		action = "written"
		if err := durable.WriteFile(path, starter, 0o644); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	doc.Files = append(doc.Files, initOne{path, action})
	ignore := filepath.Join(dir, ".gitignore")
	action, err := addIgnore(ignore)
	if err != nil {
		return err
	}
	doc.Files = append(doc.Files, initOne{ignore, action})
	if c.asJSON {
		return c.printJSON(doc)
	}
	for _, f := range doc.Files {
		c.printf("%-8s %s\n", f.Action, f.Path)
	}
	c.printf("next:    assay run %s\n", path)
	return nil
}

// maxIgnore is more than anybody writes into a .gitignore.
const maxIgnore = 1 << 20

func readIgnore(path string) ([]byte, error) {
	f, err := durable.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxIgnore+1))
	if err == nil && len(b) > maxIgnore {
		err = fmt.Errorf("%s has more than %d bytes: add %s to it by hand", path, maxIgnore, ignoreLine)
	}
	return b, err
}

// addIgnore adds the store to a .gitignore, unless a line of it says so already.
func addIgnore(path string) (action string, err error) {
	old, err := readIgnore(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "written", durable.WriteFile(path, []byte(ignoreLine+"\n"), 0o644)
	}
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(old)) {
		switch strings.Trim(strings.TrimSpace(line), "/") {
		case ".assay":
			return "kept", nil
		}
	}
	if len(old) > 0 && !bytes.HasSuffix(old, []byte("\n")) {
		old = append(old, '\n')
	}
	return "extended", durable.WriteFile(path, append(old, ignoreLine+"\n"...), 0o644)
}
