// Package workload checks that a workload file is well formed and that a service
// has models enough for it.
package workload

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"assay/internal/workload"
	"assay/schemas"
)

// maxFindings of one file; a file with more is of another form altogether.
const maxFindings = 20

// Options are what the file does not say itself.
type Options struct {
	// Form of the file; empty: told from its first lines.
	Form string
	// Unit of bare timestamps, "s", "ms" or "us"; empty: the form's own.
	Unit string
	// MaxInput, MaxOutput and MaxTotal limit lengths in tokens, 0 does not; Over
	// says what becomes of what is longer: only "refuse" makes it a fault.
	MaxInput, MaxOutput, MaxTotal int
	Over                          string
	// Window is the two times that bound what will be sent, which bounds what is
	// kept in memory; all of the file is judged.
	Window []string
	// ServiceModels are those the requests will go to; nil when not known yet.
	ServiceModels []string
}

// Check reads the workload at path and returns one finding for each line that is
// wrong, or one pass.
func Check(subject, path string, opts Options) []schemas.Finding {
	var findings []schemas.Finding
	bad := map[int]bool{}
	for {
		w, err := read(path, opts, bad)
		var syntax *workload.SyntaxError
		switch {
		case err == nil:
			if len(findings) > 0 {
				return findings
			}
			return []schemas.Finding{models(subject, path, w, opts)}
		case !errors.As(err, &syntax):
			return append(findings, schemas.Finding{ID: "workload.read", Severity: schemas.SeverityUnknown, Subject: subject, File: path,
				Message: err.Error(), Remedy: "check the file and the file system it lies on"})
		}
		line := original(syntax.Line, bad)
		if emptied := len(bad) > 0 && strings.HasPrefix(syntax.Text, "no request"); emptied {
			return findings // every row was wrong, and each has been named
		}
		f := schemas.Finding{ID: "workload.form", Severity: schemas.SeverityError, Subject: subject, File: path, Line: line,
			Message: fmt.Sprintf("%s:%d: %s", path, line, syntax.Text), Remedy: "correct the line, or name the form (workload_form): docs/workloads.md has the columns and units of each"}
		if syntax.Column > 0 {
			f.Column = syntax.Column
		}
		findings = append(findings, f)
		if line <= 1 || syntax.Final || bad[line] || len(findings) == maxFindings {
			return findings
		}
		bad[line] = true
	}
}

func read(path string, opts Options, bad map[int]bool) (workload.Workload, error) {
	f, err := os.Open(path)
	if err != nil {
		return workload.Workload{}, err
	}
	defer f.Close()
	assign := opts.ServiceModels
	if len(assign) == 0 {
		assign = []string{"any"}
	}
	from, to := window(opts.Window)
	return workload.Read(&skipper{r: f, skip: bad, line: 1}, workload.Options{
		From: from, To: to,
		Name: path, Form: workload.Form(opts.Form), Unit: opts.Unit, Models: assign,
		MaxInput: opts.MaxInput, MaxOutput: opts.MaxOutput, MaxTotal: opts.MaxTotal, Over: opts.Over,
	})
}

// window leaves a window that cannot be read to the stage, which refuses it.
func window(list []string) (from, to time.Duration) {
	if len(list) != 2 {
		return 0, 0
	}
	a, errA := schemas.ParseDuration(list[0])
	b, errB := schemas.ParseDuration(list[1])
	if errA != nil || errB != nil {
		return 0, 0
	}
	return a.Std(), b.Std()
}

func models(subject, path string, w workload.Workload, opts Options) schemas.Finding {
	f := schemas.Finding{ID: "workload.form", Severity: schemas.SeverityPass, Subject: subject, File: path}
	names := w.Models()
	if n := len(opts.ServiceModels); n > 0 && len(names) > n {
		f.ID, f.Severity = "workload.models", schemas.SeverityError
		f.Message = fmt.Sprintf("%s has requests for %d models, the service has %d", path, len(names), n)
		f.Remedy = "serve as many models, or use a workload of fewer"
		return f
	}
	f.Message, f.File = "is well formed", "" // nothing of its content: see the paths checks
	return f
}

// original turns a line number of the file without its bad lines into one of the
// whole file.
func original(line int, bad map[int]bool) int {
	lines := make([]int, 0, len(bad))
	for l := range bad {
		lines = append(lines, l)
	}
	slices.Sort(lines)
	for _, l := range lines {
		if l <= line {
			line++
		}
	}
	return line
}

// skipper leaves out some lines of what it reads, so that the lines after a bad
// one can be judged too.
type skipper struct {
	r    io.Reader
	skip map[int]bool
	line int
}

func (s *skipper) Read(p []byte) (int, error) {
	for {
		n, err := s.r.Read(p)
		kept := 0
		for _, b := range p[:n] {
			if !s.skip[s.line] {
				p[kept] = b
				kept++
			}
			if b == '\n' {
				s.line++
			}
		}
		if kept > 0 || err != nil || len(p) == 0 {
			return kept, err
		}
	}
}
