package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"

	"assay/internal/durable"
	"assay/schemas"
)

// Kind is one sort of work, passed in as a value. The zero value of every
// optional function means "no".
type Kind struct {
	Name string
	// Version is part of every key; it is raised when equal inputs may give
	// another result.
	Version int
	// Measured stages run alone and are never reused.
	Measured bool
	// Early kinds run before everything else when they need nothing.
	Early bool
	// Pure says whether an equal key gives an equal result, so that an earlier
	// one may be used. It sees the resolved configuration.
	Pure func(config map[string]any) bool
	// Seed says which seed the result depends on.
	Seed func(config map[string]any) SeedUse
	// Requires lists what the stage reads beyond its path keys, before it runs.
	Requires func(config map[string]any) Requirements
	// Outputs lists the names a stage with this configuration publishes.
	Outputs func(config map[string]any) []string
	// Run does the work. It must write only below task.Work and task.Dir, put
	// results where task.OutputFile and task.OutputDir say, and return when everything it started has ended.
	Run func(ctx context.Context, task *Task) error
}

// SeedUse is which seed a stage's result depends on.
type SeedUse int

// The uses of seeds. A pure stage without a seed is not repeated over trials.
const (
	SeedNone       SeedUse = iota
	SeedExperiment         // one for all repetitions
	SeedRepetition         // one of its own for each repetition, equal across matrix points
)

// Requirements are influences on a result that are not paths in the file.
type Requirements struct {
	// Inputs: logical name -> absolute or machine path, in addition to path keys.
	Inputs map[string]string
	// Tools are programs, by name or path, whose content enters the key. A bare
	// name is looked up in the PATH that the stage's environment has.
	Tools []string
	// PassEnv are variables of the caller whose values enter the key.
	PassEnv []string
}

// Task is one execution of a stage as its kind sees it.
type Task struct {
	Node  schemas.Node
	Trial schemas.Trial // zero for run scope
	// Config is the stage's configuration with every ${...} resolved: path keys
	// hold absolute paths that exist.
	Config map[string]any
	Seed   uint64
	// Work is the stage's private, empty folder; it is not archived.
	Work string
	// Dir is what is archived of the execution: Dir/outputs is what it publishes
	// (through OutputFile and OutputDir), Dir/logs stands beside it.
	Dir string
	// Log goes to Dir/logs/stage.log.
	Log io.Writer
	// Inputs holds every declared input: logical name -> absolute path.
	Inputs map[string]string
	// Env holds the variables a child process may see: allow-listed ones, passed
	// ones, and secrets. Nothing else is inherited.
	Env []string
	// Service is the service the stage uses, nil for none.
	Service *ServiceView
	// Upstream holds the outputs of the stages it needs, in plan order.
	Upstream []UpstreamOutput
	// Models are the experiment's models with what is known of their checkpoints.
	Models []ModelIdentity
	// Experiment is the effective experiment.
	Experiment schemas.Experiment
	// Trials are all trials of the plan, for checks of the whole experiment.
	Trials []schemas.Trial
	// Resolve gives text of the experiment as a stage of the trial will see it,
	// as far as it is known before anything runs; ErrNotYet when an output, a
	// source run or a service's URL stands in it that is not there.
	Resolve func(text string, trial schemas.Trial) (string, error)
	// Abs gives the absolute path of one that is relative to the experiment file.
	Abs func(path string) string
	// Fingerprint computes a checkpoint's fingerprint at a level, as the one that
	// enters keys is.
	Fingerprint func(ctx context.Context, path, level string) (schemas.Digest, error)
	// ServiceEnv is what the machine file sets for services, as written: service
	// -> variable -> text.
	ServiceEnv map[string]map[string]string
	// Checkpoints are the machine file's folders of weights by the names of models,
	// Facts what it says of the machine that serves.
	Checkpoints, Facts map[string]string
	// Host are recorded facts of the host that serves; nil where it is this machine.
	Host *schemas.HostFacts
	// Filter puts a filter in front of a log that cuts secrets out; Close writes
	// what it holds back and leaves w open. Log is filtered already.
	Filter func(w io.Writer) io.WriteCloser
	// Hide returns text with secrets cut out: what a service answers may hold one.
	Hide func(text string) string
	// Exited notes the exit code of the program that the stage ran, for its record.
	Exited func(code int)
	// StoreDir is where the store lies, for checks of room.
	StoreDir string
	// Supervise starts child processes so that nothing outlives this one.
	Supervise Supervisor
	// Report takes findings; they land in the stage's record.
	Report func(schemas.Finding)
	// Progress takes a short state for people: done of total in unit.
	Progress func(done, total int64, note string)

	outputs map[string]string // name -> path below Dir
}

// ErrNotYet means that a value is known only once something has run.
var ErrNotYet = errors.New("not known before the run")

// OutputFile returns where to write the file that is the output name.
func (t *Task) OutputFile(name, base string) (string, error) {
	return t.declare(name, path.Join("outputs", name, base), path.Join("outputs", name))
}

// OutputDir returns a new folder that is the output name.
func (t *Task) OutputDir(name string) (string, error) {
	dir := path.Join("outputs", name)
	return t.declare(name, dir, dir)
}

func (t *Task) declare(name, rel, dir string) (string, error) {
	if t.outputs == nil {
		t.outputs = map[string]string{}
	}
	t.outputs[name] = rel
	if err := durable.MkdirAll(filepath.Join(t.Dir, filepath.FromSlash(dir))); err != nil {
		return "", fmt.Errorf("output %s: %w", name, err)
	}
	return filepath.Join(t.Dir, filepath.FromSlash(rel)), nil
}

// ModelIdentity is a model and its checkpoint's fingerprint.
type ModelIdentity struct {
	ID          string // name in the experiment
	Name        string // name requests use
	Fingerprint schemas.Digest
	Level       string
	Unknown     string // why there is no fingerprint
}

// ServiceView is a running service as a stage sees it.
type ServiceView struct {
	Name     string
	Engine   string
	URL      string
	Models   []string
	Emulated bool
	// Asking is how it has to be asked.
	Asking schemas.Asking
	// ReadyMs is the time from the start of its process until it was ready; nil for
	// one that was attached to.
	ReadyMs *float64
	// Uses counts the stages that this lifetime of the service has served before.
	Uses int
	// Relist asks the service anew which models it has, for the stages that follow;
	// nil where it cannot be asked.
	Relist func(ctx context.Context) error
	// Log is its log while it lives, GraphArchive the folder of its archives of CUDA
	// graphs, Config its configuration as written; "" for what there is not.
	Log, GraphArchive, Config string
	// PID is the service's first process, 0 for one that was attached to.
	PID int
	// Dead reports why the service is gone, or "" while it lives.
	Dead func() string
	// Done is closed when the service is gone.
	Done <-chan struct{}
}

// UpstreamOutput is one output of a stage that this one needs.
type UpstreamOutput struct {
	Stage  string
	Kind   string
	Trial  schemas.Trial
	Name   string
	Digest schemas.Digest
	// Path returns where it lies, read-only, made on first use.
	Path func(ctx context.Context) (string, error)
}

// Command is a child process to run to its end.
type Command struct {
	Argv   []string
	Dir    string
	Env    []string
	Stdout io.Writer
	Stderr io.Writer
	// Token marks the processes, so that a later assay can end what is left of a
	// run that was killed together with its supervisors. It is set by the pipeline.
	Token string
}

// Supervisor runs a command and its whole process tree to the end. A signal that
// ended it is an error. When ctx ends, the tree is stopped.
type Supervisor interface {
	Run(ctx context.Context, cmd Command) (exitCode int, err error)
}
