package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"assay/pipeline"
	"assay/schemas"
)

func preflightCommand() *command {
	return &command{
		name: "preflight", args: "FILE | --list [SUBJECT|ID...]", summary: "check that everything an experiment needs is in place", maxArgs: -1,
		details: "Runs the checks of the experiment and nothing else, as `assay run FILE\n--preflight-only` does. An experiment without a preflight stage gets the default\nchecks. Exit code 3 on an error, or on something that could not be learnt.\nOn a machine without the devices, --facts judges\na recorded host: `assay doctor --facts host.json` records it there.\n--list prints every check there is, or those of a subject, an ID or the beginning of one.",
		example: "assay preflight aegaeon/replay --set workload=trace.csv",
		flags: append(experimentFlags(), sourceFlag(), plainHTTPFlag(), factsFlag(), reportFlag(),
			&cli.BoolFlag{Name: "list", Usage: "print the checks there are, and check nothing"},
			&cli.StringSliceFlag{Name: "allow-unknown", Usage: "let the check `ID` be unknown; again for another"}),
		run: func(c *call) error {
			if c.Bool("list") {
				return listChecks(c, c.Args().Slice())
			}
			if n := c.Args().Len(); n != 1 {
				return usagef("%d argument(s) given: want `assay preflight FILE`", n)
			}
			if err := checkReports(c); err != nil {
				return err
			}
			l, err := c.load()
			if err != nil {
				return err
			}
			return checkOnly(c, l, c.StringSlice("allow-unknown"))
		},
	}
}

// checkOnly runs the early checks of an experiment and prints their findings.
func checkOnly(c *call, l *loaded, allowUnknown []string) (err error) {
	if l, err = l.withChecks(); err != nil {
		return err
	}
	facts, err := readFacts(c)
	if err != nil {
		return err
	}
	source, err := c.openSource(l, false)
	var refused *pipeline.RefusedError
	if errors.As(err, &refused) {
		return printFindings(c, l, refused.Findings, allowUnknown)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	dir, err := filepath.Abs(c.storeDir())
	if err != nil {
		return err
	}
	opts := l.options(noStore{}, nearestFolder(dir), source)
	opts.Supervise, opts.StartService, opts.Sweep, opts.PreflightOnly = supervisor{}, startService, sweep, true
	opts.RunID, opts.Machine.Host = "preflight", facts
	shown := c.progress()
	opts.Events = shown.event
	out, err := pipeline.Run(c.ctx, opts)
	shown.close()
	if err != nil {
		return err
	}
	if c.ctx.Err() != nil {
		return ErrInterrupted
	}
	findings := out.Findings
	if out.Refused != nil {
		findings = union(findings, out.Refused.Findings)
	}
	return printFindings(c, l, union(union(findings, source.found()), l.keyFindings()), allowUnknown)
}

func printFindings(c *call, l *loaded, findings []schemas.Finding, allowUnknown []string) error {
	code := ExitOK
	if blocking(findings, allowUnknown) {
		code = ExitRefused
	}
	if err := writeReports(c, findings, allowUnknown); err != nil {
		return err
	}
	if c.asJSON {
		ordered := slices.Concat(bySubject(findings)...)
		if err := c.printJSON(schemas.Findings{Schema: schemas.FindingsV1, Findings: ordered}); err != nil {
			return err
		}
		return exitWith(code)
	}
	verdict := "everything is in place"
	if code != ExitOK {
		verdict = "refused"
	}
	begin, end := quiet(c)
	c.printf("%s%s: %s\n%s", begin, verdict, countSeverities(findings), findingsText(findings))
	c.printf("%s\n%s", costLine(l.plan, findings), end)
	return exitWith(code)
}

// union adds the findings of b that a does not hold.
func union(a, b []schemas.Finding) []schemas.Finding {
	out := slices.Clone(a)
	for _, f := range b {
		same := func(o schemas.Finding) bool {
			return o.ID == f.ID && o.Subject == f.Subject && o.Message == f.Message && o.Path == f.Path
		}
		if !slices.ContainsFunc(a, same) {
			out = append(out, f)
		}
	}
	return out
}

// nearestFolder is the folder itself or the nearest one above it that exists:
// where a store that is not there yet would come to lie.
func nearestFolder(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}
