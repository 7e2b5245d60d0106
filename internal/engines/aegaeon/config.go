package aegaeon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"assay/internal/durable"
	"assay/schemas"
)

// maxConfig is more than any configuration has.
const maxConfig = 4 << 20

// Model is an entry of a configuration's models.
type Model struct {
	Name string
	Line int
}

// ConfigError is what is wrong with a configuration, and where.
type ConfigError struct {
	File string
	Line int // 0: of the whole file
	Text string
}

func (e *ConfigError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Text)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
}

// ReadModels reads the models of a YAML configuration, in its order. Nothing else
// of it is looked at. Errors in the content are *ConfigError.
func ReadModels(file string) ([]Model, error) {
	f, err := durable.OpenRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(b) > maxConfig {
		return nil, &ConfigError{File: file, Text: fmt.Sprintf("larger than %d bytes: not a configuration of models", maxConfig)}
	}
	return ParseModels(file, b)
}

// ParseModels is ReadModels of content; file names it in errors.
func ParseModels(file string, content []byte) ([]Model, error) {
	fail := func(line int, format string, args ...any) ([]Model, error) {
		return nil, &ConfigError{File: file, Line: line, Text: fmt.Sprintf(format, args...)}
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(content))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return fail(0, "empty: want a list of models under models")
	} else if err != nil {
		line, text := yamlError(err)
		return fail(line, "not YAML: %s", text)
	}
	top := follow(&doc)
	if top.Kind == yaml.DocumentNode && len(top.Content) == 1 {
		top = follow(top.Content[0])
	}
	if top.Kind != yaml.MappingNode {
		return fail(top.Line, "want a table with server, models and devices")
	}
	list, line, text := find(top, "models")
	switch {
	case text != "":
		return fail(line, "%s", text)
	case list == nil:
		return fail(top.Line, "no models: want a list of tables with a name each, under models")
	case list.Kind != yaml.SequenceNode:
		return fail(list.Line, "models: want a list of tables with a name each")
	case len(list.Content) == 0:
		return fail(list.Line, "models: the list is empty")
	}
	var out []Model
	first := map[string]int{}
	for i, entry := range list.Content {
		m, line, text := modelOf(follow(entry))
		if text != "" {
			return fail(line, "models[%d]: %s", i, text)
		}
		if before, twice := first[m.Name]; twice {
			return fail(m.Line, "models[%d]: name %q stands in line %d already", i, m.Name, before)
		}
		first[m.Name] = m.Line
		out = append(out, m)
	}
	return out, nil
}

func modelOf(entry *yaml.Node) (m Model, line int, text string) {
	if entry.Kind != yaml.MappingNode {
		return m, entry.Line, "want a table with a name"
	}
	name, line, text := find(entry, "name")
	switch {
	case text != "":
		return m, line, text
	case name == nil:
		return m, entry.Line, "name is missing" + nearName(entry)
	case name.Kind != yaml.ScalarNode || name.Tag != "!!str":
		return m, name.Line, "name: want a string" + quoteHint(name)
	case strings.TrimSpace(name.Value) == "":
		return m, name.Line, "name is empty"
	}
	return Model{Name: name.Value, Line: name.Line}, 0, ""
}

// quoteHint is for names like 7 or yes, which YAML takes for something else.
func quoteHint(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	return fmt.Sprintf(", have %s: write it in quotes", n.Value)
}

func nearName(entry *yaml.Node) string {
	for i := 0; i+1 < len(entry.Content); i += 2 {
		if near := schemas.Nearest(entry.Content[i].Value, []string{"name"}); near != "" {
			return fmt.Sprintf(" (%q in line %d is not it)", entry.Content[i].Value, entry.Content[i].Line)
		}
	}
	return ""
}

// find is the value of a key of a table, nil for none; text says what is wrong.
func find(table *yaml.Node, key string) (value *yaml.Node, line int, text string) {
	for i := 0; i+1 < len(table.Content); i += 2 {
		k := table.Content[i]
		if k.Value != key {
			continue
		}
		if value != nil {
			return nil, k.Line, key + " stands here a second time; YAML readers differ in which one they take"
		}
		value, line = follow(table.Content[i+1]), k.Line
	}
	return value, line, ""
}

// follow goes to what an alias stands for. An alias of an alias does not exist.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// yamlError takes the line out of the library's text.
func yamlError(err error) (line int, text string) {
	at := yamlLine.FindStringSubmatch(err.Error())
	line, _ = strconv.Atoi(at[1])
	return line, err.Error()[len(at[0]):]
}
