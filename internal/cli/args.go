package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/schemas"
)

// The CLI library stops looking for flags at the first argument. Users put them
// anywhere, and a flag that is silently taken for an argument can spoil an
// experiment, so the command line is put in order before the library sees it:
// command, flags as --name=value, "--", arguments. What is not a flag of the
// command is refused here, wherever it stands.

// runIDPattern is how a run id looks; pipeline.NewRunID makes them.
var runIDPattern = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}$`)

// resumeNewest is the value of --resume without one.
const resumeNewest = "newest"

type commandLine struct {
	command *command // nil when none was named
	flags   []string
	args    []string
	help    bool
}

// argv is the ordered form.
func (l commandLine) argv() []string {
	if l.command == nil {
		return l.flags
	}
	return slices.Concat([]string{l.command.name}, l.flags, []string{"--"}, l.args)
}

func parseCommandLine(commands []*command, args []string) (commandLine, error) {
	var l commandLine
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			if l.command == nil {
				return l, usagef("no command before --: see `assay --help`")
			}
			l.args = append(l.args, args...)
			return l, nil
		case len(arg) > 1 && arg[0] == '-':
			used, err := l.takeFlag(arg, args)
			if err != nil {
				return l, err
			}
			args = args[used:]
		case l.command == nil:
			cmd, err := findCommand(commands, arg)
			if err != nil {
				return l, err
			}
			l.command = cmd
		default:
			l.args = append(l.args, arg)
		}
	}
	return l, nil
}

// takeFlag adds the flag arg, and says how many of the arguments after it are
// its value.
func (l *commandLine) takeFlag(arg string, rest []string) (used int, err error) {
	name, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
	flag := l.flag(name)
	if flag == nil {
		return 0, l.unknownFlag(arg, name)
	}
	name = flag.Names()[0]
	if name == "help" {
		l.help = true
		return 0, nil
	}
	if _, ok := flag.(*cli.BoolFlag); ok {
		if hasValue {
			l.flags = append(l.flags, "--"+name+"="+value)
		} else {
			l.flags = append(l.flags, "--"+name)
		}
		return 0, nil
	}
	if !hasValue {
		value, used, err = l.separateValue(name, rest)
		if err != nil {
			return 0, err
		}
	}
	l.flags = append(l.flags, "--"+name+"="+value)
	return used, nil
}

func (l *commandLine) separateValue(name string, rest []string) (string, int, error) {
	if name == "resume" {
		if len(rest) > 0 && runIDPattern.MatchString(rest[0]) {
			return rest[0], 1, nil
		}
		return resumeNewest, 0, nil
	}
	if len(rest) == 0 {
		return "", 0, usagef("--%s needs a value", name)
	}
	if len(rest[0]) > 1 && rest[0][0] == '-' {
		return "", 0, usagef("--%s needs a value; if %s is meant, write --%s=%s", name, rest[0], name, rest[0])
	}
	return rest[0], 1, nil
}

// flag finds a flag of the command or one that every command has.
func (l *commandLine) flag(name string) cli.Flag {
	for _, f := range l.allFlags() {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func (l *commandLine) allFlags() []cli.Flag {
	flags := globalFlags()
	if l.command != nil {
		flags = append(flags, l.command.flags...)
	}
	return append(flags, cli.HelpFlag)
}

func (l *commandLine) unknownFlag(arg, name string) error {
	var names []string
	for _, f := range l.allFlags() {
		names = append(names, f.Names()...)
	}
	hint := ""
	if near := schemas.Nearest(name, names); near != "" {
		hint = " (did you mean --" + near + "?)"
	}
	if l.command == nil {
		return usagef("unknown flag %s before the command%s: flags of a command stand after it", arg, hint)
	}
	return usagef("unknown flag %s%s: see `assay %s --help`", arg, hint, l.command.name)
}

func findCommand(commands []*command, name string) (*command, error) {
	var names []string
	for _, c := range commands {
		if c.name == name {
			return c, nil
		}
		if !c.hidden {
			names = append(names, c.name)
		}
	}
	hint := ""
	if near := schemas.Nearest(name, names); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	return nil, usagef("unknown command %q%s: see `assay --help`", name, hint)
}
