package cli

import (
	"fmt"
	"strings"
)

type helpDoc struct {
	Command string `json:"command,omitempty"`
	Help    string `json:"help"`
}

// helpJSON prints the help of a command, or of all, in one JSON document.
func (c call) helpJSON(name string, commands []*command) error {
	var text strings.Builder
	one := c
	one.stdout = &text
	args := []string{"assay", "--help"}
	if name != "" {
		args = []string{"assay", name, "--help"}
	}
	if err := newApp(one, commands).Run(args); err != nil {
		return err
	}
	return c.printJSON(helpDoc{name, text.String()})
}

// The templates are filled in here but for the flags, which the library renders;
// braces of its template language do not occur in our texts.

func appHelp(commands []*command) string {
	var b strings.Builder
	b.WriteString("assay - {{.Usage}}\n\nUSAGE\n   assay COMMAND [flags and arguments in any order]\n\nCOMMANDS\n")
	for _, c := range commands {
		if !c.hidden {
			fmt.Fprintf(&b, "   %-11s %s\n", c.name, c.summary)
		}
	}
	b.WriteString("\nFLAGS OF EVERY COMMAND\n" + globalFlagHelp())
	b.WriteString("\nEXIT CODES\n" + exitTable())
	b.WriteString("\nEXAMPLE\n   assay run quickstart && assay verify latest\n")
	return b.String()
}

func globalFlagHelp() string {
	var b strings.Builder
	for _, f := range globalFlags() {
		fmt.Fprintf(&b, "   %s\n", strings.Replace(f.String(), "\t", "  ", 1))
	}
	return b.String()
}

func commandHelp(c *command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "assay %s - %s\n\nUSAGE\n   %s\n", c.name, c.summary, strings.TrimSpace("assay "+c.name+" "+c.args+" [flags]"))
	if c.details != "" {
		b.WriteString("\n")
		for _, line := range strings.Split(strings.TrimSpace(c.details), "\n") {
			b.WriteString(strings.TrimRight("   "+line, " ") + "\n")
		}
	}
	b.WriteString("\nFLAGS{{range .VisibleFlags}}\n   {{.}}{{end}}\n")
	fmt.Fprintf(&b, "\nEXAMPLE\n   %s\n", strings.ReplaceAll(c.example, "\n", "\n   "))
	return b.String()
}
