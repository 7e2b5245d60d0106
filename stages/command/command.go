package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"assay/internal/durable"
	"assay/pipeline"
	"assay/schemas"
)

// shell is what runs argv when shell = true.
const shell = "/bin/sh"

// Kind returns the kind.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "command", Version: 1,
		Pure:     func(config map[string]any) bool { return schemas.Settings(config).Bool("reuse") },
		Seed:     seed,
		Requires: requires,
		Outputs: func(config map[string]any) []string {
			return slices.Sorted(maps.Keys(schemas.Settings(config).Texts("outputs")))
		},
		Run: run,
	}
}

func seed(config map[string]any) pipeline.SeedUse {
	if schemas.Settings(config).Bool("seeded") {
		return pipeline.SeedRepetition
	}
	return pipeline.SeedNone
}

// requires names the programs whose content enters the key: the one that is run,
// unless it is a relative path and so lies in the private folder, and the tools.
func requires(config map[string]any) pipeline.Requirements {
	set := schemas.Settings(config)
	var tools []string
	if set.Bool("shell") {
		tools = append(tools, shell)
	} else if argv := set.List("argv"); len(argv) > 0 && (filepath.IsAbs(argv[0]) || !strings.Contains(argv[0], "/")) {
		tools = append(tools, argv[0])
	}
	for _, t := range set.List("tools") {
		if !slices.Contains(tools, t) {
			tools = append(tools, t)
		}
	}
	return pipeline.Requirements{Tools: tools, PassEnv: set.List("pass_env")}
}

func run(ctx context.Context, task *pipeline.Task) error {
	set := schemas.Settings(task.Config)
	argv, err := arguments(set)
	if err != nil {
		return err
	}
	outputs := set.Texts("outputs")
	if err := checkOutputs(outputs); err != nil {
		return err
	}
	if err := linkInputs(task, set.Texts("inputs")); err != nil {
		return err
	}
	code, err := execute(ctx, task, argv)
	if err != nil {
		return err
	}
	if !okExit(set, code) {
		return fmt.Errorf("%s exited with code %d; see logs/stderr.log", argv[0], code)
	}
	return publish(task, outputs)
}

func arguments(set schemas.Settings) ([]string, error) {
	argv := set.List("argv")
	switch {
	case len(argv) == 0 || argv[0] == "":
		return nil, errors.New("argv is empty: name a program")
	case !set.Bool("shell"):
		return argv, nil
	case len(argv) != 1:
		return nil, fmt.Errorf("shell = true takes argv of one string, have %d", len(argv))
	}
	return []string{shell, "-c", argv[0]}, nil
}

var inputName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// linkInputs makes each input appear in the private folder. The links point at
// the inputs themselves: what is written through them is seen as a change.
func linkInputs(task *pipeline.Task, inputs map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if !inputName.MatchString(name) {
			return fmt.Errorf("input %q: a name is made of letters, digits, '.', '_' and '-'", name)
		}
		if err := durable.Symlink(inputs[name], filepath.Join(task.Work, name)); err != nil {
			return fmt.Errorf("input %s: %w", name, err)
		}
	}
	return nil
}

func execute(ctx context.Context, task *pipeline.Task, argv []string) (int, error) {
	out, err := openLog(task, "stdout.log")
	if err != nil {
		return -1, err
	}
	errLog, err := openLog(task, "stderr.log")
	if err != nil {
		return -1, errors.Join(err, out.Close())
	}
	both := &lockedWriter{w: task.Log}
	code, err := task.Supervise.Run(ctx, pipeline.Command{
		Argv: argv, Dir: task.Work, Env: task.Env, Stdout: io.MultiWriter(out, both), Stderr: io.MultiWriter(errLog, both),
	})
	if task.Exited != nil && (err == nil || code != -1) {
		task.Exited(code)
	}
	if cerr := errors.Join(out.Close(), errLog.Close()); err == nil {
		err = cerr
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	if err != nil {
		return code, fmt.Errorf("run %s: %w", argv[0], err)
	}
	return code, nil
}

// logFile is a log on disk behind the filter that cuts secrets out.
type logFile struct {
	io.Writer
	filter io.Closer // nil for none
	file   *os.File
}

func openLog(task *pipeline.Task, name string) (*logFile, error) {
	f, err := os.OpenFile(filepath.Join(task.Dir, "logs", name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	if task.Filter == nil {
		return &logFile{Writer: f, file: f}, nil
	}
	filter := task.Filter(f)
	return &logFile{Writer: filter, filter: filter, file: f}, nil
}

// Close writes what the filter held back.
func (l *logFile) Close() error {
	var err error
	if l.filter != nil {
		err = l.filter.Close()
	}
	return errors.Join(err, l.file.Close())
}

// okExit says whether the code counts as success: those of ok_exit, else 0.
func okExit(set schemas.Settings, code int) bool {
	list := set.List("ok_exit")
	if len(list) == 0 {
		return code == 0
	}
	return slices.Contains(list, strconv.Itoa(code))
}
