package aegaeon

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Changes are what a configuration is started with in place of what is written.
// What is empty stays as it is.
type Changes struct {
	Mode       string
	ArchiveDir string
	// ModelPaths gives folders of checkpoints by name of a model.
	ModelPaths map[string]string
}

// Render writes a configuration with changes, and lists the keys whose values
// became others. Nothing else in it means anything different then.
func Render(file string, content []byte, c Changes) (out []byte, replaced []string, err error) {
	if _, err := ParseModels(file, content); err != nil {
		return nil, nil, err
	}
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(content)).Decode(&doc); err != nil {
		line, text := yamlError(err)
		return nil, nil, &ConfigError{File: file, Line: line, Text: text}
	}
	top := follow(doc.Content[0])
	r := renderer{file: file}
	graph := r.table(r.table(top, "server"), "cuda_graph")
	r.set(graph, "server.cuda_graph.mode", "mode", c.Mode)
	r.set(graph, "server.cuda_graph.archive_dir", "archive_dir", c.ArchiveDir)
	models, _, _ := find(top, "models")
	for i, entry := range models.Content {
		entry = follow(entry)
		name, _, _ := find(entry, "name")
		r.set(entry, fmt.Sprintf("models[%d].path", i), "path", c.ModelPaths[name.Value])
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	if len(r.replaced) == 0 {
		return content, nil, nil
	}
	b, err := yaml.Marshal(&doc)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	slices.Sort(r.replaced)
	return b, r.replaced, nil
}

type renderer struct {
	file     string
	replaced []string
	err      error
}

// table is a table in a table, made where there is none; it is written only when
// something is set in it.
func (r *renderer) table(in *yaml.Node, key string) *yaml.Node {
	if in == nil {
		return nil
	}
	v, line, text := find(in, key)
	switch {
	case text != "":
		r.fail(line, text)
		return nil
	case v == nil || v.Tag == "!!null":
		v = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		put(in, key, v)
	case v.Kind != yaml.MappingNode:
		r.fail(v.Line, key+": want a table")
		return nil
	}
	return v
}

func (r *renderer) fail(line int, text string) {
	if r.err == nil {
		r.err = &ConfigError{File: r.file, Line: line, Text: text}
	}
}

func (r *renderer) set(in *yaml.Node, at, key, value string) {
	if in == nil || value == "" || r.err != nil {
		return
	}
	old, line, text := find(in, key)
	switch {
	case text != "":
		r.fail(line, text)
		return
	case old != nil && old.Kind == yaml.ScalarNode && old.Tag == "!!str" && old.Style != 0 && old.Value == value:
		return
	}
	put(in, key, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.SingleQuotedStyle, Value: value})
	if old == nil || old.Value != value {
		r.replaced = append(r.replaced, at)
	}
}

// put gives a key of a table a value of its own: what an alias stands for is left to
// whoever else refers to it.
func put(in *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(in.Content); i += 2 {
		if in.Content[i].Value == key {
			in.Content[i+1] = value
			return
		}
	}
	in.Content = append(in.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
}
