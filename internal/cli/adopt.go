package cli

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"assay/archive"
	"assay/archive/remote"
	"assay/experiments"
	"assay/pipeline"
	"assay/preflight/source"
	"assay/schemas"
)

// adoptedName is the experiment of runs that hold a validated run of another tool.
const adoptedName = "adopted"

// foreign returns the folder of a validated run that another tool made, "" when name
// is no such thing. A tar is unpacked first; what it holds may be one of our runs,
// which s.dir is then the folder of.
func (c *call) foreign(s *sourceRun, name string) (string, error) {
	if remote.IsReference(name) || c.namesRun(name) {
		return "", nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return "", nil // it is looked for as a reference, whose error says more
	}
	dir := name
	if !info.IsDir() {
		t, err := archive.OpenFolderTar(name)
		if err != nil || t.Has("oci-layout") || !t.Has(source.ReportFile) {
			return "", nil // likewise
		}
		tmp, err := os.MkdirTemp("", "assay-source-")
		if err != nil {
			return "", fmt.Errorf("unpack source run: %w", err)
		}
		s.clean = append(s.clean, func() error { return os.RemoveAll(tmp) })
		dir = filepath.Join(tmp, "run")
		if err := t.Extract(c.ctx, dir); err != nil {
			return "", refusal("source.invalid", "source run "+name, err.Error(), "make the tar again from a folder that is whole")
		}
	}
	switch {
	case isThere(filepath.Join(dir, "assay-manifest.json")):
		if !info.IsDir() {
			s.dir = dir
		}
		return "", nil
	case isThere(filepath.Join(dir, "oci-layout")):
		return "", nil
	case isThere(filepath.Join(dir, source.ReportFile)), isThere(filepath.Join(dir, schemas.ValidatedConfig)):
		return filepath.Abs(dir)
	}
	return "", nil
}

// namesRun says whether a reference is of a run in the store: a tag shadows a folder
// of its name.
func (c *call) namesRun(name string) bool {
	if filepath.IsAbs(name) || name == "" || name[0] == '.' {
		return false
	}
	store, err := c.existing()
	if err != nil || store == nil {
		return false
	}
	ref, err := store.Resolve(c.ctx, name)
	return err == nil && ref.Place == ""
}

func isThere(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

// useFolder checks a folder of another tool where it lies, without keeping anything.
func (c *call) useFolder(l *loaded, s *sourceRun, dir, name string, consumed []string) error {
	if err := c.checkValidated(l, s, dir, name); err != nil {
		return err
	}
	for _, p := range consumed {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(p))); err != nil {
			return refusal("source.path", "source run "+name, "it has no "+p, "name a run that has it")
		}
	}
	digest, err := pipeline.InputDigest(c.ctx, dir)
	if err != nil {
		return err
	}
	s.dir, s.run = dir, schemas.SourceRun{Reference: name, Digest: digest, Consumed: consumed}
	return nil
}

// adopt makes a validated run of another tool one of the store, once: it is checked
// where it lies, copied, and checked again as copied.
func (c *call) adopt(s *sourceRun, dir, name string) (archive.Ref, error) {
	none := archive.Ref{}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return none, err
	}
	result, err := source.Check(c.ctx, root.FS(), name)
	if err = errors.Join(err, root.Close()); err != nil {
		return none, err
	}
	if !result.OK() {
		return none, &pipeline.RefusedError{Findings: result.Findings}
	}
	store, err := archive.OpenOrCreate(c.storeDir())
	if err != nil {
		return none, storeError(err)
	}
	c.opened = nil // what it has read may be older
	digest, err := pipeline.InputDigest(c.ctx, dir)
	if err != nil {
		return none, err
	}
	if ref, ok, err := c.adopted(store, digest); ok || err != nil {
		return ref, err
	}
	out, err := c.runAdoption(store, dir, name, result.Report)
	if err != nil {
		return none, err
	}
	if out.Status != schemas.RunPassed {
		return none, refusal("source.invalid", "source run "+name, "it could not be taken into the store: "+adoptionError(out), "leave the folder alone while it is read")
	}
	return store.Resolve(c.ctx, string(out.Digest))
}

func adoptionError(out pipeline.Outcome) string {
	for _, st := range out.Report.Stages {
		if st.Error != "" {
			return st.Error
		}
	}
	return string(out.Status)
}

// adopted finds the run that holds this content already.
func (c *call) adopted(store *archive.Store, digest schemas.Digest) (archive.Ref, bool, error) {
	runs, err := store.Runs(c.ctx)
	if err != nil {
		return archive.Ref{}, false, err
	}
	for _, info := range slices.Backward(runs) {
		if info.Experiment != adoptedName {
			continue
		}
		run, err := store.Run(c.ctx, info.Digest)
		if err != nil || run.Config.Status != schemas.RunPassed {
			continue // a damaged one is made again
		}
		for _, r := range run.Config.Records {
			if r.Record.Kind == "adopt" && slices.ContainsFunc(r.Record.Inputs, func(in schemas.Input) bool { return in.Name == "folder" && in.Digest == digest }) {
				ref, err := store.Resolve(c.ctx, string(info.Digest))
				return ref, err == nil, err
			}
		}
	}
	return archive.Ref{}, false, nil
}

// adoptedExperiment says where the run comes from, without the folder's place.
func adoptedExperiment(name string, r schemas.Validated) []byte {
	origin := fmt.Sprintf("Taken from %q, a validated run that another tool made: its report.json has schema_version %q and was created at %s.", path.Base(filepath.ToSlash(filepath.Clean(name))), r.SchemaVersion, r.CreatedAt.UTC().Format(time.RFC3339))
	return []byte("schema = \"assay/experiment/v1\"\nname = \"" + adoptedName + "\"\ntitle = \"A validated run of another tool\"\ndescription = " + strconv.Quote(origin) +
		"\n\n[stage.adopted]\nkind = \"adopt\"\nfolder = \"${machine.folder}\"\n")
}

func (c *call) runAdoption(store *archive.Store, dir, name string, r schemas.Validated) (out pipeline.Outcome, err error) {
	exp, err := experiments.Parse(adoptedName+".toml", adoptedExperiment(name, r), experiments.Options{Machine: "none"})
	if err != nil {
		return out, err
	}
	exp.Machine.Values = map[string]string{"folder": dir}
	l, err := planned(exp)
	if err != nil {
		return out, err
	}
	opts := l.options(store, store.Dir(), nil)
	opts.Supervise, opts.StartService, opts.Sweep = supervisor{}, startService, sweep
	opts.Environment = environment(c.ctx, c.argv)
	if opts.RunID, err = pipeline.NewRunID(time.Now()); err != nil {
		return out, err
	}
	if opts.Sealed, err = sealedIn(c.ctx, store); err != nil {
		return out, err
	}
	release, err := store.Lease(c.ctx, opts.RunID)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, release()) }()
	return pipeline.Run(c.ctx, opts)
}
