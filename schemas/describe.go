package schemas

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Describe returns the reference of the experiment and machine files as
// Markdown, made from the same descriptions their loader checks against.
func Describe() string {
	var b strings.Builder
	b.WriteString("# The experiment file\n\nTOML. Unknown keys are refused. Durations and sizes carry units. Paths are relative to the file.\n\n")
	describeFields(&b, ExperimentFields(), "")
	b.WriteString("\n## References in strings\n\n" +
		"`${param.NAME}`, `${stage.NAME.OUTPUT}`, `${source.PATH}`, `${service.NAME.url}`, `${machine.NAME}`, `${secret.NAME}`; `$${` is a literal `${`.\n")
	b.WriteString("\n# Stage kinds\n")
	for _, k := range Kinds() {
		fmt.Fprintf(&b, "\n## kind = %q\n\n%s. Default scope: %s. Service: %s. Outputs: %s.\n\n", k.Name, k.Doc, k.Scope,
			orNone(k.Service), orNone(strings.Join(k.Outputs, ", ")))
		describeFields(&b, k.Fields, "")
	}
	b.WriteString("\n# Engines\n")
	for _, e := range Engines() {
		fmt.Fprintf(&b, "\n## engine = %q\n\n%s.\n\n", e.Name, e.Doc)
		for _, group := range e.OneOf {
			fmt.Fprintf(&b, "Exactly one of `%s`.\n\n", strings.Join(group, "`, `"))
		}
		describeFields(&b, e.Fields, "")
	}
	b.WriteString("\n# The machine file\n\nWhat is true of this machine only. It never enters a key.\n\n")
	describeFields(&b, MachineFields(), "")
	return b.String()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	if s == "*" {
		return "as the stage declares them"
	}
	return s
}

func describeFields(b *strings.Builder, fields []Field, prefix string) {
	for _, f := range fields {
		fmt.Fprintf(b, "- `%s%s` (%s%s): %s%s\n", prefix, f.Name, f.Type, need(f), f.Doc, limits(f))
		switch f.Type {
		case TypeTable:
			describeFields(b, f.Fields, prefix+f.Name+".")
		case TypeTableMap:
			describeFields(b, f.Fields, prefix+f.Name+".NAME.")
		case TypeTableList:
			describeFields(b, f.Fields, prefix+f.Name+"[].")
		}
	}
}

func need(f Field) string {
	if f.Required {
		return ", required"
	}
	return ""
}

func limits(f Field) string {
	var parts []string
	if len(f.Enum) > 0 {
		parts = append(parts, "one of "+strings.Join(f.Enum, ", "))
	}
	if f.Min != nil {
		parts = append(parts, "at least "+Decimal(*f.Min))
	}
	if f.Max != nil {
		parts = append(parts, "at most "+Decimal(*f.Max))
	}
	if f.Default != nil {
		if d, err := json.Marshal(f.Default); err == nil {
			parts = append(parts, "default "+string(d))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " [" + strings.Join(parts, "; ") + "]"
}
