package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/archive/remote"
	"assay/schemas"
)

// Authenticity is who vouches for a digest: a valid archive may still be another
// one than was meant.
const (
	authExpected = "expected digest"
	authUnknown  = "unknown"
)

type verifyDoc struct {
	Runs []verifiedRun `json:"runs"`
}

type verifiedRun struct {
	Reference    string `json:"reference"`
	Place        string `json:"place,omitempty"`
	Authenticity string `json:"authenticity"`
	archive.Verdict
	// Sources are the runs that it was made from, and those that they were made from.
	Sources []verifiedSource `json:"source_runs,omitempty"`
}

// verifiedSource is what was found of a source run.
type verifiedSource struct {
	Reference string            `json:"reference"` // as it was named
	Digest    schemas.Digest    `json:"digest"`
	Of        schemas.Digest    `json:"of"` // the run made from it
	Consumed  []string          `json:"consumed,omitempty"`
	Verdict   string            `json:"verdict"`
	Findings  []schemas.Finding `json:"findings"`
}

func verifyCommand() *command {
	return &command{
		name: "verify", args: "REF...", summary: "check every byte of archived runs, offline", minArgs: 1, maxArgs: -1,
		details: "Reads every blob and checks digests, sizes, documents against their schemas,\nthe file list, trees and keys. A fault names the blob, the stage and the path.\nSource runs are followed: one that no store at hand has is unknown. Exit code 0: valid; 4: invalid, or something could not be read. An intact\narchive of a failed run is valid.",
		example: "assay verify latest",
		flags:   []cli.Flag{&cli.StringFlag{Name: "expect", Usage: "the full `DIGEST` that the run must have"}, plainHTTPFlag()},
		run:     runVerify,
	}
}

func runVerify(c *call) error {
	expect, err := expected(c)
	if err != nil {
		return err
	}
	doc, code := verifyDoc{}, ExitOK
	for _, name := range c.Args().Slice() {
		ref, reached, err := c.resolveToVerify(name)
		if err != nil && exitCode(err) == ExitInfra && !remote.IsReference(name) && c.opened != nil {
			err = withCode(ExitUnverified, err) // what cannot be read cannot be verified
		}
		if err != nil {
			return err
		}
		ctx, done := c.showing()
		verdict, err := ref.Verify(ctx)
		done()
		if err == nil {
			err = reached()
		}
		if err != nil {
			return err
		}
		one := verifiedRun{Reference: name, Place: ref.Place, Authenticity: authUnknown, Verdict: verdict}
		one.judge(expect)
		if one.Verdict.Verdict == archive.Valid {
			if err := c.followSources(&one, ref); err != nil {
				return err
			}
		}
		if !one.whole() {
			code = ExitUnverified
		}
		doc.Runs = append(doc.Runs, one)
	}
	if c.asJSON {
		if err := c.printJSON(doc); err != nil {
			return err
		}
		return exitWith(code)
	}
	for _, r := range doc.Runs {
		printVerdict(c, r)
	}
	return exitWith(code)
}

func expected(c *call) (schemas.Digest, error) {
	text := c.String("expect")
	switch {
	case text == "":
		return "", nil
	case c.NArg() != 1:
		return "", usagef("--expect is about one run: name one REF")
	}
	d, err := schemas.ParseDigest(text)
	if err != nil {
		return "", usagef("--expect: %v", err)
	}
	return d, nil
}

func (r *verifiedRun) judge(expect schemas.Digest) {
	switch expect {
	case "":
	case r.Digest:
		r.Authenticity = authExpected
	default:
		r.Verdict.Verdict = archive.Invalid
		r.Findings = append(r.Findings, schemas.Finding{ID: "archive.expected", Severity: schemas.SeverityError, Subject: r.Reference, Blob: r.Digest,
			Message: fmt.Sprintf("the run is %s, expected %s", r.Digest, expect), Remedy: "name the run that is meant by its digest"})
	}
}

func printVerdict(c *call, r verifiedRun) {
	c.printf("%s: %s (%d blobs, %s; %d files; authenticity: %s)\n", r.Reference, r.Verdict.Verdict, r.Blobs, schemas.Size(r.Bytes), r.Files, r.Authenticity)
	c.printf("  digest %s\n", r.Digest)
	for _, f := range r.Findings {
		c.printf("%s", findingText(f, "  "))
	}
	for _, s := range r.Sources {
		c.printf("  source run %s: %s\n    digest %s, of run %s", s.Reference, s.Verdict, s.Digest, s.Of.Short())
		if len(s.Consumed) > 0 {
			c.printf("; consumed: %s", strings.Join(s.Consumed, ", "))
		}
		c.printf("\n")
		for _, f := range s.Findings {
			c.printf("%s", findingText(f, "    "))
		}
	}
}
