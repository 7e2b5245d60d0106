package cli

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"assay/archive"
	"assay/archive/remote"
	"assay/pipeline"
	"assay/preflight"
	"assay/preflight/foundry"
	"assay/preflight/source"
	"assay/schemas"
)

// sourceRun is an earlier run, verified and laid out as files.
type sourceRun struct {
	run schemas.SourceRun
	// dir is the folder that paths of the run are relative to, paths the places of
	// those that lie elsewhere, archives the folder of its engine archives.
	dir      string
	paths    map[string]string
	archives string
	findings []schemas.Finding
	clean    []func() error
}

// found are the findings about it, none without one.
func (s *sourceRun) found() []schemas.Finding {
	if s == nil {
		return nil
	}
	return s.findings
}

func (s *sourceRun) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, f := range slices.Backward(s.clean) {
		errs = append(errs, f())
	}
	s.clean = nil
	return errors.Join(errs...)
}

// openSource verifies the run that --source-run names and lays it out in a
// temporary folder. One that is missing, or that the experiment needs and nobody
// names, refuses the run. A validated run of another tool becomes one of the store
// when adopt is set, and is only checked otherwise.
func (c *call) openSource(l *loaded, adopt bool) (_ *sourceRun, err error) {
	name, consumed := c.String("source-run"), l.consumed()
	if name == "" {
		if len(consumed) == 0 {
			return nil, nil
		}
		return nil, refusal("source.missing", "source run", "the experiment reads "+strings.Join(consumed, ", ")+" of an earlier run", missingRemedy(consumed))
	}
	s := &sourceRun{paths: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	foreign, err := c.foreign(s, name)
	if err != nil {
		return nil, err
	}
	if foreign != "" && !adopt {
		return s, c.useFolder(l, s, foreign, name, consumed)
	}
	ref, err := c.sourceReference(s, name, foreign)
	if err != nil {
		return nil, err
	}
	run, err := c.verifiedSource(ref, name)
	if err != nil {
		return nil, err
	}
	if err := c.lineage(s, run, 0, map[schemas.Digest]bool{run.Digest: true}); err != nil {
		return nil, err
	}
	s.run = schemas.SourceRun{Reference: name, Digest: run.Digest, Consumed: consumed}
	return s, c.layOut(l, s, ref, run)
}

// missingRemedy says which run is meant where the experiment's paths tell.
func missingRemedy(consumed []string) string {
	if slices.Contains(consumed, schemas.ValidatedConfig) {
		return "make a validated run with `assay run aegaeon/foundry-save --tag foundry` and name it with --source-run foundry; or name the folder of one (report.json and " + schemas.ValidatedConfig + ")"
	}
	return "name the run with --source-run REF"
}

// sourceReference is the run to use: adopted from a folder of another tool, or found
// as every other reference.
func (c *call) sourceReference(s *sourceRun, name, foreign string) (archive.Ref, error) {
	if foreign != "" {
		return c.adopt(s, foreign, name)
	}
	if len(s.clean) > 0 && s.dir != "" { // a tar of an extracted run, unpacked
		return archive.ResolvePath(c.ctx, s.dir)
	}
	ref, err := c.resolveSource(name)
	if err != nil {
		return ref, noSource(name, err)
	}
	return ref, nil
}

// verifiedSource reads every byte of the run and refuses one that is not whole, or did
// not pass.
func (c *call) verifiedSource(ref archive.Ref, name string) (*archive.Run, error) {
	verdict, err := ref.Verify(c.ctx)
	if err != nil {
		return nil, err
	}
	if verdict.Verdict != archive.Valid {
		return nil, refusal("source.invalid", "source run "+name, "it is "+verdict.Verdict+firstFinding(verdict.Findings), "`assay verify "+name+"` says more; use an intact copy")
	}
	run, err := c.readRun(ref)
	if err != nil {
		return nil, err
	}
	if run.Config.Status != schemas.RunPassed {
		return nil, refusal("source.status", "source run "+name, fmt.Sprintf("it %s: what it left proves nothing", run.Config.Status), "`assay show "+name+"` says why; name a run that passed")
	}
	return run, nil
}

// maxLineage bounds how far source runs of source runs are followed.
const maxLineage = 16

// lineage verifies the runs that a source run was made from, as far as the store has
// them.
func (c *call) lineage(s *sourceRun, run *archive.Run, depth int, seen map[schemas.Digest]bool) error {
	for _, earlier := range run.Config.Sources {
		subject := "source run " + earlier.Reference + " of run " + run.Digest.Short()
		f := schemas.Finding{ID: "source.lineage", Severity: schemas.SeverityWarning, Subject: subject, Blob: earlier.Digest, Remedy: "pull or copy that run into the store to have it checked"}
		if seen[earlier.Digest] || depth >= maxLineage {
			return refusal("source.lineage", subject, "source runs lead in a circle, or further than "+fmt.Sprint(maxLineage), "name a run whose sources end")
		}
		store, err := c.existing()
		if err != nil {
			return err
		}
		if store == nil || !inStore(c, store, earlier.Digest) {
			f.Message = fmt.Sprintf("%s is not in the store: it could not be followed", earlier.Digest)
			s.findings = append(s.findings, f)
			continue
		}
		ref, err := store.Resolve(c.ctx, string(earlier.Digest))
		if err != nil {
			return err
		}
		before, err := c.verifiedSource(ref, string(earlier.Digest))
		if err != nil {
			return err
		}
		seen[earlier.Digest] = true
		if err := c.lineage(s, before, depth+1, seen); err != nil {
			return err
		}
		delete(seen, earlier.Digest)
	}
	return nil
}

func inStore(c *call, store *archive.Store, d schemas.Digest) bool {
	runs, err := store.Runs(c.ctx)
	return err == nil && slices.ContainsFunc(runs, func(r archive.RunInfo) bool { return r.Digest == d })
}

// noSource is the error for a source run that was not found: one that a registry
// does not have, or has damaged, refuses the run; a registry that cannot be reached
// says nothing about it.
func noSource(name string, err error) error {
	switch code := exitCode(err); {
	case code == ExitInterrupted:
		return err
	case !remote.IsReference(name):
		return refusal("source.missing", "source run "+name, err.Error(), "`assay ls` lists the runs of the store; or give a path to a layout, a tar, an extracted run, or the folder of a validated run")
	case code == ExitInfra:
		return fmt.Errorf("source run %w: when it can be reached, `assay pull` keeps the run in the store, where it is found without the registry", err)
	case code == ExitUnverified:
		return refusal("source.invalid", "source run "+name, err.Error(), "`assay verify "+name+"` says more; push it again from a store that has it whole")
	}
	return refusal("source.missing", "source run "+name, err.Error(), "look at the repository, the tag or the digest; `assay push` brings a run there")
}

func firstFinding(findings []schemas.Finding) string {
	if len(findings) == 0 {
		return ""
	}
	f := findings[0]
	place := firstText(f.Path, string(f.Blob))
	if place == "" || strings.Contains(f.Message, place) {
		return ": " + f.Message
	}
	return ": " + place + ": " + f.Message
}

// layOut finds what is consumed in the run and writes it out once for all trials.
func (c *call) layOut(l *loaded, s *sourceRun, ref archive.Ref, run *archive.Run) error {
	s.run.Validated = validatedFolder(run)
	inRun, err := s.place(ref, run)
	if err != nil {
		return err
	}
	if s.run.Files, err = consumedFiles(run, inRun, s.run); err != nil {
		return err
	}
	tmp := func() (string, error) {
		dir, err := os.MkdirTemp("", "assay-source-")
		if err != nil {
			return "", fmt.Errorf("lay out source run: %w", err)
		}
		s.clean = append(s.clean, func() error { return os.RemoveAll(dir) })
		return filepath.Join(dir, "run"), nil
	}
	switch {
	case ref.Folder != "":
		if s.dir, err = filepath.Abs(ref.Folder); err != nil {
			return err
		}
	case len(inRun) > 0 && s.run.Validated != "" && onlyBelow(inRun, s.run.Validated):
		// The rest of the run may be large and is not asked for.
		if s.dir, err = tmp(); err != nil {
			return err
		}
		if err := run.Materialize(c.ctx, s.run.Validated, filepath.Join(s.dir, filepath.FromSlash(s.run.Validated))); err != nil {
			return err
		}
	default:
		if s.dir, err = tmp(); err != nil {
			return err
		}
		if err := run.Extract(c.ctx, s.dir); err != nil {
			return err
		}
	}
	for name, p := range inRun {
		s.paths[name] = filepath.Join(s.dir, filepath.FromSlash(p))
	}
	if s.run.Validated == "" {
		return nil
	}
	return c.checkValidated(l, s, filepath.Join(s.dir, filepath.FromSlash(s.run.Validated)), s.run.Reference)
}

// validatedFolder is the folder of the validated run in a run, "" when it has none or
// several.
func validatedFolder(run *archive.Run) string {
	found := ""
	for _, r := range run.Config.Records {
		for _, o := range r.Record.Outputs {
			if o.Name != schemas.ValidatedOutput || !schemas.GivesValidated(r.Record.Kind) || r.Record.Status != schemas.StagePassed {
				continue
			}
			if found != "" {
				return ""
			}
			found = path.Join(r.Path, o.Path)
		}
	}
	return found
}

// place gives for each path that is consumed where it is in the run: as named, or below
// the folder of the validated run.
func (s *sourceRun) place(ref archive.Ref, run *archive.Run) (map[string]string, error) {
	known := map[string]bool{}
	for _, e := range run.Files.Entries {
		known[e.Path] = true
	}
	inRun := map[string]string{}
	for _, p := range s.run.Consumed {
		below := path.Join(s.run.Validated, p)
		_, err := run.Document(p)
		switch {
		case known[p], err == nil:
			inRun[p] = p
		case s.run.Validated != "" && known[below]:
			inRun[p] = below
		default:
			return nil, refusal("source.path", "source run "+ref.Name, "it has no "+p, noPathRemedy(ref.Name, p))
		}
	}
	return inRun, nil
}

func noPathRemedy(name, p string) string {
	if p == schemas.ValidatedConfig {
		return "name a run of aegaeon/foundry-save that passed; `assay show " + name + " --files` lists what this one has"
	}
	return "`assay show " + name + " --files` lists its paths"
}

func onlyBelow(inRun map[string]string, dir string) bool {
	for _, p := range inRun {
		if !strings.HasPrefix(p, dir+"/") {
			return false
		}
	}
	return true
}

// consumedFiles pins what is consumed by content: of a service's configuration, the
// validated folder that it belongs to as well.
func consumedFiles(run *archive.Run, inRun map[string]string, src schemas.SourceRun) ([]schemas.SourceFile, error) {
	var paths []string
	for _, p := range inRun {
		paths = append(paths, p)
	}
	if src.Validated != "" && len(paths) > 0 {
		paths = append(paths, src.Validated)
	}
	slices.Sort(paths)
	var out []schemas.SourceFile
	for _, p := range slices.Compact(paths) {
		f := schemas.SourceFile{Path: p}
		for _, e := range run.Files.Entries {
			if e.Path == p && e.Kind == schemas.EntryFile {
				f.Digest = e.Digest
			}
		}
		if f.Digest == "" {
			if doc, err := run.Document(p); err == nil {
				f.Digest = schemas.DigestOf(doc)
			} else if d, err := schemas.TreeDigest(schemas.SubTree(run.Files.Entries, p)); err == nil {
				f.Digest = d
			} else {
				return nil, fmt.Errorf("source run: %s: %w", p, err)
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// checkValidated holds a validated run's folder against the rules, and its report
// against the experiment and this machine.
func (c *call) checkValidated(l *loaded, s *sourceRun, dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("source run %s: %w", name, err)
	}
	defer root.Close()
	result, err := source.Check(c.ctx, root.FS(), name)
	if err != nil {
		return err
	}
	s.findings = append(s.findings, result.Findings...)
	if result.OK() {
		found, err := c.checkArchives(l, filepath.Join(dir, filepath.FromSlash(result.Report.ArchiveRoot)), name, result.Report)
		if err != nil {
			return err
		}
		s.findings = append(s.findings, found...)
	}
	if result.OK() && l.servesSource() {
		s.findings = append(s.findings, l.configFindings(dir, name, result)...)
		s.findings = append(s.findings, source.Compare(result.Report, name, l.target(c.ctx))...)
	}
	if len(preflight.Refuses(s.findings)) > 0 {
		return &pipeline.RefusedError{Findings: s.findings}
	}
	s.archives = filepath.Join(dir, filepath.FromSlash(result.Report.ArchiveRoot))
	return nil
}

// checkArchives looks into the archives of a validated run that is otherwise in order.
func (c *call) checkArchives(l *loaded, dir, name string, report schemas.Validated) ([]schemas.Finding, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("source run %s: %w", name, err)
	}
	defer root.Close()
	gpu, _ := strconv.ParseUint(l.Machine.Facts["gpu_memory_bytes"], 10, 64)
	found := foundry.Check(c.ctx, "source run "+name+": archives", root.FS(), foundry.OfReport(report, gpu))
	return found, c.ctx.Err()
}

func refusal(id, subject, message, remedy string) error {
	return &pipeline.RefusedError{Findings: []schemas.Finding{{ID: id, Severity: schemas.SeverityError, Subject: subject, Message: message, Remedy: remedy}}}
}
