package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

func completionCommand() *command {
	return &command{
		name: "completion", args: "bash|zsh|fish", summary: "print a completion script for a shell", minArgs: 1, maxArgs: 1,
		details: "bash: source <(assay completion bash)\nzsh:  assay completion zsh > \"${fpath[1]}/_assay\"\nfish: assay completion fish > ~/.config/fish/completions/assay.fish",
		example: "assay completion bash > /etc/bash_completion.d/assay",
		run: func(c *call) error {
			writers := map[string]func([]*command) string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
			write, ok := writers[c.Args().First()]
			if !ok {
				return usagef("no completion for %q: want bash, zsh or fish", c.Args().First())
			}
			script := write(allCommands())
			if c.asJSON {
				return c.printJSON(map[string]string{"shell": c.Args().First(), "script": script})
			}
			c.printf("%s", script)
			return nil
		},
	}
}

// longFlags lists the flags of a command, those of every command included, as
// they are typed.
func longFlags(c *command) []string {
	var names []string
	for _, f := range append(append([]cli.Flag{}, c.flags...), globalFlags()...) {
		names = append(names, "--"+f.Names()[0])
	}
	return append(names, "--help")
}

func visible(commands []*command) []*command {
	var list []*command
	for _, c := range commands {
		if !c.hidden {
			list = append(list, c)
		}
	}
	return list
}

func commandNames(commands []*command) string {
	var names []string
	for _, c := range visible(commands) {
		names = append(names, c.name)
	}
	return strings.Join(names, " ")
}

func bashCompletion(commands []*command) string {
	var b strings.Builder
	b.WriteString("# bash completion of assay\n_assay() {\n  local cur=${COMP_WORDS[COMP_CWORD]} cmd= w flags=\n")
	b.WriteString("  for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    case $w in -*) ;; *) cmd=$w; break ;; esac\n  done\n")
	fmt.Fprintf(&b, "  if [[ -z $cmd ]]; then\n    COMPREPLY=($(compgen -W %q -- \"$cur\"))\n    return\n  fi\n  case $cmd in\n", commandNames(commands))
	for _, c := range visible(commands) {
		fmt.Fprintf(&b, "    %s) flags=%q ;;\n", c.name, strings.Join(longFlags(c), " "))
	}
	b.WriteString("  esac\n  if [[ $cur == -* ]]; then\n    COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n  else\n    COMPREPLY=($(compgen -f -- \"$cur\"))\n  fi\n}\n")
	b.WriteString("complete -o filenames -F _assay assay\n")
	return b.String()
}

func zshCompletion(commands []*command) string {
	var b strings.Builder
	b.WriteString("#compdef assay\n_assay() {\n  local -a commands flags\n  local cmd w\n  commands=(\n")
	for _, c := range visible(commands) {
		fmt.Fprintf(&b, "    '%s:%s'\n", c.name, strings.NewReplacer("'", "", ":", " ").Replace(c.summary))
	}
	b.WriteString("  )\n  for w in ${words[2,CURRENT-1]}; do\n    case $w in -*) ;; *) cmd=$w; break ;; esac\n  done\n")
	b.WriteString("  if [[ -z $cmd ]]; then\n    _describe command commands\n    return\n  fi\n  case $cmd in\n")
	for _, c := range visible(commands) {
		fmt.Fprintf(&b, "    %s) flags=(%s) ;;\n", c.name, strings.Join(longFlags(c), " "))
	}
	b.WriteString("  esac\n  if [[ $PREFIX == -* ]]; then\n    compadd -- $flags\n  else\n    _files\n  fi\n}\n_assay \"$@\"\n")
	return b.String()
}

func fishCompletion(commands []*command) string {
	var b strings.Builder
	b.WriteString("# fish completion of assay\n")
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `\'`) + "'" }
	for _, c := range visible(commands) {
		fmt.Fprintf(&b, "complete -c assay -f -n __fish_use_subcommand -a %s -d %s\n", c.name, quote(c.summary))
		for _, f := range longFlags(c) {
			fmt.Fprintf(&b, "complete -c assay -n '__fish_seen_subcommand_from %s' -l %s\n", c.name, strings.TrimPrefix(f, "--"))
		}
	}
	return b.String()
}
