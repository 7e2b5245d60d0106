package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"assay/archive"
	"assay/archive/remote"
	"assay/pipeline"
	"assay/schemas"
)

// sourceRun is an earlier run, verified and laid out as files.
type sourceRun struct {
	run   schemas.SourceRun
	dir   string
	clean func() error
}

func (s *sourceRun) close() error {
	if s == nil || s.clean == nil {
		return nil
	}
	return s.clean()
}

// openSource verifies the run that --source-run names and lays it out in a
// temporary folder. One that is missing, or that the experiment needs and nobody
// names, refuses the run.
func (c *call) openSource(l *loaded) (*sourceRun, error) {
	name, consumed := c.String("source-run"), l.consumed()
	if name == "" {
		if len(consumed) == 0 {
			return nil, nil
		}
		return nil, refusal("source.missing", "source run", "the experiment reads "+strings.Join(consumed, ", ")+" of an earlier run", "name the run with --source-run REF")
	}
	ref, err := c.resolveSource(name)
	if err != nil {
		return nil, noSource(name, err)
	}
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
	return layOut(c, ref, run, consumed)
}

// noSource is the error for a source run that was not found: one that a registry
// does not have, or has damaged, refuses the run; a registry that cannot be reached
// says nothing about it.
func noSource(name string, err error) error {
	switch code := exitCode(err); {
	case code == ExitInterrupted:
		return err
	case !remote.IsReference(name):
		return refusal("source.missing", "source run "+name, err.Error(), "`assay ls` lists the runs of the store; or give a path to a layout, a tar or an extracted run")
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
	return ": " + findings[0].Message
}

func layOut(c *call, ref archive.Ref, run *archive.Run, consumed []string) (*sourceRun, error) {
	known := map[string]bool{}
	for _, e := range run.Files.Entries {
		known[e.Path] = true
	}
	for _, p := range consumed {
		if _, err := run.Document(p); !known[p] && err != nil {
			return nil, refusal("source.path", "source run "+ref.Name, "it has no "+p, "`assay show "+ref.Name+" --files` lists its paths")
		}
	}
	s := &sourceRun{run: schemas.SourceRun{Reference: ref.Name, Digest: run.Digest, Consumed: consumed}}
	if ref.Folder != "" {
		dir, err := filepath.Abs(ref.Folder)
		s.dir = dir
		return s, err
	}
	tmp, err := os.MkdirTemp("", "assay-source-")
	if err != nil {
		return nil, fmt.Errorf("lay out source run: %w", err)
	}
	s.dir, s.clean = filepath.Join(tmp, "run"), func() error { return os.RemoveAll(tmp) }
	if err := run.Extract(c.ctx, s.dir); err != nil {
		return nil, errors.Join(err, s.clean())
	}
	return s, nil
}

func refusal(id, subject, message, remedy string) error {
	return &pipeline.RefusedError{Findings: []schemas.Finding{{ID: id, Severity: schemas.SeverityError, Subject: subject, Message: message, Remedy: remedy}}}
}
