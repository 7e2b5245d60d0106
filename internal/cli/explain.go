package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"assay/pipeline"
	"assay/schemas"
)

func explainCommand() *command {
	return &command{
		name: "explain", args: "FILE [STAGE]", summary: "say of each stage whether it would be reused or run, and why", minArgs: 1, maxArgs: 2,
		details: "Compares the key of each stage with the most similar earlier record in the\nstore, field by field. Starts nothing and writes nothing.",
		example: "assay explain quickstart --set rate=4",
		flags:   append(experimentFlags(), rehashFlag(), sourceFlag(), plainHTTPFlag()),
		run:     runExplain,
	}
}

type explainDoc struct {
	Experiment string                 `json:"experiment"`
	Digest     schemas.Digest         `json:"experiment_digest"`
	Nodes      []pipeline.Explanation `json:"nodes"`
}

func runExplain(c *call) (err error) {
	l, err := c.load()
	if err != nil {
		return err
	}
	stage := c.Args().Get(1)
	if _, ok := l.Experiment.Stage[stage]; stage != "" && !ok {
		return usagef("%s has no stage %q%s", l.File, stage, nearestStage(l, stage))
	}
	source, err := c.openSource(l, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	store, dir, err := c.readStore()
	if err != nil {
		return err
	}
	opts := l.options(store, dir, source)
	opts.Rehash = c.Bool("rehash")
	list, err := pipeline.Explain(c.ctx, opts)
	if err != nil {
		return err
	}
	if stage != "" {
		list = slices.DeleteFunc(list, func(x pipeline.Explanation) bool { return x.Stage != stage })
	}
	if c.asJSON {
		return c.printJSON(explainDoc{l.Experiment.Name, l.plan.Digest, list})
	}
	for _, x := range list {
		c.printf("%s", explanationText(x))
	}
	return nil
}

func nearestStage(l *loaded, name string) string {
	var names []string
	for n := range l.Experiment.Stage {
		names = append(names, n)
	}
	slices.Sort(names)
	if near := schemas.Nearest(name, names); near != "" {
		return " (did you mean " + near + "?)"
	}
	return "; it has " + strings.Join(names, ", ")
}

func explanationText(x pipeline.Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-7s %s (%s): %s\n", x.Decision, x.Node, x.Kind, x.Reason)
	if x.Decision == "reuse" {
		fmt.Fprintf(&b, "        from run %s, key %s\n", x.From, x.Key.Short())
	}
	for _, d := range x.Differences {
		fmt.Fprintf(&b, "        %s: %s -> %s\n", d.Field, side(d.Before), side(d.After))
	}
	return b.String()
}

func side(v any) string {
	if v == nil {
		return "(none)"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// readStore gives the store to read, or an empty one while there is none:
// nothing is written for a question.
func (c *call) readStore() (pipeline.Store, string, error) {
	s, err := c.existing()
	switch {
	case err != nil:
		return nil, "", err
	case s == nil:
		return noStore{}, c.storeDir(), nil
	}
	return s, s.Dir(), nil
}

// noStore is a store without any record, for plans that are not executed.
type noStore struct{ pipeline.Store }

// RecordsByKey finds none.
func (noStore) RecordsByKey(context.Context, schemas.Key) ([]schemas.StoredRecord, error) {
	return nil, nil
}

// RecordsByStage finds none.
func (noStore) RecordsByStage(context.Context, string, string) ([]schemas.StoredRecord, error) {
	return nil, nil
}

// Preimage finds none.
func (noStore) Preimage(context.Context, schemas.Key) ([]byte, error) { return nil, fs.ErrNotExist }
