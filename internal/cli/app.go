package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/archive"
)

// command is one verb.
type command struct {
	name    string
	args    string // how its arguments are written
	summary string
	details string
	example string
	hidden  bool
	// minArgs and maxArgs bound the number of arguments; maxArgs < 0 is no limit.
	minArgs, maxArgs int
	flags            []cli.Flag
	run              func(c *call) error
}

// call is one invocation of a command.
type call struct {
	*cli.Context
	ctx    context.Context
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	argv   []string // as given, for the record
	asJSON bool
	quiet  bool
	wrote  *bool // a JSON document is out
	temps  *cleanup
	bar    *byteBar // the last one, nil for none
	opened *archive.Store
}

// Run carries out one command line (without the program's name) and returns the
// exit code. It never exits the process.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	wrote := false
	out := &checkedWriter{w: stdout}
	base := call{ctx: ctx, stdin: stdin, stdout: out, stderr: stderr, argv: args, asJSON: wantsJSON(args), wrote: &wrote, temps: &cleanup{}}
	name, err := dispatch(base, args)
	if rerr := base.temps.remove(); err == nil {
		err = rerr
	}
	code := exitCode(err)
	if out.err != nil && (err == nil || code == ExitInfra) {
		err, code = fmt.Errorf("write to stdout: %w", out.err), ExitInfra
	}
	var status *statusError
	if err == nil || errors.As(err, &status) {
		return code
	}
	if code == ExitInterrupted {
		err = ErrInterrupted // whatever the end of the context looked like on its way up
	}
	fmt.Fprintln(stderr, safeText(strings.TrimSpace("assay "+name)+": "+err.Error()))
	if base.asJSON && !wrote {
		if werr := base.printJSON(errorDocument(name, err, code)); werr != nil {
			return ExitInfra
		}
	}
	return code
}

// checkedWriter remembers that a write failed: a result that did not arrive is
// no success, whoever printed it.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

func dispatch(base call, args []string) (name string, err error) {
	commands := allCommands()
	line, err := parseCommandLine(commands, args)
	if line.command != nil {
		name = line.command.name
	}
	if err != nil {
		return name, err
	}
	app := newApp(base, commands)
	switch {
	case line.help && base.asJSON:
		return name, base.helpJSON(name, commands)
	case line.help && line.command == nil:
		return name, app.Run([]string{"assay", "--help"})
	case line.help:
		return name, app.Run([]string{"assay", name, "--help"})
	case line.command == nil:
		return name, usagef("no command: see `assay --help`")
	}
	if n := len(line.args); n < line.command.minArgs || (line.command.maxArgs >= 0 && n > line.command.maxArgs) {
		return name, usagef("%d argument(s) given: want `assay %s %s`", n, name, line.command.args)
	}
	return name, app.RunContext(base.ctx, append([]string{"assay"}, line.argv()...))
}

func newApp(base call, commands []*command) *cli.App {
	app := &cli.App{
		Name:                      "assay",
		Usage:                     "run, archive and verify experiments on LLM serving systems",
		HideVersion:               true,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true, // a comma in a value is part of it
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              onUsageError,
		Writer:                    base.stdout,
		ErrWriter:                 base.stderr,
		CustomAppHelpTemplate:     appHelp(commands),
	}
	for _, cmd := range commands {
		app.Commands = append(app.Commands, &cli.Command{
			Name: cmd.name, Usage: cmd.summary, Hidden: cmd.hidden, HideHelpCommand: true,
			Flags:              append(cmd.flags, globalFlags()...),
			OnUsageError:       onUsageError,
			CustomHelpTemplate: commandHelp(cmd),
			Action: func(c *cli.Context) error {
				one := base
				one.Context = c
				if err := one.takeGlobals(); err != nil {
					return err
				}
				return cmd.run(&one)
			},
		})
	}
	return app
}

func onUsageError(_ *cli.Context, err error, _ bool) error { return usagef("%v", err) }

func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "format", Value: "text", Usage: "`text` or json: one JSON document on stdout, errors too"},
		&cli.StringFlag{Name: "store", Usage: "`DIR` of the store (default: $ASSAY_STORE, else ./.assay)"},
		&cli.BoolFlag{Name: "quiet", Usage: "no progress on stderr"},
	}
}

func (c *call) takeGlobals() error {
	switch f := c.String("format"); f {
	case "text", "json":
		c.asJSON = f == "json"
	default:
		return usagef("--format %q: want text or json", f)
	}
	c.quiet = c.Bool("quiet")
	return nil
}

// storeDir is the store that the command works on.
func (c *call) storeDir() string {
	if dir := c.String("store"); dir != "" {
		return dir
	}
	if dir := os.Getenv("ASSAY_STORE"); dir != "" {
		return dir
	}
	return ".assay"
}

// wantsJSON looks for --format json in a command line that may not even parse:
// its error is JSON then, too.
func wantsJSON(args []string) bool {
	for i, a := range args {
		switch strings.TrimPrefix(a, "-") {
		case "-":
			return false
		case "-format=json", "format=json":
			return strings.HasPrefix(a, "-")
		case "-format", "format":
			if strings.HasPrefix(a, "-") && i+1 < len(args) && args[i+1] == "json" {
				return true
			}
		}
	}
	return false
}
