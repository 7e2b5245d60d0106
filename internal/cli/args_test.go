package cli

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
	"pgregory.net/rapid"
)

// arguments gives a command as many arguments as it needs.
func arguments(c *command) []string {
	args := []string{}
	for range c.minArgs {
		args = append(args, "ARG")
	}
	return args
}

// TestFlagsAnywhere puts every flag of every command before the command where
// that is allowed, between command and arguments, and after them.
func TestFlagsAnywhere(t *testing.T) {
	commands := allCommands()
	for _, c := range commands {
		for _, f := range append(globalFlags(), c.flags...) {
			name := f.Names()[0]
			given, want := []string{"--" + name, "VALUE"}, "--"+name+"=VALUE"
			switch _, isBool := f.(*cli.BoolFlag); {
			case isBool:
				given, want = []string{"--" + name}, "--"+name
			case name == "resume":
				given[1], want = "20060102T150405Z-0123abcd", "--resume=20060102T150405Z-0123abcd"
			}
			args := arguments(c)
			lines := map[string][]string{
				"before": slices.Concat([]string{c.name}, given, args),
				"after":  slices.Concat([]string{c.name}, args, given),
			}
			if slices.ContainsFunc(globalFlags(), func(g cli.Flag) bool { return g.Names()[0] == name }) {
				lines["first"] = slices.Concat(given, []string{c.name}, args)
			}
			for where, line := range lines {
				got, err := parseCommandLine(commands, line)
				if err != nil {
					t.Errorf("%s, flag %s %s: %v", c.name, name, where, err)
					continue
				}
				if got.command.name != c.name || !cmp.Equal(got.flags, []string{want}) || !slices.Equal(got.args, args) {
					t.Errorf("%s, flag %s %s: got flags %q and arguments %q", c.name, name, where, got.flags, got.args)
				}
			}
		}
	}
}

// TestUnknownFlags runs every command with a flag it does not have.
func TestUnknownFlags(t *testing.T) {
	for _, c := range allCommands() {
		for where, line := range map[string][]string{
			"before":        slices.Concat([]string{c.name, "--nonsense"}, arguments(c)),
			"after":         slices.Concat([]string{c.name}, arguments(c), []string{"--nonsense"}),
			"with a value":  slices.Concat([]string{c.name}, arguments(c), []string{"--nonsense=x"}),
			"one dash":      slices.Concat([]string{c.name}, arguments(c), []string{"-nonsense"}),
			"first":         slices.Concat([]string{"--nonsense", c.name}, arguments(c)),
			"after a known": slices.Concat([]string{c.name, "--quiet"}, arguments(c), []string{"--nonsense"}),
		} {
			var out, errs bytes.Buffer
			code := Run(context.Background(), line, strings.NewReader(""), &out, &errs)
			if code != ExitUsage || !strings.Contains(errs.String(), "unknown flag -") || out.Len() > 0 {
				t.Errorf("%s %s: code %d, stdout %q, stderr %q", c.name, where, code, &out, &errs)
			}
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		name string
		line []string
		want []string
		err  string
	}{
		{"comma is kept", []string{"run", "F", "--set", "prompt=Hello, world"}, []string{"run", "--set=prompt=Hello, world", "--", "F"}, ""},
		{"several values", []string{"run", "--set", "a=1", "F", "--set=b=2"}, []string{"run", "--set=a=1", "--set=b=2", "--", "F"}, ""},
		{"dashes end flags", []string{"show", "--", "--files"}, []string{"show", "--", "--files"}, ""},
		{"one dash", []string{"show", "-files", "R"}, []string{"show", "--files", "--", "R"}, ""},
		{"a lone dash is an argument", []string{"show", "-"}, []string{"show", "--", "-"}, ""},
		{"resume alone", []string{"run", "F", "--resume"}, []string{"run", "--resume=newest", "--", "F"}, ""},
		{"resume before a file", []string{"run", "--resume", "F"}, []string{"run", "--resume=newest", "--", "F"}, ""},
		{"resume a run", []string{"run", "--resume", "20060102T150405Z-0123abcd", "F"}, []string{"run", "--resume=20060102T150405Z-0123abcd", "--", "F"}, ""},
		{"bool with a value", []string{"ls", "--quiet=false"}, []string{"ls", "--quiet=false", "--"}, ""},
		{"value with a dash", []string{"run", "F", "--set=x=-1"}, []string{"run", "--set=x=-1", "--", "F"}, ""},
		{"missing value", []string{"run", "F", "--set"}, nil, "needs a value"},
		{"flag for a value", []string{"run", "F", "--tag", "--quiet"}, nil, "write --tag=--quiet"},
		{"near flag", []string{"run", "F", "--tga=x"}, nil, "did you mean --tag"},
		{"near command", []string{"verfy", "F"}, nil, "did you mean verify"},
		{"no command", []string{"--", "ls"}, nil, "no command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseCommandLine(allCommands(), c.line)
			if c.err != "" {
				var usage *usageError
				if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want a usage error with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.argv()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOrderIsFree moves flags about between arguments: what is understood stays
// the same.
func TestOrderIsFree(t *testing.T) {
	commands := allCommands()
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(rapid.StringMatching(`[a-zA-Z0-9./:= ,]{1,12}`), 0, 4).Draw(t, "args")
		flags := rapid.SliceOfN(rapid.SampledFrom([]string{"--quiet", "--format=json", "--set=a=b, c", "--tag=x", "--resume=20060102T150405Z-0123abcd"}), 0, 5).Draw(t, "flags")
		line, rest := []string{"run"}, slices.Clone(args)
		for _, f := range flags {
			n := rapid.IntRange(0, len(rest)).Draw(t, "n")
			line = append(append(line, rest[:n]...), f)
			rest = rest[n:]
		}
		got, err := parseCommandLine(commands, append(line, rest...))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.flags, flags) || !slices.Equal(got.args, args) {
			t.Fatalf("line %q: flags %q, arguments %q", line, got.flags, got.args)
		}
	})
}

func FuzzCommandLine(f *testing.F) {
	for _, s := range []string{"run\x00F\x00--set\x00a=b", "--format\x00json\x00ls", "show\x00--\x00-x", "run\x00--resume\x00F", "-\x00--", "--=\x00-"} {
		f.Add(s)
	}
	commands := allCommands()
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseCommandLine(commands, strings.Split(s, "\x00"))
		if err != nil {
			if exitCode(err) != ExitUsage {
				t.Fatalf("%v has exit code %d", err, exitCode(err))
			}
			return
		}
		if got.command == nil {
			return
		}
		again, err := parseCommandLine(commands, got.argv())
		if err != nil || !slices.Equal(again.argv(), got.argv()) {
			t.Fatalf("%q is read as %q, which is read as %q (%v)", s, got.argv(), again.argv(), err)
		}
	})
}
