package foundry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"assay/internal/foundry"
	"assay/schemas"
)

// The modes of Registered.
const (
	Save = "save"
	Load = "load"
)

// Registered is what a configuration registers, and so what an archive has to hold. Nil
// is unknown, and what rests on it is unknown then too.
type Registered struct {
	// Mode is Save, Load, or "" to look at an archive for itself.
	Mode   string
	Models []string
	// Ranks is the number of ranks that decode.
	Ranks      *int
	BatchSizes []int
	// The bucket and the memory layout.
	SeqLenBucket                                   *int
	BaseAddress, RegionSizeBytes, ScratchSizeBytes *uint64
	// GPUMemoryBytes is that of one GPU; without it its check is left out.
	GPUMemoryBytes *uint64
	// Proven says that the archive was loaded and replayed since it was saved, as a
	// validated run shows. What folders and names do not tell is information then.
	Proven bool
	// Saved is what a record beside the archive says that it was saved with, and Files
	// are those that it lists, by their paths in the folder. Catalogs need neither.
	Saved *foundry.Spec
	Files []foundry.File
}

// Check reads a folder of archives, which fsys must not leave (os.Root.FS), and holds it
// against the rules and against what is registered.
func Check(ctx context.Context, subject string, fsys fs.FS, want Registered) []schemas.Finding {
	a, err := foundry.Describe(ctx, fsys)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c := &checker{subject: subject}
		c.add(prefix+foundry.Unreadable, unknown, "", "%v", err)
		return c.findings
	}
	if err != nil {
		a.Layout = foundry.LayoutEmpty
	}
	return Judge(subject, a, want)
}

// Judge is Check for an archive that was read before.
func Judge(subject string, a foundry.Archive, want Registered) []schemas.Finding {
	c := &checker{subject: subject, a: a, want: want}
	if !c.folder() {
		return c.findings
	}
	for _, p := range a.Problems {
		c.problem(p)
	}
	for _, check := range []func(*checker){alignment, inventory, form, addresses, offsets} {
		check(c)
	}
	if want.Mode == Load {
		for _, check := range []func(*checker){registered, covered, savedWith} {
			check(c)
		}
	}
	c.passes()
	return c.findings
}

// maxFindings bounds what is told of one folder.
const maxFindings = 200

type checker struct {
	subject  string
	a        foundry.Archive
	want     Registered
	findings []schemas.Finding
}

// add names the file, what is wrong and what to do.
func (c *checker) add(id string, severity schemas.Severity, at, format string, args ...any) {
	if len(c.findings) >= maxFindings {
		return
	}
	if severity == unknown && c.want.Proven && id != prefix+foundry.Unreadable {
		severity = schemas.SeverityInfo
	}
	message := fmt.Sprintf(format, args...)
	if at != "" {
		message = at + ": " + message
	}
	f := schemas.Finding{ID: id, Severity: severity, Subject: c.subject, Path: at, Message: message}
	if severity != schemas.SeverityPass && severity != schemas.SeverityInfo {
		f.Remedy = remedyOf(id)
	}
	c.findings = append(c.findings, f)
}

func (c *checker) problem(p foundry.Problem) {
	severity := bad
	switch p.Kind {
	case foundry.Unreadable:
		severity = unknown
	case foundry.StateDiffers:
		severity = doubtful
	}
	c.add(prefix+p.Kind, severity, p.Path, "%s", p.Text)
}

func (c *checker) found(id string) bool {
	return slices.ContainsFunc(c.findings, func(f schemas.Finding) bool { return f.ID == id })
}

// folder says whether there is anything more to look at: saving wants an empty folder,
// everything else one that is not. A folder whose files cannot be told is not empty.
func (c *checker) folder() bool {
	empty := c.a.Layout == foundry.LayoutEmpty && len(c.a.Problems) == 0
	switch {
	case c.want.Mode == Save && empty:
		c.add("foundry.save-folder", schemas.SeverityPass, "", "the folder is empty, or not there yet")
	case c.want.Mode == Save:
		c.add("foundry.save-folder", bad, "", "the folder is not empty: it has %d files, and saving wants a new one", len(c.a.Files))
	case empty:
		c.add("foundry.load-folder", bad, "", "there is no archive: the folder is missing or empty")
	default:
		return true
	}
	return false
}

// passes tells what was looked at and held.
func (c *checker) passes() {
	graphs, ranks := 0, 0
	for _, m := range c.a.Models {
		ranks += len(m.Ranks)
		for _, r := range m.Ranks {
			graphs += len(r.Graphs)
		}
	}
	if graphs == 0 {
		c.none()
		return
	}
	pass := func(what string, ids ...string) {
		if !slices.ContainsFunc(ids, func(id string) bool { return c.found(prefix + id) }) {
			c.add(prefix+ids[0], schemas.SeverityPass, "", "%s", what)
		}
	}
	pass(fmt.Sprintf("%d graphs are there as .json and .cugraph, and both agree", graphs), foundry.Pair, foundry.BadGraph, foundry.BadPacked, foundry.Differs, foundry.BadJSON)
	pass(fmt.Sprintf("manifests of %d ranks have every graph in exactly one group", ranks), foundry.BadGroup, foundry.BadManifest)
	pass(fmt.Sprintf("packed binaries of %d ranks agree, and have every kernel that is launched", ranks), foundry.BadBinaries, foundry.BadImages, foundry.BadEntries, foundry.NoKernel)
}

// none is for a folder in which no graph was found.
func (c *checker) none() {
	if !c.found("foundry.layout") {
		c.add("foundry.layout", unknown, "", "no graph was found in %d files", len(c.a.Files))
	}
}
