package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/archive"
	"assay/internal/durable"
	"assay/internal/report/compare"
	"assay/schemas"
)

func compareCommand() *command {
	return &command{
		name: "compare", args: "A [B]", summary: "compare two runs, or values or stages of one, pair by pair", minArgs: 1, maxArgs: 2,
		details: "Every run is verified first. Trials are paired by repetition; a pair is compared\nonly when it has the same requests, prompts, lengths, times, engines and\nconditions, and nothing failed: otherwise the comparison is refused and says why.\nDifferences are in per cent of the baseline, or in points for shares, with a\nt interval over pairs.\nOf two runs, A is the baseline, and --by names a parameter that may differ. Of\none run, --by names a parameter of its matrix, or stage.\nExit code 0: compared, and within every tolerance; 6: outside of one; 1: refused;\n4: a run does not verify.",
		example: "assay compare before after --metric ttft_ms.p95 --tolerance 5\n   assay compare latest --by policy --baseline round-robin",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "by", Usage: "`PARAMETER` that is compared, or stage"},
			&cli.StringFlag{Name: "baseline", Usage: "of one run: the `VALUE` or stage that others are compared with (default: the first)"},
			&cli.StringFlag{Name: "candidate", Usage: "of one run: the `VALUE` or stage that is compared (default: every other)"},
			&cli.StringSliceFlag{Name: "stage", Usage: "only results of this `STAGE`, again for another"},
			&cli.StringSliceFlag{Name: "metric", Usage: "`NAME` as in claims, like ttft_ms.p95, again for another (default: latencies, throughput, attainment and QoS)"},
			&cli.StringFlag{Name: "tolerance", Usage: "largest mean difference of each metric, per cent or points: `NUMBER`"},
			&cli.StringSliceFlag{Name: "limit", Usage: "tolerance of one metric: `METRIC=NUMBER`, again for another"},
			&cli.BoolFlag{Name: "only-worse", Usage: "tolerances bound changes for the worse alone"},
			&cli.StringSliceFlag{Name: "differ", Usage: "`NAME` of a condition or parameter that may differ, again for another; engines for the set of engines"},
			&cli.BoolFlag{Name: "same-output", Usage: "refuse pairs whose generated texts differ"},
			&cli.StringFlag{Name: "chart", Usage: "write a chart of the differences to `FILE` (SVG)"},
			plainHTTPFlag(),
		},
		run: runCompare,
	}
}

func runCompare(c *call) error {
	opts, err := compareOptions(c)
	if err != nil {
		return err
	}
	var runs []*archive.Run
	var sources []schemas.ComparisonRun
	for _, name := range c.Args().Slice() {
		run, err := c.verifiedRun(name)
		if err != nil {
			return err
		}
		runs = append(runs, run)
		sources = append(sources, schemas.ComparisonRun{Reference: name, Digest: run.Digest})
	}
	groups, by, missing, err := c.compareGroups(runs)
	if err != nil {
		return withCode(ExitUsage, err)
	}
	opts.By, opts.Missing = by, missing
	doc, err := compare.Compare(c.ctx, groups, opts)
	if err != nil {
		return withCode(ExitUsage, err)
	}
	doc.Runs = sources
	if err := c.writeChart(doc); err != nil {
		return err
	}
	if c.asJSON {
		if err := c.printJSON(doc); err != nil {
			return err
		}
	}
	c.printf("%s", compare.Text(doc))
	switch {
	case !doc.Comparable:
		return exitWith(ExitFailed)
	case doc.Within != nil && !*doc.Within:
		return exitWith(ExitClaim)
	}
	return nil
}

func compareOptions(c *call) (compare.Options, error) {
	o := compare.Options{Metrics: c.StringSlice("metric"), Differ: c.StringSlice("differ"), SameOutput: c.Bool("same-output"), OnlyWorse: c.Bool("only-worse"), Gate: true, Limits: map[string]float64{}}
	number := func(flag, text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0 && v <= 1e6) {
			return 0, usagef("--%s %q: want a number from 0 to 1000000", flag, text)
		}
		return v, nil
	}
	if text := c.String("tolerance"); text != "" {
		v, err := number("tolerance", text)
		if err != nil {
			return o, err
		}
		o.Tolerance = &v
	}
	for _, text := range c.StringSlice("limit") {
		i := strings.LastIndexByte(text, '=')
		if i < 1 {
			return o, usagef("--limit %q: want METRIC=NUMBER", text)
		}
		v, err := number("limit", text[i+1:])
		if err != nil {
			return o, err
		}
		o.Limits[text[:i]] = v
	}
	if err := compare.CheckMetrics(o); err != nil {
		return o, usagef("%v", err)
	}
	if c.NArg() == 2 && (c.String("baseline") != "" || c.String("candidate") != "") {
		return o, usagef("--baseline and --candidate are values of one run: of two, the first is the baseline")
	}
	return o, nil
}

// verifiedRun opens a run after every byte of it was checked.
func (c *call) verifiedRun(name string) (*archive.Run, error) {
	ref, err := c.resolve(name)
	if err != nil {
		return nil, err
	}
	ctx, done := c.showing()
	verdict, err := ref.Verify(ctx)
	done()
	if err != nil {
		return nil, err
	}
	if verdict.Verdict != archive.Valid {
		return nil, withCode(ExitUnverified, fmt.Errorf("%s: the run is %s%s: `assay verify %s` says more", name, verdict.Verdict, firstFinding(verdict.Findings), name))
	}
	return c.readRun(ref)
}

// compareGroups pairs the trials of the runs, and lists nodes that should have a
// result and have none.
func (c *call) compareGroups(runs []*archive.Run) (groups []compare.Group, by string, missing []string, err error) {
	var trials [][]compare.Trial
	for _, run := range runs {
		list, none, err := c.compareTrials(run)
		if err != nil {
			return nil, "", nil, err
		}
		trials, missing = append(trials, list), append(missing, none...)
	}
	by = c.String("by")
	if len(runs) == 2 {
		if by == "" {
			by = schemas.CompareRuns
		} else if by == schemas.CompareStages {
			return nil, "", nil, errors.New("--by stage is for the stages of one run")
		}
		return compare.ByRun(trials[0], trials[1], c.Args().Get(0), c.Args().Get(1)), by, missing, nil
	}
	if by == "" {
		if by, err = onlyParameter(trials[0], c.String("baseline")); err != nil {
			return nil, "", nil, err
		}
	}
	if by == schemas.CompareStages {
		groups, err = compare.ByStage(trials[0], c.String("baseline"), c.String("candidate"))
	} else {
		groups, err = compare.ByParam(trials[0], by, c.String("baseline"), c.String("candidate"))
	}
	return groups, by, missing, err
}

// onlyParameter is what a run is compared by when nobody says.
func onlyParameter(trials []compare.Trial, baseline string) (string, error) {
	var names []string
	for _, t := range trials {
		if baseline != "" && t.Stage == baseline {
			return schemas.CompareStages, nil
		}
		for name := range t.Point {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	if len(names) == 1 {
		return names[0], nil
	}
	return "", fmt.Errorf("one run was named: say with --by what is compared in it: stage%s", strings.Join(append([]string{""}, names...), ", "))
}

// compareTrials are the results of a run that have requests.
func (c *call) compareTrials(run *archive.Run) (trials []compare.Trial, missing []string, err error) {
	only := c.StringSlice("stage")
	repetition := map[string]int{}
	for _, t := range run.Report.Trials {
		repetition[t.ID] = t.Repetition
	}
	has := map[string]bool{}
	for _, r := range run.Report.Results {
		has[r.Node] = true
		if r.Result.Panel != nil || r.Result.Comparison != nil || (len(only) > 0 && !slices.Contains(only, r.Stage)) {
			continue
		}
		t := compare.Trial{Run: string(run.Digest), Node: r.Node, Stage: r.Stage, ID: r.Trial, Repetition: repetition[r.Trial], Point: r.Point, Params: run.Report.Experiment.Params, Result: r.Result}
		if c.NArg() == 1 {
			t.Run, t.Params = "", nil
		}
		dir, simulated := path.Join("run", r.Stage), r.Result.Simulated
		if r.Trial != "" {
			dir = path.Join("trials", r.Trial, r.Stage)
		}
		t.Facts = func(ctx context.Context) (*compare.Facts, error) {
			return compare.ReadFacts(simulated, func(output, file string) (io.ReadCloser, error) {
				return run.OpenFile(ctx, path.Join(dir, "outputs", output, file))
			})
		}
		trials = append(trials, t)
	}
	for _, s := range run.Report.Stages {
		if (s.Kind == "measure" || s.Kind == "simulate") && !has[s.Node] && (len(only) == 0 || slices.Contains(only, s.Stage)) {
			missing = append(missing, fmt.Sprintf("%s (%s)", s.Node, s.Status))
		}
	}
	for _, s := range only {
		if !slices.ContainsFunc(run.Report.Stages, func(r schemas.ReportStage) bool { return r.Stage == s }) {
			return nil, nil, fmt.Errorf("--stage %q: run %s has no such stage", s, run.Digest.Short())
		}
	}
	return trials, missing, nil
}

func (c *call) writeChart(doc schemas.Comparison) error {
	name := c.String("chart")
	if name == "" || !doc.Comparable {
		return nil
	}
	if _, err := os.Lstat(name); err == nil {
		return usagef("--chart: %s exists: name a file that does not exist yet", name)
	}
	var svg bytes.Buffer
	if err := compare.SVG(&svg, doc); err != nil {
		return err
	}
	_ = durable.SweepTemps(filepath.Dir(name)) // what a command that was killed left; what cannot be looked at stays
	return durable.WriteFile(name, svg.Bytes(), 0o644)
}
