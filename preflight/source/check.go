package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"assay/internal/engines/aegaeon"
	"assay/schemas"
)

const (
	inventoryFile = "inventory.sha256"
	maxConfig     = 4 << 20
)

// Result is what a folder holds, as far as it could be read.
type Result struct {
	Report   schemas.Validated
	Config   aegaeon.Config
	Findings []schemas.Finding
}

// OK says whether nothing was found against the folder.
func (r Result) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(f schemas.Finding) bool {
		return f.Severity == schemas.SeverityError || f.Severity == schemas.SeverityUnknown
	})
}

type checker struct {
	ctx     context.Context
	fsys    fs.FS
	subject string
	// at is put before paths in findings: where the folder lies for people.
	at     string
	result *Result
}

// Check holds the folder of a validated run against every rule that needs no GPU. at is
// how people know the folder. Every file is read. The error is ctx's alone.
func Check(ctx context.Context, fsys fs.FS, at string) (Result, error) {
	var r Result
	c := &checker{ctx: ctx, fsys: fsys, subject: "source run " + at, at: at, result: &r}
	c.all()
	if err := ctx.Err(); err != nil {
		return r, err
	}
	if r.OK() {
		c.pass("source.report-checks", ReportFile, fmt.Sprintf("it passed, with %d checks", len(r.Report.Checks)))
		c.pass("source.models", ReportFile, fmt.Sprintf("%d models were captured, replayed and gave equal token ids", len(r.Report.Models)))
		c.pass("source.config-hash", r.Report.LoadConfig, "it is the configuration that was validated")
		c.pass("source.file-changed", r.Report.ArchiveRoot, fmt.Sprintf("%d files are what the inventory lists", len(r.Report.Files)))
	}
	return r, nil
}

func (c *checker) pass(id, name, message string) {
	c.result.Findings = append(c.result.Findings, schemas.Finding{ID: id, Severity: schemas.SeverityPass, Subject: c.subject, Path: name, Message: name + ": " + message})
}

// fail names the file, what is wrong, and what to do.
func (c *checker) fail(id, name, format string, args ...any) {
	const most = 200
	if n := len(c.result.Findings); n > most {
		return
	}
	message := fmt.Sprintf(format, args...)
	if name != "" {
		message = name + ": " + message
	}
	c.result.Findings = append(c.result.Findings, schemas.Finding{ID: id, Severity: schemas.SeverityError, Subject: c.subject, Path: name, Message: message, Remedy: remedyOf(id)})
}

// cannot is for what could not be read.
func (c *checker) cannot(name string, err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.result.Findings = append(c.result.Findings, schemas.Finding{ID: "source.unreadable", Severity: schemas.SeverityUnknown, Subject: c.subject, Path: name,
		Message: fmt.Sprintf("%s: %v", name, plainError(err)), Remedy: remedyOf("source.unreadable")})
}

// plainError leaves out the name that the message has already.
func plainError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (c *checker) all() {
	b, err := c.read(ReportFile, maxReportBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.fail("source.report-missing", ReportFile, "there is none: this is no validated run")
		return
	case err != nil:
		c.fail("source.report-unreadable", ReportFile, "%v", plainError(err))
		return
	}
	report, problems := parse(b)
	c.result.Report = report
	for _, p := range problems {
		text := p.text
		if p.path != "" {
			text = p.path + ": " + text
		}
		c.fail(p.id, ReportFile, "%s", text)
	}
	if len(problems) > 0 && problems[0].id == "source.report-unreadable" {
		return
	}
	c.judgement(len(problems) > 0)
	c.configuration()
	c.archives()
}

// clean says whether a path lies inside the folder and is written in one way only.
func clean(p string) bool { return p != "." && fs.ValidPath(p) && !strings.ContainsAny(p, "\\\x00") }
