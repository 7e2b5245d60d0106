package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/pipeline"
	"assay/schemas"
)

func runCommand() *command {
	return &command{
		name: "run", args: "FILE", summary: "run an experiment and archive what it gave", minArgs: 1, maxArgs: 2,
		details: "FILE is an experiment file or the name of a shipped one (quickstart,\naegaeon/replay). The first ^C stops services and seals the run as aborted; the\nsecond ends everything at once. --resume without RUN goes on with the newest\ninterrupted run of the same effective experiment.",
		example: "assay run quickstart --set rate=4 --tag busy",
		flags: append(experimentFlags(), rehashFlag(), sourceFlag(), plainHTTPFlag(),
			&cli.BoolFlag{Name: "preflight-only", Usage: "stop after the checks; archive nothing"},
			&cli.StringFlag{Name: "resume", Usage: "go on with the interrupted `RUN` (default: the newest)"},
			&cli.StringFlag{Name: "tag", Usage: "name the run `TAG`"},
		),
		run: runRun,
	}
}

type runDoc struct {
	RunID     string                `json:"run_id"`
	Digest    schemas.Digest        `json:"digest,omitempty"`
	Tag       string                `json:"tag,omitempty"`
	Store     string                `json:"store"`
	Status    schemas.RunStatus     `json:"status"`
	ExitCode  int                   `json:"exit_code"`
	Reused    int                   `json:"reused"`
	Executed  int                   `json:"executed"`
	Refused   []schemas.Finding     `json:"refused,omitempty"` // what preflight found against the run
	Claims    []schemas.ClaimResult `json:"claims"`
	ReportIn  string                `json:"report_path,omitempty"` // in the run: assay cat DIGEST report.json
	ReportDoc *schemas.Report       `json:"report,omitempty"`
}

func runRun(c *call) error {
	if c.NArg() != 1 {
		return usagef("2 arguments given: want `assay run FILE` (a run to resume is named with --resume=RUN)")
	}
	if tag := c.String("tag"); c.IsSet("tag") {
		if err := checkTag(tag); err != nil {
			return err
		}
	}
	l, err := c.load()
	if err != nil {
		return err
	}
	if c.Bool("preflight-only") {
		return checkOnly(c, l, nil)
	}
	return execute(c, l)
}

// execute runs a planned experiment and prints what came out.
func execute(c *call, l *loaded) (err error) {
	if missing := l.missingKeys(); missing != nil {
		return printRefusal(c, &pipeline.RefusedError{Findings: missing})
	}
	store, err := archive.OpenOrCreate(c.storeDir())
	if err != nil {
		return storeError(err)
	}
	resume, err := pickResume(c, l, store)
	if err != nil {
		return err
	}
	source, err := c.openSource(l, true)
	if err != nil {
		return printRefusal(c, err)
	}
	defer func() { err = errors.Join(err, source.close()) }()
	opts := l.options(store, store.Dir(), source)
	opts.Supervise, opts.StartService, opts.Sweep, opts.Resume, opts.Tag = supervisor{}, startService, sweep, resume, c.String("tag")
	opts.Environment = environment(c.ctx, c.argv)
	if opts.RunID, err = pipeline.NewRunID(time.Now()); err != nil {
		return err
	}
	if resume != nil {
		opts.RunID = resume.RunID
	}
	if opts.Sealed, err = sealedIn(c.ctx, store); err != nil {
		return err
	}
	release, err := store.Lease(c.ctx, opts.RunID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	shown := c.progress()
	opts.Events = shown.event
	ctx, done := c.storing(shown)
	defer done()
	if opts.Rehash = c.Bool("rehash"); opts.Rehash {
		ctx = archive.WithRehash(ctx)
	}
	out, err := pipeline.Run(ctx, opts)
	shown.close()
	if err != nil {
		return runError(c, opts.RunID, err)
	}
	return printOutcome(c, store, out)
}

func pickResume(c *call, l *loaded, store *archive.Store) (*pipeline.Unsealed, error) {
	id := c.String("resume")
	switch {
	case id == "":
		return nil, nil
	case id == resumeNewest:
		id = ""
	case !runIDPattern.MatchString(id):
		return nil, usagef("--resume=%s: want a run id like 20060102T150405Z-0123abcd; `assay ls` lists interrupted runs", id)
	}
	sealed, err := sealedIn(c.ctx, store)
	if err != nil {
		return nil, err
	}
	u, err := pipeline.PickUnsealed(store.Dir(), id, l.plan.Digest, sealed)
	if err != nil {
		return nil, err
	}
	return &u, nil
}

// runError says how to go on after an error that published nothing.
func runError(c *call, id string, err error) error {
	var infra *pipeline.InfraError
	if errors.As(err, &infra) {
		return fmt.Errorf("%w; nothing was published, and what was done is kept: `assay run %s --resume=%s` goes on", err, sameRun(c), id)
	}
	return fmt.Errorf("run %s: %w", id, err)
}

func printOutcome(c *call, store *archive.Store, out pipeline.Outcome) error {
	code := outcomeCode(out)
	doc := runDoc{RunID: out.RunID, Digest: out.Digest, Tag: c.String("tag"), Store: store.Dir(), Status: out.Status, ExitCode: code,
		Reused: out.Reused, Executed: out.Executed, Claims: out.Report.Claims}
	if out.Digest != "" {
		doc.ReportIn, doc.ReportDoc = "report.json", &out.Report
	}
	if out.Refused != nil {
		doc.Refused = notable(out.Refused.Findings)
		doc.Tag = ""
	}
	if c.asJSON {
		if err := c.printJSON(doc); err != nil {
			return err
		}
		return exitWith(code)
	}
	if out.Refused != nil {
		c.printf("refused: %s\n%s", countSeverities(out.Refused.Findings), findingsText(doc.Refused))
		return exitWith(code)
	}
	c.printf("%s\n%s", reportText(out.Report), nextText(c, doc))
	return exitWith(code)
}

// nextText is the reference of the run and what to type next.
func nextText(c *call, doc runDoc) string {
	ref := doc.Digest.Short()
	var b strings.Builder
	fmt.Fprintf(&b, "stages: %d executed, %d reused\n", doc.Executed, doc.Reused)
	fmt.Fprintf(&b, "archived as sha256:%s", ref)
	if doc.Tag != "" {
		fmt.Fprintf(&b, ", tag %s", doc.Tag)
		ref = doc.Tag
	}
	fmt.Fprintf(&b, " in %s\n\nnext:\n", c.storeDir())
	store := flagText(c, "store")
	fmt.Fprintf(&b, "  assay show %s%s\n  assay verify %s%s\n", ref, store, ref, store)
	if file := c.Args().First(); file != "" {
		same := sameRun(c)
		fmt.Fprintf(&b, "  assay explain %s\n  assay run %s\n", same, same)
	}
	return b.String()
}

// sameRun is what to type after `assay run` for the same experiment in the same
// store.
func sameRun(c *call) string {
	same := shellWord(c.Args().First()) + flagText(c, "machine") + flagText(c, "source-run") + flagText(c, "store")
	for _, set := range c.StringSlice("set") {
		same += " --set " + shellWord(set)
	}
	return same
}

// flagText repeats a flag as it was given, "" for one that was not.
func flagText(c *call, name string) string {
	if v := c.String(name); v != "" {
		return " --" + name + " " + shellWord(v)
	}
	return ""
}

// plainWord needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=,@%+-]+$`)

func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// printRefusal prints what refused a run before anything was started.
func printRefusal(c *call, err error) error {
	var refused *pipeline.RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	if c.asJSON {
		if err := c.printJSON(runDoc{Store: c.storeDir(), Status: schemas.RunFailed, ExitCode: ExitRefused, Refused: refused.Findings}); err != nil {
			return err
		}
	} else {
		c.printf("refused: %s\n%s", countSeverities(refused.Findings), findingsText(refused.Findings))
	}
	return exitWith(ExitRefused)
}

// existing opens the store if there is one; nil, nil if not.
func (c *call) existing() (*archive.Store, error) {
	s, err := archive.Open(c.storeDir())
	if errors.Is(err, archive.ErrNotStore) && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return s, storeError(err)
}
