package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"assay/experiments"
	"assay/internal/supervise"
	"assay/pipeline"
	"assay/schemas"
	"assay/stages"
)

// experimentFlags are those of every command that reads an experiment file.
func experimentFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "set", Usage: "override a parameter: `NAME=VALUE`, again for another (a path is relative to the current folder)"},
		&cli.StringFlag{Name: "machine", Usage: "machine `FILE`, or none (default: " + experiments.MachineFile + " beside the store, if it is there)"},
	}
}

// sourceFlag names the run whose outputs an experiment uses.
func sourceFlag() cli.Flag {
	return &cli.StringFlag{Name: "source-run", Usage: "the earlier run `REF` that ${source.PATH} reads; it is verified first"}
}

// rehashFlag distrusts what stat says.
func rehashFlag() cli.Flag {
	return &cli.BoolFlag{Name: "rehash", Usage: "read every input and output, also files that look unchanged since they were last read: finds what stat cannot show, as a write through a mapping made before"}
}

// loaded is a valid experiment with its plan.
type loaded struct {
	*experiments.Loaded
	plan  schemas.Plan
	kinds []pipeline.Kind
}

// load reads the experiment that the first argument names and plans it.
func (c *call) load() (*loaded, error) {
	beside, err := filepath.Abs(filepath.Dir(c.storeDir()))
	if err != nil {
		return nil, fmt.Errorf("folder of the store: %w", err)
	}
	opts := experiments.Options{Sets: c.StringSlice("set"), Machine: c.String("machine"), MachineDir: beside}
	exp, err := experiments.Load(c.Args().First(), opts)
	if err != nil {
		return nil, withCode(ExitUsage, err)
	}
	return planned(exp)
}

func planned(exp *experiments.Loaded) (*loaded, error) {
	kinds := stages.Kinds()
	plan, err := pipeline.NewPlan(exp.Experiment, kinds)
	if err != nil {
		return nil, withCode(ExitUsage, fmt.Errorf("%s: %w", exp.File, err))
	}
	return &loaded{Loaded: exp, plan: plan, kinds: kinds}, nil
}

// withChecks adds a preflight stage to an experiment that has none, in memory:
// its checks can be asked for although it does not ask itself.
func (l *loaded) withChecks() (*loaded, error) {
	for _, s := range l.Experiment.Stage {
		if s.Kind == preflightKind {
			return l, nil
		}
	}
	name := preflightKind
	for l.Experiment.Stage[name].Kind != "" {
		name += "-checks"
	}
	copied := *l.Loaded
	copied.Experiment.Stage = map[string]schemas.StageDef{name: {Kind: preflightKind, Scope: schemas.ScopeRun, Config: map[string]any{}}}
	for k, v := range l.Experiment.Stage {
		copied.Experiment.Stage[k] = v
	}
	return planned(&copied)
}

const preflightKind = "preflight"

// options is what a run and an explanation have in common.
func (l *loaded) options(store pipeline.Store, storeDir string, source *sourceRun) pipeline.Options {
	opts := pipeline.Options{
		Experiment: l.Experiment, Source: l.Source, Plan: l.plan, Kinds: l.kinds, Store: store, StoreDir: storeDir, BaseDir: l.Dir, ParamPaths: l.ParamPaths,
		Machine: pipeline.MachineFacts{Values: l.Machine.Values, Secret: revealSecret(l.Machine), ServiceEnv: l.Machine.Env, Checkpoints: l.Machine.Checkpoints, Facts: l.Machine.Facts},
		Now:     time.Now,
	}
	if source != nil {
		opts.SourceDir, opts.Sources = source.dir, []schemas.SourceRun{source.run}
		opts.SourcePaths, opts.SourceArchive, opts.SourceFindings = source.paths, source.archives, source.findings
	}
	return opts
}

func revealSecret(m experiments.Machine) func(string) (string, error) {
	return func(name string) (string, error) {
		s, err := m.Secret(name)
		if err != nil {
			return "", err
		}
		return s.Reveal(), nil
	}
}

// consumed lists the paths of the source run that the experiment reads.
func (l *loaded) consumed() []string {
	var paths []string
	for _, s := range l.Experiment.Stage {
		paths = append(paths, sourcePaths(s.Config)...)
	}
	for _, s := range l.Experiment.Service {
		paths = append(paths, sourcePaths(s.Config)...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func sourcePaths(config map[string]any) (paths []string) {
	for _, ref := range schemas.References(config) {
		if ref.Namespace == schemas.RefSource {
			paths = append(paths, ref.Names[0])
		}
	}
	return paths
}

// supervisor runs the programs of stages under a supervisor of ours.
type supervisor struct{}

var _ pipeline.Supervisor = supervisor{}

// Run implements pipeline.Supervisor.
func (supervisor) Run(ctx context.Context, cmd pipeline.Command) (int, error) {
	return supervise.Run(ctx, supervise.Spec{Argv: cmd.Argv, Dir: cmd.Dir, Env: cmd.Env, Stdout: cmd.Stdout, Stderr: cmd.Stderr, Token: cmd.Token})
}

func sweep(token string) error {
	_, err := supervise.Sweep(token)
	return err
}
