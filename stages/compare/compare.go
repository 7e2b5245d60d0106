package compare

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"assay/internal/durable"
	"assay/internal/report"
	"assay/internal/report/compare"
	"assay/pipeline"
	"assay/schemas"
)

// The outputs, and the files in them. The charts of switches are
// switch-QUANTITY.svg.
const (
	OutputComparison = "comparison"
	OutputResult     = "result"

	ComparisonFile = "comparison.json"
	TextFile       = "comparison.txt"
	ChartFile      = "comparison.svg"
	ResultFile     = "result.json"
	ConditionsFile = "conditions.json"
)

// Kind returns the kind.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "compare", Version: 1,
		Pure:    func(map[string]any) bool { return true },
		Outputs: func(map[string]any) []string { return []string{OutputComparison, OutputResult} },
		Run:     run,
	}
}

func run(ctx context.Context, task *pipeline.Task) error {
	set := schemas.Settings(task.Config)
	trials, err := collect(ctx, task)
	if err != nil {
		return err
	}
	groups, by, err := group(task, set, trials)
	if err != nil {
		return err
	}
	c, err := compare.Compare(ctx, groups, options(set, by))
	if err != nil {
		return err
	}
	if err := write(task, c, groups); err != nil {
		return err
	}
	fmt.Fprintf(task.Log, "%s", compare.Text(c))
	for _, f := range append(slices.Clone(c.Refusals), compare.Outside(c)...) {
		task.Report(f)
	}
	if !c.Comparable {
		return fmt.Errorf("refused, the pairs are not alike: %s: %s", c.Refusals[0].Subject, c.Refusals[0].Message)
	}
	return nil
}

func options(set schemas.Settings, by string) compare.Options {
	o := compare.Options{By: by, Metrics: set.List("metrics"), Differ: set.List("differ"), SameOutput: set.Bool("same_output"), OnlyWorse: set.Bool("only_worse"), Gate: set.Bool("gate"), Limits: map[string]float64{}}
	if set.Has("tolerance") {
		t := set.Float("tolerance")
		o.Tolerance = &t
	}
	for _, t := range set.Tables("limits") {
		o.Limits[t.Text("metric")] = t.Float("tolerance")
	}
	return o
}

// group pairs the trials by what the stage says, or by what its baseline or candidate
// is: a stage, or a value of the only parameter of the matrix.
func group(task *pipeline.Task, set schemas.Settings, trials []compare.Trial) ([]compare.Group, string, error) {
	by, baseline, candidate := set.Text("by"), set.Text("baseline"), set.Text("candidate")
	if by == "" {
		var err error
		if by, err = guess(task, trials, cmp.Or(baseline, candidate)); err != nil {
			return nil, "", err
		}
	}
	if by == schemas.CompareStages {
		groups, err := compare.ByStage(trials, baseline, candidate)
		return groups, by, err
	}
	if len(task.Experiment.Matrix) > 0 && task.Experiment.Matrix[by] == nil {
		return nil, "", fmt.Errorf("by: %q is no parameter of the matrix: there are %s, and stage", by, strings.Join(matrixNames(task), ", "))
	}
	groups, err := compare.ByParam(trials, by, baseline, candidate)
	return groups, by, err
}

func guess(task *pipeline.Task, trials []compare.Trial, named string) (string, error) {
	names := matrixNames(task)
	switch {
	case named != "" && slices.ContainsFunc(trials, func(t compare.Trial) bool { return t.Stage == named }):
		return schemas.CompareStages, nil
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return schemas.CompareStages, nil
	}
	return "", fmt.Errorf("by is missing: say which parameter is compared, of %s, or stage", strings.Join(names, ", "))
}

func matrixNames(task *pipeline.Task) []string {
	var names []string
	for name := range task.Experiment.Matrix {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// comparable says whether results of the kind have requests that can be paired.
func comparable(kind string) bool { return kind == "measure" || kind == "simulate" }

// collect makes a trial of each result that this stage needs.
func collect(ctx context.Context, task *pipeline.Task) ([]compare.Trial, error) {
	type key struct{ stage, trial string }
	outputs := map[key]map[string]pipeline.UpstreamOutput{}
	var order []key
	for _, up := range task.Upstream {
		if !comparable(up.Kind) {
			continue
		}
		k := key{up.Stage, up.Trial.ID}
		if outputs[k] == nil {
			outputs[k] = map[string]pipeline.UpstreamOutput{}
			order = append(order, k)
		}
		outputs[k][up.Name] = up
	}
	var trials []compare.Trial
	for _, k := range order {
		t, err := newTrial(ctx, outputs[k])
		if err != nil {
			return nil, fmt.Errorf("result of %s: %w", cmp.Or(k.stage+"@"+k.trial, k.stage), err)
		}
		trials = append(trials, t)
	}
	if len(trials) == 0 {
		return nil, errors.New("there is no result to compare: name measure or simulate stages in needs")
	}
	return trials, nil
}

func newTrial(ctx context.Context, outputs map[string]pipeline.UpstreamOutput) (compare.Trial, error) {
	up := outputs["result"]
	t := compare.Trial{Node: up.Stage, Stage: up.Stage, ID: up.Trial.ID, Repetition: up.Trial.Repetition, Point: up.Trial.Point}
	if up.Path == nil {
		return t, errors.New("there is none")
	}
	if t.ID != "" {
		t.Node += "@" + t.ID
	}
	open := func(output, file string) (io.ReadCloser, error) { return openOutput(ctx, outputs, output, file) }
	var err error
	if t.Result, err = compare.ReadResult(open); err != nil {
		return t, err
	}
	simulated := up.Kind == "simulate"
	t.Facts = func(context.Context) (*compare.Facts, error) { return compare.ReadFacts(simulated, open) }
	return t, nil
}

// openOutput opens a file of an output, which is a folder or the file itself.
func openOutput(ctx context.Context, outputs map[string]pipeline.UpstreamOutput, output, file string) (io.ReadCloser, error) {
	up, ok := outputs[output]
	if !ok {
		return nil, fmt.Errorf("output %s: %w", output, fs.ErrNotExist)
	}
	path, err := up.Path(ctx)
	if err != nil {
		return nil, err
	}
	if filepath.Base(path) != file {
		path = filepath.Join(path, file)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("output %s: %s: %w", output, file, plain(err))
	}
	return f, nil
}

// plain is an error without the path that stands in it, which is of this machine.
func plain(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func write(task *pipeline.Task, c schemas.Comparison, groups []compare.Group) error {
	doc, err := encode("compare", c)
	if err != nil {
		return err
	}
	res, err := encode("result", compare.Result(c))
	if err != nil {
		return err
	}
	var chart bytes.Buffer
	if err := compare.SVG(&chart, c); err != nil {
		return err
	}
	files := map[string][]byte{ComparisonFile: doc, TextFile: []byte(compare.Text(c)), ChartFile: chart.Bytes()}
	if err := switchCharts(files, c, groups); err != nil {
		return err
	}
	if err := put(task, OutputComparison, files); err != nil {
		return err
	}
	return put(task, OutputResult, map[string][]byte{ResultFile: res, ConditionsFile: []byte("[]\n")})
}

// switchCharts adds heat maps of every quantity of switches, side by side, and their
// tables.
func switchCharts(files map[string][]byte, c schemas.Comparison, groups []compare.Group) error {
	maps := compare.SwitchMaps(groups)
	if len(maps) == 0 || !c.Comparable {
		return nil
	}
	note := ""
	if c.Emulated {
		note = "emulated: latencies are made up"
	}
	var text strings.Builder
	for _, m := range maps {
		fmt.Fprintf(&text, "%s\n%s", m.Name, report.SwitchText(m.Matrix))
	}
	files["switch.txt"] = []byte(text.String())
	for _, metric := range report.SwitchMetrics {
		if _, ok := maps[0].Matrix.All[metric]; !ok {
			continue
		}
		var svg bytes.Buffer
		if err := report.SwitchSVG(&svg, "Switches by "+c.By, metric, note, maps); err != nil {
			return err
		}
		files["switch-"+strings.TrimSuffix(metric, "_ms")+".svg"] = svg.Bytes()
	}
	return nil
}

func encode(schema string, v any) ([]byte, error) {
	b, err := schemas.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", schema, err)
	}
	if err := schemas.Validate(schema, b); err != nil {
		return nil, fmt.Errorf("%s: %w", schema, err)
	}
	return append(b, '\n'), nil
}

func put(task *pipeline.Task, output string, files map[string][]byte) error {
	dir, err := task.OutputDir(output)
	if err != nil {
		return err
	}
	for name, b := range files {
		if err := durable.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return &pipeline.InfraError{Op: "write " + name, Err: err}
		}
	}
	return nil
}
