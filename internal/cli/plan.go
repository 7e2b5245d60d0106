package cli

import (
	"fmt"
	"strings"

	"assay/schemas"
)

func planCommand() *command {
	return &command{
		name: "plan", args: "FILE", summary: "print the stages of an experiment with their definition keys", minArgs: 1, maxArgs: 1,
		details: "Pure: touches no store and starts nothing. Equal experiments give equal plans,\nbyte for byte.",
		example: "assay plan quickstart --set rate=4",
		flags:   experimentFlags(),
		run: func(c *call) error {
			l, err := c.load()
			if err != nil {
				return err
			}
			if c.asJSON {
				return c.printJSON(l.plan)
			}
			c.printf("%s", planText(l.plan))
			return nil
		},
	}
}

func planText(p schemas.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d stages, %d trials, %d nodes; effective experiment %s\n\n", p.Experiment, len(p.Stages), len(p.Trials), len(p.Nodes), p.Digest.Short())
	t := newTable("trial", "repetition", "seed", "point").right(1, 2)
	for _, x := range p.Trials {
		t.row(x.ID, fmt.Sprint(x.Repetition), fmt.Sprint(x.Seed), pointText(x.Point))
	}
	b.WriteString(t.String() + "\n")
	t = newTable("node", "kind", "needs", "service", "notes", "definition key")
	for _, n := range p.Nodes {
		t.row(n.ID, n.Kind, strings.Join(n.Needs, " "), n.Unit, nodeNotes(n), n.Key.Short())
	}
	b.WriteString(t.String())
	if len(p.Services) == 0 {
		return b.String()
	}
	b.WriteString("\n")
	t = newTable("lifetime", "service", "engine", "trials", "nodes", "definition key")
	for _, u := range p.Services {
		t.row(u.ID, u.Service, u.Engine, strings.Join(u.Trials, " "), fmt.Sprint(len(u.Nodes)), u.Key.Short())
	}
	return b.String() + t.String()
}

func nodeNotes(n schemas.Node) string {
	var notes []string
	if n.Pure {
		notes = append(notes, "reusable")
	}
	if n.Measured {
		notes = append(notes, "measured alone")
	}
	if len(n.Trials) > 1 {
		notes = append(notes, fmt.Sprintf("shared by %d trials", len(n.Trials)))
	}
	return strings.Join(notes, ", ")
}
