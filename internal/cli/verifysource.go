package cli

import (
	"fmt"
	"path"
	"slices"

	"assay/archive"
	"assay/schemas"
)

// whole says whether the run and all that it was made from are valid.
func (r verifiedRun) whole() bool {
	return r.Verdict.Verdict == archive.Valid && !slices.ContainsFunc(r.Sources, func(s verifiedSource) bool { return s.Verdict != archive.Valid })
}

// followSources verifies the runs that a valid run was made from, and what it consumed
// of them.
func (c *call) followSources(r *verifiedRun, ref archive.Ref) error {
	run, err := c.readRun(ref)
	if err != nil || len(run.Config.Sources) == 0 {
		return err
	}
	return c.follow(r, run, c.sourceLayouts(ref), []schemas.Digest{run.Digest})
}

// sourceLayouts are where source runs may lie: beside the run, and in the store. A store
// that cannot be opened has none.
func (c *call) sourceLayouts(ref archive.Ref) []*archive.Layout {
	var out []*archive.Layout
	if l := ref.Layout(); l != nil {
		out = append(out, l)
	}
	if store, err := c.existing(); err == nil && store != nil {
		out = append(out, store.Layout)
	}
	return out
}

func (c *call) follow(r *verifiedRun, run *archive.Run, layouts []*archive.Layout, above []schemas.Digest) error {
	for _, src := range run.Config.Sources {
		s := verifiedSource{Reference: src.Reference, Digest: src.Digest, Of: run.Digest, Consumed: src.Consumed, Verdict: archive.Unknown, Findings: []schemas.Finding{}}
		fail := func(severity schemas.Severity, format string, args ...any) {
			s.Findings = append(s.Findings, schemas.Finding{ID: "source.lineage", Severity: severity, Subject: "source run " + src.Reference, Blob: src.Digest,
				Message: fmt.Sprintf(format, args...), Remedy: "pull or copy that run into the store"})
		}
		before, verdict, err := c.verifyEarlier(layouts, src.Digest)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(above, src.Digest):
			s.Verdict = archive.Invalid
			fail(schemas.SeverityError, "source runs lead in a circle")
			before = nil
		case len(above) > maxLineage:
			fail(schemas.SeverityUnknown, "source runs lead further than %d runs", maxLineage)
			before = nil
		case before == nil && verdict == nil:
			fail(schemas.SeverityUnknown, "it is not in the store: nothing can be said of it")
		default:
			s.Verdict, s.Findings = verdict.Verdict, append(s.Findings, verdict.Findings...)
		}
		if before != nil && s.Verdict == archive.Valid {
			if why := consumedDiffer(before, src); why != "" {
				s.Verdict = archive.Invalid
				fail(schemas.SeverityError, "%s", why)
			}
		}
		r.Sources = append(r.Sources, s)
		if before != nil && s.Verdict == archive.Valid {
			if err := c.follow(r, before, layouts, append(slices.Clone(above), src.Digest)); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyEarlier is nil, nil for a run that is nowhere at hand.
func (c *call) verifyEarlier(layouts []*archive.Layout, digest schemas.Digest) (*archive.Run, *archive.Verdict, error) {
	for _, l := range layouts {
		runs, err := l.Runs(c.ctx)
		if err != nil || !slices.ContainsFunc(runs, func(r archive.RunInfo) bool { return r.Digest == digest }) {
			continue // a damaged index is told of elsewhere; the next layout may have it
		}
		verdict, err := l.Verify(c.ctx, digest)
		if err != nil {
			return nil, nil, err
		}
		if verdict.Verdict != archive.Valid {
			return nil, &verdict, nil
		}
		run, err := l.Run(c.ctx, digest)
		return run, &verdict, err
	}
	return nil, nil, nil
}

// consumedDiffer says what the report claims to have consumed that the source run does
// not hold, "" for nothing.
func consumedDiffer(run *archive.Run, src schemas.SourceRun) string {
	inRun := map[string]string{}
	for _, f := range src.Files {
		if f.Path != src.Validated {
			inRun[f.Path] = f.Path
		}
	}
	have, err := consumedFiles(run, inRun, src)
	if err != nil {
		return err.Error()
	}
	for _, f := range src.Files {
		if !slices.Contains(have, f) {
			return fmt.Sprintf("the report says that it consumed %s with %s; the source run has another", f.Path, f.Digest)
		}
	}
	for _, p := range src.Consumed {
		if len(src.Files) > 0 && !slices.ContainsFunc(have, func(f schemas.SourceFile) bool { return f.Path == p || f.Path == path.Join(src.Validated, p) }) {
			return fmt.Sprintf("the report names no content of %s, which it consumed", p)
		}
	}
	return ""
}
