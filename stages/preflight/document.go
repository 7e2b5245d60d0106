package preflight

import (
	"fmt"
	"slices"
	"strings"

	"assay/preflight"
)

// whenText says when, for people.
var whenText = map[string]string{
	preflight.Before: "before anything is started",
	preflight.NotYet: "nothing calls it yet",
}

// pinning tells of what the tables do not: how to say which checkpoint is meant.
const pinning = `
## Pinning a checkpoint

A checkpoint folder is read at the level of headers: names, sizes, every safetensors header, index and configuration, never the weights. Which
weights are meant, an experiment says by their fingerprint:

` + "```toml" + `
[model.qwen]
name = "Qwen/Qwen3-4B"
checkpoint = "${machine.models}/Qwen3-4B"
fingerprint = "sha256:..."        # as reports give it, under checkpoint_fingerprint
fingerprint_level = "full"        # every byte; without it "header"
` + "```" + `

At level *header* a fingerprint rests on names, sizes and headers of files, and takes a moment. At level *full* it rests on every byte; what has
been hashed is remembered by device, inode, size and times, so that only the first run reads it all. The same number enters the keys of results.
A preflight refuses another checkpoint, and says both fingerprints and the level.
`

// Document is docs/preflight.md, made from the catalog and the pitfalls.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Preflight: what is checked before a GPU is spent

This page is made from the program (` + "`go test ./stages/preflight -run TestDocument -update`" + `); ` + "`assay preflight --list`" + ` prints the same checks.

A finding has an ID, a severity, a subject, a message and a remedy. An *error* refuses the run, and so does *unknown*: what could not be found
out is not a pass, unless ` + "`--allow-unknown ID`" + ` says that it may be. Passes are recorded too. The severity below is the worst that a check says.

## Checks
`)
	entries := Catalog()
	for i, e := range entries {
		if i == 0 || entries[i-1].Subject != e.Subject {
			fmt.Fprintf(&b, "\n### %s\n\n| ID | at worst | what has to hold | what to do | when | stands for |\n|---|---|---|---|---|---|\n", e.Subject)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", e.ID, e.Severity, cell(e.Checks), cell(e.Remedy), cell(whenText[e.When]), cell(StandsFor(e)))
	}
	b.WriteString(pinning)
	b.WriteString("\n## Pitfalls\n\nEach of these has cost somebody an hour on a GPU with Aegaeon and its CUDA graphs. The last column says which checks look for it, and when, or why none can.\n\n" +
		"| # | symptom and cause | checked by |\n|---|---|---|\n")
	for _, p := range Pitfalls() {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", p.Number, cell(p.Symptom), cell(p.checkedBy(entries)))
	}
	return b.String()
}

// StandsFor names the pitfalls and the rule of a check.
func StandsFor(e preflight.Entry) string {
	var parts []string
	for _, n := range e.Pitfalls {
		parts = append(parts, fmt.Sprintf("pitfall %d", n))
	}
	if e.Rule != "" {
		parts = append(parts, e.Rule)
	}
	return strings.Join(parts, ", ")
}

func (p Pitfall) checkedBy(entries []preflight.Entry) string {
	var parts []string
	for _, when := range []string{preflight.Before, preflight.NotYet} {
		var ids []string
		for _, e := range entries {
			if e.When == when && slices.Contains(e.Pitfalls, p.Number) {
				ids = append(ids, "`"+e.ID+"`")
			}
		}
		if len(ids) > 0 {
			parts = append(parts, whenText[when]+": "+strings.Join(ids, ", "))
		}
	}
	if p.Reason != "" {
		parts = append(parts, p.Reason)
	}
	if len(parts) == 0 {
		return "not checked"
	}
	return strings.Join(parts, "; ")
}

// cell keeps a text inside its cell of a table.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ")
}
