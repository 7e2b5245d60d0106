package cli

import (
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/internal/durable"
	"assay/schemas"
)

func reportFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "report", Usage: "also report as `FORM`: junit=FILE writes JUnit XML, github prints annotations; again for another"}
}

// checkReports says what is wrong with --report before anything is checked.
func checkReports(c *call) error {
	for _, form := range c.StringSlice("report") {
		name, file, given := strings.Cut(form, "=")
		switch {
		case name == "junit" && file != "", name == "github" && !given && !c.asJSON:
		case name == "github" && !given:
			return usagef("--report github prints on the standard output, as --format json does: give one of them")
		default:
			return usagef("--report %q: want junit=FILE or github", form)
		}
	}
	return nil
}

// writeReports writes the reports that --report asks for.
func writeReports(c *call, findings []schemas.Finding, allowUnknown []string) error {
	for _, form := range c.StringSlice("report") {
		if form == "github" {
			c.printf("%s", annotations(findings, allowUnknown))
			continue
		}
		_, file, _ := strings.Cut(form, "=")
		b, err := junit(findings, allowUnknown)
		if err != nil {
			return err
		}
		if err := durable.WriteFile(file, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr,omitempty"`
	Line    int           `xml:"line,attr,omitempty"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// junit is a suite per subject and a case per finding: what stands in the way of a run
// fails, what is checked later or allowed to be unknown is skipped.
func junit(findings []schemas.Finding, allowUnknown []string) ([]byte, error) {
	doc := junitSuites{}
	for _, group := range bySubject(findings) {
		s := junitSuite{Name: group[0].Subject, Tests: len(group)}
		for _, f := range group {
			k := junitCase{Class: f.Subject, Name: f.ID, File: f.File, Line: f.Line}
			switch {
			case blocking([]schemas.Finding{f}, allowUnknown):
				s.Failures++
				k.Failure = &junitMessage{Message: f.Message, Type: string(f.Severity), Text: f.Remedy}
			case f.Severity == schemas.SeverityDeferred || f.Severity == schemas.SeverityUnknown:
				s.Skipped++
				k.Skipped = &junitMessage{Message: string(f.Severity) + ": " + f.Message}
			default:
				k.Out = string(f.Severity) + ": " + f.Message
			}
			s.Cases = append(s.Cases, k)
		}
		doc.Tests, doc.Failures, doc.Skipped = doc.Tests+s.Tests, doc.Failures+s.Failures, doc.Skipped+s.Skipped
		doc.Suites = append(doc.Suites, s)
	}
	b, err := xml.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("junit: %w", err)
	}
	return append([]byte(xml.Header), append(b, '\n')...), nil
}

// quiet returns lines between which GitHub obeys nothing that is printed: a message may
// quote a file, and that file hold a command. Both are empty without annotations.
func quiet(c *call) (begin, end string) {
	if !slices.Contains(c.StringSlice("report"), "github") {
		return "", ""
	}
	token := rand.Text()
	return "::stop-commands::" + token + "\n", "::" + token + "::\n"
}

// What GitHub takes for the end of a command, of a property or of a line.
var (
	escapeData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	escapeProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// annotations are the commands that make GitHub show findings beside the lines of
// files: errors for what stands in the way, warnings, and notices for the unknown that
// is allowed.
func annotations(findings []schemas.Finding, allowUnknown []string) string {
	var b strings.Builder
	for _, f := range slices.Concat(bySubject(findings)...) {
		command := "notice"
		switch {
		case blocking([]schemas.Finding{f}, allowUnknown):
			command = "error"
		case f.Severity == schemas.SeverityWarning:
			command = "warning"
		case f.Severity != schemas.SeverityUnknown:
			continue
		}
		properties := []string{"title=" + escapeProperty.Replace(f.ID+" "+f.Subject)}
		if f.File != "" {
			properties = append(properties, "file="+escapeProperty.Replace(fromHere(f.File)))
		}
		if f.File != "" && f.Line > 0 {
			properties = append(properties, fmt.Sprintf("line=%d", f.Line))
			if f.Column > 0 {
				properties = append(properties, fmt.Sprintf("col=%d", f.Column))
			}
		}
		text := f.Message
		if f.Remedy != "" {
			text += "\ndo: " + f.Remedy
		}
		fmt.Fprintf(&b, "::%s %s::%s\n", command, strings.Join(properties, ","), escapeData.Replace(text))
	}
	return b.String()
}

// fromHere is a file relative to the current folder, where it lies below it: an
// annotation is shown beside files of the checkout alone.
func fromHere(file string) string {
	here, err := os.Getwd()
	if err != nil {
		return file
	}
	if rel, err := filepath.Rel(here, file); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return file
}

// costLine says what the run would take: what the plan tells, and what its checks
// counted.
func costLine(p schemas.Plan, findings []schemas.Finding) string {
	text := fmt.Sprintf("a run takes %d executions of %d stages in %d trials, %d service starts", len(p.Nodes), len(p.Stages), len(p.Trials), len(p.Services))
	for _, f := range findings {
		if f.ID == "plan.cost" {
			return text + ", " + f.Message
		}
	}
	return text
}
