package cli

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/internal/foundry"
	checks "assay/preflight/foundry"
	"assay/schemas"
)

func foundryCommand() *command {
	return &command{
		name: "foundry", args: "inspect DIR|REF[:PATH]", summary: "print what an archive of CUDA graphs holds, and what is wrong with it", minArgs: 2, maxArgs: 2,
		details: "Reads every file of a folder of archives: models, ranks, graphs, batch sizes,\nkernels, addresses. REF is a run that saved or validated graphs; PATH is a folder\nin it (`assay show REF --files`), and is found where there is only one. No GPU is\nneeded. Exit code 3 on a problem, or on something that could not be told.",
		example: "assay foundry inspect ./archive --format json",
		flags:   []cli.Flag{plainHTTPFlag()},
		run:     runFoundry,
	}
}

func runFoundry(c *call) error {
	if verb := c.Args().First(); verb != "inspect" {
		return usagef("foundry %s: want `assay foundry inspect DIR`", verb)
	}
	name := c.Args().Get(1)
	dir, err := c.graphFolder(name)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return withCode(ExitUsage, err)
	}
	defer root.Close()
	a, err := foundry.Describe(c.ctx, root.FS())
	if err != nil {
		return err
	}
	findings := checks.Judge("archive "+name, a, checks.Registered{})
	doc := inspection(name, a, findings)
	if c.asJSON {
		if err := c.printJSON(doc); err != nil {
			return err
		}
	} else {
		c.printf("%s", inspectionText(doc))
	}
	if blocking(findings, nil) {
		return exitWith(ExitRefused)
	}
	return nil
}

// graphFolder is where the archives lie: the folder of that name, else one of a run,
// which is laid out for the time being.
func (c *call) graphFolder(name string) (string, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() && !isThere(filepath.Join(name, "oci-layout")) && !isThere(filepath.Join(name, "assay-manifest.json")) {
		return name, nil
	}
	ref, sub, err := c.runAndPath(name)
	if err != nil {
		return "", err
	}
	run, err := c.readRun(ref)
	if err != nil {
		return "", err
	}
	if sub, err = graphsOf(run, sub); err != nil {
		return "", err
	}
	if ref.Folder != "" {
		return filepath.Join(ref.Folder, filepath.FromSlash(sub)), nil
	}
	tmp, err := c.tempFolder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(tmp, "archive")
	return dir, run.Materialize(c.ctx, sub, dir)
}

// runAndPath splits REF:PATH at the last colon when the whole is no reference.
func (c *call) runAndPath(name string) (archive.Ref, string, error) {
	ref, err := c.resolve(name)
	if err == nil {
		return ref, "", nil
	}
	i := strings.LastIndexByte(name, ':')
	if i <= 0 {
		return ref, "", err
	}
	ref, second := c.resolve(name[:i])
	if second != nil {
		return ref, "", err
	}
	return ref, name[i+1:], nil
}

// graphsOf is the folder of archives in a run: the one that is named, that of the
// validated run, or the only one there is.
func graphsOf(run *archive.Run, sub string) (string, error) {
	if sub != "" {
		if sub = path.Clean(sub); !fs.ValidPath(sub) || !slices.ContainsFunc(run.Files.Entries, func(e schemas.TreeEntry) bool { return strings.HasPrefix(e.Path, sub+"/") }) {
			return "", usagef("run %s has no folder %s: `assay show %s --files` lists its paths", run.Digest.Short(), sub, run.Digest.Short())
		}
		return sub, nil
	}
	var found []string
	for _, e := range run.Files.Entries {
		rank := path.Dir(e.Path)
		if base := path.Base(e.Path); base != foundry.ManifestFile && base != foundry.ImagesFile {
			continue
		}
		if dir := path.Dir(path.Dir(rank)); !slices.Contains(found, dir) {
			found = append(found, dir)
		}
	}
	if v := validatedFolder(run); v != "" {
		found = slices.DeleteFunc(found, func(dir string) bool { return !strings.HasPrefix(dir, v+"/") })
	}
	switch len(found) {
	case 0:
		return "", usagef("run %s has no archives of graphs: name one of aegaeon/foundry-save, or a folder", run.Digest.Short())
	case 1:
		return found[0], nil
	}
	return "", usagef("run %s has several folders of archives: name one as REF:PATH, of %s", run.Digest.Short(), strings.Join(found, ", "))
}
